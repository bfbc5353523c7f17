"""The command: results on stdout, one line on stderr for what is wrong, exit codes, and nothing slow at its start."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import xarray as xr

import ctmoments as ctm
from ctmoments.use.cli import VERBS, main, overview

SMALL = ["--points", "3", "--replicates", "40", "--seed", "1", "--quiet"]


@pytest.fixture
def run(capsys):
    """Run a command line: code, stdout, stderr."""

    def call(*words: str) -> tuple[int, str, str]:
        code = main([str(word) for word in words])
        return code, *capsys.readouterr()

    return call


def test_info_lists_every_problem_in_one_line_each(run):
    code, out, err = run("info")
    assert (code, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines()] == list(ctm.list_problems())


def test_info_describes_and_gives_a_starter_file(run, tmp_path):
    assert run("info", "sir")[1] == f"{ctm.load_problem('sir')}\n"
    path = tmp_path / "mine.toml"
    path.write_text(run("info", "sir", "--toml")[1])
    assert ctm.load_problem(path) == ctm.load_problem("sir")
    assert run("check", path)[:2] == (0, f"{path}: valid: 3 species, 2 reactions, 2 parameters, 13 outputs\n")


def test_check_refuses_in_one_line(run, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(run("info", "sir", "--toml")[1].replace("alpha*I", "alhpa*I"))
    code, out, err = run("check", path)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert str(path) in err and "'alhpa'" in err and "'alpha'" in err


def test_check_evaluates_initial_amounts(run, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(run("info", "sir", "--toml")[1].replace("S = 763", 'S = "763 - 1000*alpha"'))
    code, _, err = run("check", path)
    assert code == 2 and "initial amount of 'S'" in err


def test_simulate_prints_a_table_and_json_agrees_with_the_library(run):
    code, text, err = run("simulate", "sir", *SMALL)
    assert (code, err) == (0, "") and "120 (3 x 40)" in text and "mean I(13)" in text
    code, text, err = run("simulate", "sir", *SMALL, "--json")
    record = json.loads(text)
    problem = ctm.load_problem("sir")
    data = ctm.simulate_moments(problem, ctm.sample_design(problem, 3, seed=1), 40, seed=1)
    assert (code, err, text.count("\n")) == (0, "", 1)
    assert record["mean"] == data["mean"].values.tolist() and record["mean_se"] == data["mean_se"].values.tolist()
    assert record["paths"] == 120 and sum(record["status"].values()) == 120 and record["kernel"] == "direct"


def test_one_path_has_no_spread_and_json_says_null(run):
    record = json.loads(run("simulate", "sir", "--theta", "alpha=.5,beta=.002", "--replicates", "1", "--json")[1])
    assert record["theta"] == {"alpha": [0.5], "beta": [0.002]}
    assert record["mean_se"] == [[None] * 13]


@pytest.mark.parametrize("suffix", [".nc", ".zarr"])
def test_the_dataset_file_is_the_dataset(run, tmp_path, suffix):
    pytest.importorskip({".nc": "h5py", ".zarr": "zarr"}[suffix])
    from ctmoments.use.files import read_dataset

    path = tmp_path / "new" / f"x{suffix}"
    for _ in range(2):  # the second replaces the first
        assert run("simulate", "sir", *SMALL, "--out", path)[0] == 0
    problem = ctm.load_problem("sir")
    data = ctm.simulate_moments(problem, ctm.sample_design(problem, 3, seed=1), 40, seed=1)
    xr.testing.assert_identical(read_dataset(path), data)
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_values_times_and_components_can_be_given(run, tmp_path):
    table = tmp_path / "values.csv"
    table.write_text("beta,alpha\n0.002,0.5\n0.003,0.25\n")
    words = ["simulate", "sir", "--replicates", "20", "--json", "--times", "0:4:2", "--observe", "I, S + I"]
    record = json.loads(run(*words, "--csv", table)[1])
    assert record["theta"] == {"alpha": [0.5, 0.25], "beta": [0.002, 0.003]}
    assert record["time"] == [0, 2, 4, 0, 2, 4] and record["component"] == ["I"] * 3 + ["S + I"] * 3
    assert np.shape(record["sd"]) == (2, 6)


def test_failed_paths_are_told(run, tmp_path):
    path = tmp_path / "bad.toml"
    path.write_text(run("info", "birth-death", "--toml")[1].replace("[space]", "[space]", 1))
    problem = ctm.load_problem("sir")
    model = ctm.Model({"X": 2}, ["k"], ["X -> 0 : k"])  # the rate does not vanish at 0
    ctm.Problem(model, ctm.Space(k=(1, 2)), observe="X", times=problem.times, name="bad").save(path)
    code, _, err = run("simulate", path, "--points", "2", "--replicates", "10")
    assert code == 0 and "20 of 20 paths failed" in err and "must vanish" in err
    code, out, err = run("simulate", path, "--points", "2", "--replicates", "10", "--on-failure", "raise")
    assert (code, out, err.count("\n")) == (1, "", 1)


def test_a_picture(run, tmp_path):
    path = tmp_path / "x.png"
    code, _, err = run("simulate", "sir", "--points", "1", "--replicates", "20", "--plot", path)
    assert code == 0 and str(path) in err and path.read_bytes()[1:4] == b"PNG"


def test_verbose_names_the_kernel(run):
    assert "kernel: direct" in run("simulate", "sir", "--points", "1", "--replicates", "2", "--verbose")[2]


BAD = [
    (["simlate"], "'simulate'"),
    (["simulate"], "PROBLEM"),
    (["simulate", "srr"], "'sir'"),
    (["simulate", "sir", "--pints", "4"], "'--points'"),
    (["simulate", "sir", "--points"], "--points must have one"),
    (["simulate", "sir", "--points", "0"], "--points must be a whole number from 1, got '0'."),
    (["simulate", "sir", "--points", "2.5"], "got '2.5'"),
    (["simulate", "sir", "--seed", "-1"], "--seed"),
    (["simulate", "sir", "--seed", str(2**64)], "--seed"),
    (["simulate", "sir", "--threads", "0"], "--threads"),
    (["simulate", "sir", "--theta", "alpha=.5"], "'beta' is missing"),
    (["simulate", "sir", "--theta", "alpha=.5,bta=.002"], "'beta'"),
    (["simulate", "sir", "--theta", "alpha=.5,alpha=.6"], "twice"),
    (["simulate", "sir", "--theta", "alpha"], "alpha=0.5,beta=0.002"),
    (["simulate", "sir", "--theta", "alpha=5,beta=.002"], "[0.1, 0.9]"),
    (["simulate", "sir", "--theta", "alpha=nan,beta=.002"], "finite"),
    (["simulate", "sir", "--theta", "alpha=.5,beta=.002", "--points", "3"], "--theta must come without --points"),
    (["simulate", "sir", "--theta", "alpha=.5,beta=.002", "--theta", "alpha=.5"], "same parameters"),
    (["simulate", "sir", "--csv", "nothing.csv"], "nothing.csv"),
    (["simulate", "sir", "--times", "3,2"], "must increase"),
    (["simulate", "sir", "--times", "0:10:3"], "whole steps"),
    (["simulate", "sir", "--observe", "J"], "'J'"),
    (["simulate", "sir", "--points", "3", "--design", "grid"], "1 or 4"),
    (["simulate", "sir", "--design", "lsh"], "'lhs'?"),
    (["simulate", "sir", "--out", "x.csv"], ".nc or .zarr"),
    (["simulate", "sir", "--out", "/proc/none/x.nc"], "/proc/none"),
    (["simulate", "sir", "more"], "'more'"),
    (["check", "nothing.toml"], "nothing.toml"),
    (["info", "--toml"], "--toml"),
]


@pytest.mark.parametrize(("words", "told"), BAD, ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_bad_input_is_one_line_and_code_2(run, words, told):
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1 and told in err and "Traceback" not in err and "usage" not in err


PATH = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}  # other processes import what this one does


def command(*words: str) -> subprocess.Popen:
    words = [sys.executable, "-m", "ctmoments", *words]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=PATH)


def python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=PATH).stdout


def test_help_is_the_overview_and_loads_nothing_heavy():
    code = (
        "import sys; sys.argv = ['ctmoments', '--help']\nfrom ctmoments.use.cli import main\nmain()\n"
        "print([name for name in ('numpy', 'xarray', 'jax', 'scipy', 'llvmlite', 'matplotlib') if name in sys.modules])"
    )
    out = python(code)
    assert out == f"{overview()}\n[]\n"


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_a_verb_loads_nothing_heavy(verb):
    code = (
        f"import sys; sys.argv = ['ctmoments']\nfrom ctmoments.use.cli import main\n"
        f"try: main(['{verb}', '--help'])\nexcept SystemExit: pass\n"
        "print([name for name in ('xarray', 'jax', 'scipy', 'llvmlite', 'matplotlib') if name in sys.modules])"
    )
    out = python(code)
    assert out.startswith(f"usage: ctmoments {verb}") and out.endswith("\n[]\n")


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_ctrl_c_ends_within_a_second_with_one_line():
    process = command("simulate", "sir", "--points", "100", "--replicates", "10_000_000", "--verbose")
    time.sleep(4)  # past the imports, into the kernels
    assert process.poll() is None
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err.splitlines()[-1]) == (130, "", "ctmoments: interrupted")
    assert "Traceback" not in err
    assert time.monotonic() - begin < 3  # one second on an idle machine; tests may share theirs


@pytest.mark.skipif(os.name != "posix", reason="pipes")
def test_a_reader_that_leaves_is_no_error():
    process = command("info")
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(timeout=20) == 141
    process.stderr.close()
