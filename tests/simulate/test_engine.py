"""Compiled code and the folder that keeps it: damage, strangers, absence; results are the same with and without."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import subprocess
import sys

import llvmlite.binding as llvm
import numpy as np
import pytest
from helpers import child_environment, fingerprint

import ctmoments as ctm
from ctmoments.simulate import engine, lanes, sums
from ctmoments.simulate.direct import DirectKernel
from ctmoments.simulate.lanes import Lockstep
from ctmoments.simulate.network import lower
from ctmoments.simulate.sumkernel import emit_sums

ANSWER = "define i64 @answer(ptr %at) {{\n  %x = load i64, ptr %at\n  %y = add i64 %x, {}\n  ret i64 %y\n}}\n"
posix = pytest.mark.skipif(os.name == "nt", reason="POSIX permissions")


def _call(text: str) -> int:
    cell = np.array([40], np.int64)
    function = engine.compile_function.__wrapped__(text, "answer")  # past the memory of this process
    return function(cell.ctypes.data_as(ctypes.c_void_p).value)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("CTMOMENTS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_an_object_is_kept_and_used(folder, monkeypatch):
    assert _call(ANSWER.format(2)) == 42
    (kept,) = folder.iterdir()
    data = kept.read_bytes()
    assert hashlib.sha256(data[32:]).digest() == data[:32]
    monkeypatch.setattr(engine.llvm.TargetMachine, "emit_object", _refuse)
    assert _call(ANSWER.format(2)) == 42  # from the file: nothing may be compiled
    with pytest.raises(AssertionError, match="compiled"):
        _call(ANSWER.format(3))


def _refuse(*_):
    raise AssertionError("compiled")


@pytest.mark.parametrize("damage", [
    lambda data: b"", lambda data: data[:-1], lambda data: data[:20], lambda data: data + b"x",
    lambda data: data[:100] + bytes([data[100] ^ 1]) + data[101:], lambda data: bytes([data[0] ^ 1]) + data[1:],
    lambda data: data[:32],
])  # fmt: skip
def test_a_damaged_object_is_compiled_anew(folder, damage):
    _call(ANSWER.format(2))
    (kept,) = folder.iterdir()
    whole = kept.read_bytes()
    kept.write_bytes(damage(whole))
    assert _call(ANSWER.format(2)) == 42
    assert kept.read_bytes() == whole and [*folder.iterdir()] == [kept]


@posix
@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_a_folder_that_others_can_write_to_is_not_used(folder, mode):
    """Machine code from a stranger would run as ours."""
    folder.mkdir()
    folder.chmod(mode)
    assert engine.cache_folder() is None
    assert _call(ANSWER.format(2)) == 42 and not [*folder.iterdir()]


@posix
def test_our_folder_is_private(folder):
    assert engine.cache_folder() == folder
    assert folder.stat().st_mode & 0o777 == 0o700


def test_no_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CTMOMENTS_CACHE", "")
    assert engine.cache_folder() is None and _call(ANSWER.format(2)) == 42 and not [*tmp_path.iterdir()]
    monkeypatch.setenv("CTMOMENTS_CACHE", str(tmp_path / "file" / "cache"))
    (tmp_path / "file").write_text("in the way")
    assert engine.cache_folder() is None and _call(ANSWER.format(2)) == 42


@posix
def test_the_usual_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("CTMOMENTS_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    if sys.platform != "win32":
        assert engine.cache_folder() == tmp_path / "ctmoments"


def test_broken_modules_are_refused_and_not_kept(folder):
    with pytest.raises(RuntimeError, match="expected"):
        _call("define i64 @answer(ptr %at) { nonsense }")
    assert not folder.exists() or not [*folder.iterdir()]


def test_code_is_the_same_text_each_time():
    """The cache is keyed by the text: an order that changed from run to run would compile for ever."""
    code = (
        "import ctmoments as ctm, hashlib;"
        "from ctmoments.simulate.direct import DirectKernel;"
        "from ctmoments.simulate.network import lower;"
        "from ctmoments.simulate.sumkernel import emit_sums;"
        "text = DirectKernel(lower(ctm.load_problem('vilar-oscillator')), 4, 2).text() + emit_sums(4, 12);"
        "print(hashlib.sha256(text.encode()).hexdigest())"
    )
    runs = {
        subprocess.run(
            [sys.executable, "-c", code], env=child_environment(PYTHONHASHSEED=seed), check=True, capture_output=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(runs) == 1


def test_kernels_need_no_library():
    """Nothing outside the module but LLVM's own intrinsics, none of which is a library call: CUDA has no libm."""
    model = ctm.Model({"X": 3}, ["k"], ["0 -> X : exp(-X)*log(1 + X)^k", "X -> 0 : floor(X)*sqrt(X)*abs(X)"])
    problem = ctm.Problem(model, ctm.Space(k=(0, 2)), "X", [1.0])
    for width in (1, 2, 8):
        text = DirectKernel(lower(problem), width, 1).text() + emit_sums(width, 3)
        declared = {line.split("@")[1].split("(")[0].strip('"') for line in text.splitlines() if "declare" in line}
        allowed = ("llvm.fma.", "llvm.floor.", "llvm.ceil.", "llvm.sqrt.", "llvm.fabs.", "llvm.cttz.")
        assert declared and all(name.startswith(allowed) for name in declared), declared


@pytest.mark.skipif(platform.machine().lower() not in ("x86_64", "amd64"), reason="names of x86 processors")
@pytest.mark.parametrize(("cpu", "width"), [("x86-64", 2), ("x86-64-v2", 2), ("x86-64-v3", 4)])
def test_a_path_is_the_same_path_on_older_processors(monkeypatch, folder, cpu, width):
    """SSE2 without fused multiply-add in hardware, SSE4, AVX2: the same bits as on this machine."""
    model = ctm.Model({"X": 9, "Y": 3}, ["k"], ["0 -> X : k*exp(-X/9) + hill(Y, 4, 2.5)", "X -> Y : log(1 + X)^1.5*X",
                                               "Y -> 0 : floor(Y/2)*sqrt(Y)"])  # fmt: skip
    problem = ctm.Problem(model, ctm.Space(k=(0, 9)), ["X", "Y"], [0.5, 1.0, 4.0])

    def hashes() -> tuple[str, str]:
        paths = ctm.simulate_paths(problem, [[5.0], [8.0]], 300, seed=1, lockstep=Lockstep(width))
        data = ctm.simulate_moments(problem, [[5.0], [8.0]], 300, seed=1, lockstep=Lockstep(width))
        return fingerprint(paths.values), fingerprint(data["mean"].values, data["cov"].values, data["cov_se"].values)

    here = hashes()
    target = llvm.Target.from_default_triple()
    machine = target.create_target_machine(cpu=cpu, opt=2, reloc="default", codemodel="jitdefault", jit=True)
    monkeypatch.setattr(engine, "_target", lambda: (machine, cpu))
    _forget()
    assert hashes() == here
    _forget()


def _forget() -> None:
    for cached in (engine.compile_function, lanes._compiled, sums._kernel):
        cached.cache_clear()
