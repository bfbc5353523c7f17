"""Designs: which parameter values to simulate. Drawn in the unit cube, then mapped by the space.

In: a problem or space, a number of points, a kind, a seed. Out: a DataArray (point, parameter) whose attrs tell kind,
seed and layers, so that more points can be added later without moving those that are there.

- `lhs`: Latin hypercube as the paper defines it: each coordinate cut into as many equal strata as points, one uniform
  draw in each, the coordinates paired by independent random permutations. More points are a new Latin layer.
- `sobol`: scrambled Sobol sequence (Owen); more points continue it.
- `uniform`: independent draws; more points continue them.
- `grid`: the centres of equal cells, k along each of p parameters, k^p points; the last parameter runs fastest.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import xarray as xr

from ctmoments.data import attr_value, require_memory
from ctmoments.errors import ThetaError, nearest
from ctmoments.model.callable import CallableProblem
from ctmoments.model.problem import Problem
from ctmoments.model.space import Space
from ctmoments.model.theta import as_theta
from ctmoments.simulate.streams import Purpose, check_seed, generator


def sample_design(
    problem: Problem | CallableProblem | Space,
    points: int,
    kind: str = "lhs",
    seed: int = 0,
    purpose: Purpose = Purpose.DESIGN,
    extend: xr.DataArray | None = None,
) -> xr.DataArray:
    """Parameter values that cover the space: (point, parameter).

    `extend` is a whole earlier design of the same kind, seed and purpose; `points` more are added after it.

    >>> theta = sample_design(Space(a=(0, 1), b=(10, 20)), points=5, seed=1)
    >>> sorted((theta.sel(parameter="b").values - 10) // 2)
    [np.float64(0.0), np.float64(1.0), np.float64(2.0), np.float64(3.0), np.float64(4.0)]
    """
    space = problem if isinstance(problem, Space) else problem.space
    if isinstance(points, bool) or not isinstance(points, int | np.integer) or points < 1:
        raise ThetaError(f"`points` must be a whole number of at least 1, got {points!r}.")
    require_memory("This design", 48.0 * points * len(space.parameters))
    if kind not in KINDS:
        raise ThetaError(f"`kind` must be one of {', '.join(KINDS)}, got {kind!r}. {nearest(str(kind), KINDS)}")
    record = {
        "design_kind": kind,
        "design_seed": attr_value(check_seed(seed)),
        "design_purpose": Purpose(purpose).name.lower(),
    }
    earlier = None if extend is None else _check_earlier(space, extend, record)
    layers = [] if earlier is None else json.loads(earlier.attrs["design_layers"])
    rng = generator(seed, purpose, len(layers) if kind == "lhs" else 0, list(KINDS).index(kind))
    values = space.from_unit(KINDS[kind](rng, int(points), len(space.parameters), sum(layers)))
    labels = np.arange(len(values))
    if earlier is not None:
        values = np.concatenate([earlier.values, values])
        labels = np.concatenate([earlier["point"].values, earlier["point"].values.max() + 1 + labels])
    theta = as_theta(space, values).assign_coords(point=labels)
    return theta.assign_attrs(record | {"design_layers": json.dumps([*layers, int(points)])})


def _latin(rng: np.random.Generator, points: int, dimensions: int, before: int) -> np.ndarray:
    strata = np.stack([rng.permutation(points) for _ in range(dimensions)], axis=1)
    return (strata + rng.random((points, dimensions))) / points


def _sobol(rng: np.random.Generator, points: int, dimensions: int, before: int) -> np.ndarray:
    from scipy.stats import qmc  # 0.8 s to import

    whole = int(before + points - 1).bit_length()  # a power of two is what the sequence balances at
    spawning = np.random.default_rng(rng.integers(2**32, size=4))  # scipy spawns from it; a keyed Philox cannot
    return qmc.Sobol(dimensions, scramble=True, rng=spawning).random_base2(whole)[before : before + points]


def _uniform(rng: np.random.Generator, points: int, dimensions: int, before: int) -> np.ndarray:
    return rng.random((before + points, dimensions))[before:]


def _grid(rng: np.random.Generator, points: int, dimensions: int, before: int) -> np.ndarray:
    if before:
        raise ThetaError("a grid must be drawn whole; `extend` is for lhs, sobol and uniform.")
    along = round(points ** (1 / dimensions))
    if along**dimensions != points:
        along = int(points ** (1 / dimensions))
        raise ThetaError(
            f"`points` of a grid over {dimensions} parameters must be a whole number to the power {dimensions}, "
            f"got {points}. Nearest: {along**dimensions} or {(along + 1) ** dimensions}."
        )
    centres = (np.arange(along) + 0.5) / along
    return np.stack([axis.ravel() for axis in np.meshgrid(*[centres] * dimensions, indexing="ij")], axis=1)


KINDS: dict[str, Callable[[np.random.Generator, int, int, int], np.ndarray]] = {
    "lhs": _latin,
    "sobol": _sobol,
    "uniform": _uniform,
    "grid": _grid,
}


def _check_earlier(space: Space, extend: xr.DataArray, record: dict) -> xr.DataArray:
    if not isinstance(extend, xr.DataArray) or "design_layers" not in extend.attrs:
        raise ThetaError("`extend` must be a design of sample_design, with its attrs; got something else.")
    for key, value in record.items():
        if extend.attrs.get(key) != value:
            word = key.removeprefix("design_")
            raise ThetaError(
                f"`extend`: its {word} must be that of the new points, {value!r}, got {extend.attrs.get(key)!r}."
            )
    earlier = as_theta(space, extend, strict=True)
    if earlier.sizes["point"] != sum(json.loads(earlier.attrs["design_layers"])):
        raise ThetaError(
            f"`extend` must be a whole design of {sum(json.loads(earlier.attrs['design_layers']))} points, "
            f"got {earlier.sizes['point']}."
        )
    return earlier
