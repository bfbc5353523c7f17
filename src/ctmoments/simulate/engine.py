"""From LLVM IR to a callable on this machine: compile once, keep the object file, load it next time in milliseconds.

In: the text of an LLVM module. Out: a C function pointer. No LLVM pass runs: the emitters write the vector code they
want (same speed, a third of the compile time). Object files are kept in a private folder, named by the hash of IR,
processor, features and LLVM version, each behind a checksum; a damaged one is compiled anew.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import sys
import tempfile
import threading
from collections.abc import Callable
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any, TypeVar

import llvmlite
import llvmlite.binding as llvm

CHECKSUM = 32  # bytes of SHA-256 in front of a kept object


_BUILDING = threading.RLock()  # llvmlite's IR builder fills module-wide tables and is not safe with threads
Made = TypeVar("Made")


def built_once(maxsize: int) -> Callable[[Callable[..., Made]], Callable[..., Made]]:
    """A cache for what emits or compiles code: one thread at a time, each thing once."""

    def decorate(make: Callable[..., Made]) -> Callable[..., Made]:
        kept = lru_cache(maxsize)(make)

        @wraps(make)
        def locked(*arguments: Any) -> Made:
            with _BUILDING:
                return kept(*arguments)

        locked.cache_clear = kept.cache_clear  # type: ignore[attr-defined]
        return locked

    return decorate


@lru_cache(maxsize=1)
def _target() -> tuple[llvm.TargetMachine, str]:
    """The target machine of this process and a text that tells it from others."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    cpu = llvm.get_host_cpu_name()
    # Intel's AVX-512 machines are told to prefer 256 bits; our vectors are meant as written
    features = llvm.get_host_cpu_features().flatten()
    if "+avx512f" in features:
        features += ",-prefer-256-bit"
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=cpu, features=features, opt=2, reloc="default", codemodel="jitdefault", jit=True
    )
    return machine, f"{cpu} {features} llvmlite {llvmlite.__version__} LLVM {llvm.llvm_version_info}"


@lru_cache(maxsize=1)
def vector_width() -> int:
    """Doubles in one vector register of this machine."""
    features = llvm.get_host_cpu_features()
    if features.get("avx512f") and features.get("avx512dq"):
        return 8
    return 4 if features.get("avx2") else 2


def cache_folder() -> Path | None:
    """Where object files are kept; None where no folder of our own can be had. CTMOMENTS_CACHE names another."""
    named = os.environ.get("CTMOMENTS_CACHE")
    if named == "":
        return None
    if named:
        folder = Path(named)
    elif sys.platform == "win32":
        folder = Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData/Local")) / "ctmoments" / "cache"
    else:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ctmoments"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # machine code is only taken from a folder that nobody else can write to
        if hasattr(os, "getuid") and (folder.stat().st_uid != os.getuid() or folder.stat().st_mode & 0o022):
            return None
    except (OSError, RuntimeError):
        return None
    return folder


@built_once(maxsize=256)
def compile_function(text: str, name: str) -> Callable[[int], int]:
    """The function `name(pointer) -> int64` of a module. It releases the GIL while it runs."""
    machine, about = _target()
    key = hashlib.sha256(f"{about}\n{text}".encode()).hexdigest()
    folder = cache_folder()
    kept = folder / f"{key}.o" if folder else None
    code = _read(kept)
    if code is None:
        module = llvm.parse_assembly(text)
        module.verify()
        code = machine.emit_object(module)
        _write(kept, code)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(engine.get_function_address(name))
    _ENGINES.append(engine)  # code lives as long as its engine
    return function


_ENGINES: list[llvm.ExecutionEngine] = []


def _read(kept: Path | None) -> bytes | None:
    try:
        data = kept.read_bytes() if kept else b""
    except OSError:
        return None
    code = data[CHECKSUM:]
    return code if code and hashlib.sha256(code).digest() == data[:CHECKSUM] else None


def _write(kept: Path | None, code: bytes) -> None:
    """Keep an object file: written beside, then renamed, so that no reader sees half of it."""
    if kept is None:
        return
    try:
        with tempfile.NamedTemporaryFile(dir=kept.parent, delete=False) as file:
            file.write(hashlib.sha256(code).digest() + code)
        Path(file.name).replace(kept)
    except OSError:
        return
