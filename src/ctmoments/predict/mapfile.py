"""Maps on disk: one safetensors file, its model card as JSON in the header; never pickle. See docs/mapfile.md.

In: a map or a path. Out: a file or a map. A file that is foreign, damaged, truncated, not finite or of the wrong
shapes is refused in one line.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any, cast

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from ctmoments.errors import FileError, InputError
from ctmoments.model.toml import problem_from_toml
from ctmoments.predict.chebyshev import Chebyshev
from ctmoments.predict.combine import Average, Exponential, Scaled
from ctmoments.predict.covariance import FactorCovariance, MatrixCovariance
from ctmoments.predict.evaluator import Covariance, pack, unpack
from ctmoments.predict.moment_map import MomentMap
from ctmoments.predict.network import Network, SizedFactor

FORMAT = "ctmoments map"
VERSION = 1
KINDS: dict[str, type] = {
    kind.kind: kind
    for kind in (Chebyshev, Exponential, Scaled, Average, MatrixCovariance, FactorCovariance, Network, SizedFactor)
}


def save_map(map_: MomentMap, path: str | Path) -> None:
    """Write a map: beside first, then renamed, so that no reader sees half of it."""
    path = Path(path)
    mean, arrays = pack(map_.mean_part, "mean")
    cov, more = pack(map_.cov_part, "cov")
    header = {
        "format": FORMAT,
        "version": VERSION,
        "problem": map_.problem.to_toml(),
        "mean": mean,
        "cov": cov,
        "card": dict(map_.card),
    }
    arrays |= more | {"deterministic": map_.deterministic.astype(np.uint8)}
    text = json.dumps(header, allow_nan=False, ensure_ascii=True)
    with tempfile.NamedTemporaryFile(dir=path.absolute().parent, suffix=".part", delete=False) as file:
        beside = Path(file.name)
    try:
        save_file(arrays, beside, {"ctmoments": text})
        umask = os.umask(0)
        os.umask(umask)
        beside.chmod(0o666 & ~umask)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def load_map(path: str | Path) -> MomentMap:
    """Read a map that `MomentMap.save` wrote."""
    path = Path(path)
    if not path.is_file():
        raise FileError(f"{path} must be a map file, and there is none.")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = cast(dict[str, str] | None, file.metadata())
            if not metadata or "ctmoments" not in metadata:
                raise FileError(f"{path} must be a map of ctmoments; it is some other safetensors file.")
            header = _read_header(metadata["ctmoments"], path)
            arrays = {name: _finite(file.get_tensor(name), name, path) for name in file.keys()}
    except (SafetensorError, OSError, TypeError, ValueError) as error:
        if isinstance(error, FileError):
            raise
        raise FileError(f"{path} must be a whole safetensors file: {_one_line(error)}.") from None
    place = str(path)
    mean = unpack(header["mean"], arrays, KINDS, f"{place}: mean")
    cov = unpack(header["cov"], arrays, KINDS, f"{place}: cov")
    if not hasattr(cov, "factor"):
        raise FileError(f"{place}: `cov` must be a covariance, got {cov.kind!r}.")
    try:
        problem = problem_from_toml(header["problem"], f"{place}: problem")
        deterministic = arrays["deterministic"].astype(bool)
        map_ = MomentMap(
            problem=problem, mean_part=mean, cov_part=cast(Covariance, cov), deterministic=deterministic,
            card=header["card"],
        )  # fmt: skip
        _try_out(map_)
    except KeyError as error:
        raise FileError(f"{place} must hold the array {error}.") from None
    except (InputError, ValueError, IndexError, TypeError) as error:
        raise FileError(f"{place}: {_one_line(error)}") from None
    return map_


def _try_out(map_: MomentMap) -> None:
    """One value in the middle of the box: parts made for another number of parameters show here."""
    middle = np.full((1, len(map_.problem.space.parameters)), 0.5)
    for part, dims in ((map_.mean_part, 2), (map_.cov_part, 3)):
        values = part.values(middle)
        if values.ndim != dims or not np.isfinite(values).all():
            raise FileError(f"{part.kind!r} must give finite values of {dims} dims.")


def _read_header(text: str, path: Path) -> dict[str, Any]:
    try:
        header = json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        raise FileError(f"{path}: the model card must be JSON.") from None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise FileError(f"{path} must be a map of ctmoments, and its header says otherwise.")
    if header.get("version") != VERSION:
        raise FileError(f"{path} must have version {VERSION} of the format, got {str(header.get('version'))[:20]}.")
    for key, kind in (("problem", str), ("mean", dict), ("cov", dict), ("card", dict)):
        if not isinstance(header.get(key), kind):
            raise FileError(f"{path}: the header must hold {key!r} as {kind.__name__}.")
    return header


def _finite(array: np.ndarray, name: str, path: Path) -> np.ndarray:
    if not np.isfinite(array).all():
        raise FileError(f"{path}: the array {name[:60]!r} must be finite.")
    array.flags.writeable = False
    return array


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200].rstrip(".")
