"""Where targets come from: paths simulated in blocks and forgotten, or a moments dataset that exists.

In: a problem and a budget, or a dataset. Out: batches (unit coordinates, means, covariances or none, replicates), first
a pilot that stays in memory, then the rest, one after the other. Points and paths depend on the seed alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import xarray as xr

from ctmoments.errors import InputError, SimulationError, Status
from ctmoments.model.problem import Problem
from ctmoments.model.theta import as_theta
from ctmoments.progress import Report
from ctmoments.simulate.design import KINDS
from ctmoments.simulate.paths import simulate_paths
from ctmoments.simulate.streams import Purpose, generator

LAYER = 65_536  # points of one Latin layer and one block: 7 MB of the SIR's outputs


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

    def rows(self, chosen: np.ndarray | slice) -> Batch:
        """Some of the rows."""
        cov = None if self.cov is None else self.cov[chosen]
        return Batch(self.unit[chosen], self.mean[chosen], cov, self.replicates[chosen])


@dataclass(eq=False)
class Tally:
    """What a source has spent so far."""

    paths: int = 0
    events: int = 0
    failed: int = 0
    status: np.ndarray = field(default_factory=lambda: np.zeros(len(Status), np.int64))


@dataclass(frozen=True, eq=False, kw_only=True)
class PathSource:
    """One path at each of `paths` points: layers of Latin hypercubes, simulated block by block."""

    problem: Problem
    paths: int
    seed: int
    threads: int | None = None
    report: Report | None = None
    tally: Tally = field(default_factory=Tally)

    @property
    def rows(self) -> int:
        """Paths in all."""
        return self.paths

    def batches(self) -> Iterator[Batch]:
        """The pilot (half of the paths, one layer at most), then the rest."""
        first = min(max(self.paths // 2, 1), LAYER)
        counts = [first] + [min(LAYER, self.paths - begin) for begin in range(first, self.paths, LAYER)]
        begin = 0
        for layer, count in enumerate(counts):
            yield self._layer(layer, begin, count)
            begin += count

    def _layer(self, layer: int, begin: int, count: int) -> Batch:
        space = self.problem.space
        rng = generator(self.seed, Purpose.DESIGN, layer, list(KINDS).index("lhs"))
        theta = as_theta(self.problem, space.from_unit(KINDS["lhs"](rng, count, len(space.parameters), 0)))
        theta = theta.assign_coords(point=begin + np.arange(count))
        paths = simulate_paths(self.problem, theta, 1, self.seed, threads=self.threads, progress=False)
        status = paths["status"].values[:, 0]
        good = status <= Status.ABSORBED
        self.tally.paths += count
        self.tally.events += int(paths.attrs["events"])
        self.tally.failed += int((~good).sum())
        self.tally.status += np.bincount(status, minlength=len(Status))
        if self.report is not None:
            self.report(self.tally.paths)
        if not good.any():
            worst = Status(int(np.bincount(status).argmax()))
            raise SimulationError(f"all {count} paths of a block failed: {worst.text}.")
        values = paths.values[good, 0]
        return Batch(space.to_unit(theta.values[good]), values, None, np.ones(len(values)))


@dataclass(frozen=True, eq=False, kw_only=True)
class DataSource:
    """A moments dataset, in two halves so that each gives residuals to the other's mean."""

    problem: Problem
    data: xr.Dataset
    tally: Tally = field(default_factory=Tally)

    @property
    def rows(self) -> int:
        """Points of the dataset."""
        return self.data.sizes["point"]

    def batches(self) -> Iterator[Batch]:
        """Even rows, then odd rows; all at once where labels are exact. Rows with NaN moments are left out and told."""
        whole = read_dataset(self.problem, self.data)
        if len(whole.unit) < 2:
            raise InputError(f"`data` must hold at least 2 points with finite means, got {len(whole.unit)}.")
        if (whole.replicates == 0).all():
            yield whole
            return
        for part in (slice(0, None, 2), slice(1, None, 2)):
            yield whole.rows(part)


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
