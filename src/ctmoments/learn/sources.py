"""Where targets come from: points that are simulated here, or a moments dataset that exists.

In: a problem and a budget, or a dataset. Out: rows (unit coordinates, means, covariances or none, replicates), in an
order without pattern. Points and paths depend on the seed alone, whatever a store holds already.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr

from ctmoments.errors import FileError, InputError, SimulationError
from ctmoments.learn.scatter import Density, lay_out, scatter
from ctmoments.model.problem import Problem
from ctmoments.model.theta import as_theta
from ctmoments.moments.estimate import simulate_moments
from ctmoments.simulate.campaign import stored_design
from ctmoments.simulate.store import Store
from ctmoments.simulate.streams import Purpose, generator

PILOT_SHARE = 4  # one point in four is drawn without knowing the noise
PILOT, REST = 0, 1  # labels of the two designs
BLOCK_NUMBERS = 20_000_000  # of covariances simulated at once: 160 MB


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows of targets. `cov` is None where each row is one path; `replicates` is 0 where labels are exact."""

    unit: np.ndarray  # (n, parameter)
    mean: np.ndarray  # (n, output)
    cov: np.ndarray | None  # (n, output, output)
    replicates: np.ndarray  # (n,)

    @property
    def weights(self) -> np.ndarray:
        """How many paths each row stands for; 1 where labels are exact."""
        return np.maximum(self.replicates, 1.0)

    @property
    def exact(self) -> bool:
        """Whether labels are exact."""
        return bool((self.replicates == 0).all())

    def rows(self, chosen: np.ndarray | slice) -> Batch:
        """Some of the rows."""
        cov = None if self.cov is None else self.cov[chosen]
        return Batch(self.unit[chosen], self.mean[chosen], cov, self.replicates[chosen])


def join(batches: Iterable[Batch]) -> Batch:
    """The rows of all, in order."""
    parts = list(batches)
    if len(parts) == 1:
        return parts[0]
    covs = [part.cov for part in parts if part.cov is not None]
    return Batch(
        np.concatenate([part.unit for part in parts]), np.concatenate([part.mean for part in parts]),
        np.concatenate(covs) if covs else None, np.concatenate([part.replicates for part in parts]),
    )  # fmt: skip


@dataclass(frozen=True)
class Spent:
    """What simulation has cost."""

    paths: int = 0
    events: int = 0
    failed: int = 0

    def plus(self, other: Spent) -> Spent:
        """Both together."""
        return Spent(self.paths + other.paths, self.events + other.events, self.failed + other.failed)


