from __future__ import annotations

import json
import struct
import subprocess
import sys

import numpy as np
import pytest
from predict.maps import sir_map
from safetensors.numpy import load_file, save_file

from ctmoments.errors import FileError
from ctmoments.predict.mapfile import load_map


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "sir.ctm"
    sir_map().save(path)
    return path


def header_of(path) -> dict:
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    return json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["ctmoments"])


def rewrite(path, header=None, arrays=None) -> None:
    save_file(arrays or load_file(path), path, {"ctmoments": json.dumps(header or header_of(path))})


@pytest.mark.parametrize("form", ["matrix", "factor"])
def test_a_map_comes_back_bit_for_bit(tmp_path, form):
    m = sir_map(form)
    m.save(tmp_path / "m.ctm")
    back = load_map(tmp_path / "m.ctm")
    theta = m.problem.space.from_unit(np.random.default_rng(0).random((50, 2)))
    for name in ("mean", "cov", "mean_se", "cov_se"):
        np.testing.assert_array_equal(back.predict(theta)[name], m.predict(theta)[name])
    assert back.card == m.card and back.problem == m.problem
    back.save(tmp_path / "again.ctm")
    assert (tmp_path / "again.ctm").read_bytes() == (tmp_path / "m.ctm").read_bytes()


def test_loading_needs_neither_jax_nor_a_compiler(saved):
    code = (
        "import sys; sys.argv = ['ctmoments']\n"
        f"from ctmoments.predict.mapfile import load_map; load_map({str(saved)!r}).mean([0.5, 0.002])\n"
        "assert not {'jax', 'llvmlite'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(sys.path)})


@pytest.mark.parametrize("keep", [0, 4, 100, -8])
def test_a_truncated_file_is_refused(saved, keep):
    saved.write_bytes(saved.read_bytes()[:keep])
    with pytest.raises(FileError, match="must be a whole safetensors file"):
        load_map(saved)


def test_foreign_files_are_refused(tmp_path):
    with pytest.raises(FileError, match="there is none"):
        load_map(tmp_path / "absent.ctm")
    other = tmp_path / "other.safetensors"
    save_file({"weights": np.ones(3)}, other)
    with pytest.raises(FileError, match="some other safetensors file"):
        load_map(other)
    other.write_bytes(b"\x80\x04pickle" * 10)
    with pytest.raises(FileError, match="must be a whole safetensors file"):
        load_map(other)


def test_arrays_that_are_not_finite_are_refused(saved):
    arrays = load_file(saved)
    arrays["mean.inner.coefficients"][0, 0] = np.nan
    rewrite(saved, arrays=arrays)
    with pytest.raises(FileError, match=r"'mean\.inner\.coefficients' must be finite"):
        load_map(saved)


def spoil_shape(header, arrays):
    arrays["mean.inner.coefficients"] = arrays["mean.inner.coefficients"][:-1]


def spoil_parameters(header, arrays):
    arrays["mean.inner.index"] = np.hstack([arrays["mean.inner.index"]] * 2)


def spoil_index(header, arrays):
    arrays["mean.inner.index"] = arrays["mean.inner.index"] + 10**6


def spoil_kind(header, arrays):
    header["mean"]["kind"] = "scald"


def spoil_array_name(header, arrays):
    header["mean"]["inner"]["evaluator"]["index"] = {"array": "nowhere"}


def spoil_missing(header, arrays):
    del arrays["deterministic"]


def spoil_version(header, arrays):
    header["version"] = 99


def spoil_problem(header, arrays):
    header["problem"] = "[model"


def spoil_part(header, arrays):
    header["cov"] = header["mean"]


def spoil_entry(header, arrays):
    header["cov"]["extra"] = 1


def spoil_depth(header, arrays):
    part = header["mean"]
    for _ in range(30):
        part = {"kind": "exponential", "inner": {"evaluator": part}}
    header["mean"] = part


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (spoil_shape, "`coefficients` must have the shape"),
        (spoil_parameters, "index 2 is out of bounds"),
        (spoil_index, "`index` must be degrees"),
        (spoil_kind, "unknown kind 'scald'. Did you mean 'scaled'"),
        (spoil_array_name, "must be an array of the file"),
        (spoil_missing, "must hold the array 'deterministic'"),
        (spoil_version, "must have version 1"),
        (spoil_problem, "problem"),
        (spoil_part, "`cov` must be a covariance"),
        (spoil_entry, "must have the entries"),
        (spoil_depth, "nested at most"),
    ],
)
def test_damaged_files_are_refused_in_one_line(saved, spoil, message):
    header, arrays = header_of(saved), load_file(saved)
    spoil(header, arrays)
    rewrite(saved, header, arrays)
    with pytest.raises(FileError, match=message) as caught:
        load_map(saved)
    assert "\n" not in str(caught.value) and str(saved) in str(caught.value)