@dataclass(frozen=True, eq=False, kw_only=True)
class PathSource:
    """Points of the box with `replicates` paths at each. With `store` the paths are a campaign that goes on there."""

    problem: Problem
    points: int
    replicates: int
    seed: int
    store: Path | None = None
    may_hold_more: bool = False  # replicates in the store than are asked for
    threads: int | None = None
    progress: bool | None = False

    def rows(self, density_of: Callable[[Batch], Density]) -> tuple[xr.DataArray, Batch, Spent]:
        """All points, their rows, and the cost: a pilot of every fourth point, then those that its noise asks for.

        A store that holds all points knows where they are.
        """
        first = min(max(self.points // PILOT_SHARE, 2), self.points)
        held, replicates = self._held()
        if held is not None and len(held) not in (first, self.points):
            raise FileError(f"{self.store} holds {len(held)} points, asked were {self.points}. Take another store.")
        if held is not None and len(held) == self.points:
            return held, *self.simulate(held, max(replicates if self.may_hold_more else 0, self.replicates))
        space = self.problem.space
        theta = self._labelled(scatter(space, first, self.seed, PILOT))
        pilot, spent = self.simulate(theta, self.replicates)
        if self.points == first:
            return theta, pilot, spent
        rest = scatter(space, self.points - first, self.seed, REST, density_of(pilot))
        theta = self._labelled(np.concatenate([theta.values, rest]))
        if self.store is not None:
            return theta, *self.simulate(theta, self.replicates)
        others, more = self.simulate(theta[first:], self.replicates)
        return theta, join([pilot, others]), spent.plus(more)

    def simulate(self, theta: xr.DataArray, replicates: int) -> tuple[Batch, Spent]:
        """Rows at these points, and what all their paths cost."""
        size = max(BLOCK_NUMBERS // len(self.problem.output_components) ** 2, 1)
        if self.store is not None:
            size = len(theta)
        parts, spent = [], Spent()
        for low in range(0, len(theta), size):
            part, cost = self._block(theta[low : low + size], replicates)
            parts.append(part)
            spent = spent.plus(cost)
        return join(parts), spent

    def _block(self, theta: xr.DataArray, replicates: int) -> tuple[Batch, Spent]:
        data = simulate_moments(
            self.problem, theta, replicates, self.seed, store=self.store, resume=self.store is not None,
            on_failure="drop", threads=self.threads, progress=self.progress,
        )  # fmt: skip
        counts = data["replicates"].values
        good = np.flatnonzero(counts >= 2)
        if not len(good):
            raise SimulationError(f"all {data.attrs['paths']} paths of a block failed; simulate_moments says why.")
        batch = Batch(
            self.problem.space.to_unit(theta.values[good]), data["mean"].values[good], data["cov"].values[good],
            counts[good].astype(float),
        )  # fmt: skip
        return batch, Spent(*(int(data.attrs[name]) for name in ("paths", "events", "failed_paths")))

    def _held(self) -> tuple[xr.DataArray | None, int]:
        """The points of the store and the replicates that it was last asked for; nothing where there is none."""
        if self.store is None or not self.store.exists():
            return None, 0
        with closing(Store(self.store)) as held:
            if held.empty:
                return None, 0
            return self._labelled(stored_design(held).values), int(held.meta("replicates"))

    def _labelled(self, values: np.ndarray) -> xr.DataArray:
        return as_theta(self.problem, values).assign_coords(point=np.arange(len(values)))


def path_source(problem: Problem, paths: int, terms: int, seed: int, **more) -> PathSource:
    """A source of at most `paths` paths for a regression with so many terms."""
    points, replicates = lay_out(paths, terms, len(problem.output_components))
    return PathSource(problem=problem, points=points, replicates=replicates, seed=seed, **more)


def data_rows(problem: Problem, data: xr.Dataset) -> Batch:
    """The rows of a moments dataset. Those with NaN moments are left out and told."""
    whole = read_dataset(problem, data)
    if len(whole.unit) < 2:
        raise InputError(f"`data` must hold at least 2 points with finite means, got {len(whole.unit)}.")
    return whole.rows(generator(0, Purpose.RESAMPLING, 1).permutation(len(whole.unit)))


def read_dataset(problem: Problem, data: xr.Dataset) -> Batch:
    """All usable rows of a moments dataset."""
    for name in ("theta", "mean", "cov", "replicates"):
        if name not in data:
            raise InputError(f"`data` must be a moments dataset with {name!r}, got {', '.join(map(str, data))}.")
    outputs = len(problem.output_components)
    if data["mean"].shape[1] != outputs:
        raise InputError(f"`data` must hold the {outputs} outputs of its problem, got {data['mean'].shape[1]}.")
    replicates = data["replicates"].values.astype(float)
    exact = data.attrs.get("source") in ("exact", "lna")
    single = not exact and bool((replicates <= 1).all())
    good = np.array(np.isfinite(data["mean"].values).all(axis=1))
    if not single:
        good = good & np.isfinite(data["cov"].values).all(axis=(1, 2))
    if not good.all():
        warnings.warn(f"{(~good).sum()} of {len(good)} points have no finite moments and are left out.", stacklevel=2)
    cov = None if single else data["cov"].values[good]
    counts = np.zeros(good.sum()) if exact else np.maximum(replicates[good], 1.0)
    unit = np.clip(problem.space.to_unit(as_theta(problem, data["theta"]).values[good]), 0.0, 1.0)
    return Batch(unit, data["mean"].values[good], cov, counts)
