"""Exact moments and distributions: the master equation solved, with the probability let go and what it can do.

In: a `Problem`, parameter values. Out: the dataset of `simulate_moments` with zero standard errors and a bound on the
numerical error (`exact_moments`), or the distribution of each output (`exact_distribution`).

The solver follows the distribution in a window of states that moves with it (`exact_sweep.py`), so the space may be
infinite. `tolerance` is the error to aim for, relative to the size of mean and covariance; it sets the probability
that may leave the windows, `LET_GO` times itself. What is reported is measured, not aimed for: `lost_mass` is the
probability of all paths that left, and where the outputs are bounded, by range R around the mean, the errors are at
most lost_mass R (mean) and lost_mass R R' (covariance): attrs `error_bound_kind` is "rigorous". Elsewhere the job is
done a second time with 100 times the loss; the bound is the difference, and what the lost paths would add at twice
the distance of the farthest state held: kind "estimated".
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from ctmoments.data import moments_dataset, variable
from ctmoments.errors import InputError, ModelError, SizeError
from ctmoments.model.expressions import evaluate
from ctmoments.model.problem import Problem
from ctmoments.model.theta import as_theta
from ctmoments.moments.exact_blocks import centred_outputs, second_moments
from ctmoments.moments.exact_chain import Chain
from ctmoments.moments.exact_lattice import make_lattice
from ctmoments.moments.exact_states import output_ranges, survey_job
from ctmoments.moments.exact_sweep import ForwardSweep, Passage
from ctmoments.progress import progress_bar
from ctmoments.simulate.lanes import Stopped, thread_count

LET_GO = 1e-2  # probability let go, for each unit of relative tolerance
COARSER = 100.0  # factor of the loss in the second run that estimates the error of unbounded outputs
BEYOND = 2.0  # where the lost paths of unbounded outputs are taken to be, in distances of the farthest state held
MAX_STATES = 2_000_000
FORECAST_SLACK = 3.0  # a forecast has to be this far beyond `max_states` to refuse a job before it starts
TOLERANCES = (1e-11, 1e-2)


@dataclass(frozen=True)
class PointMoments:
    """Moments at one parameter value: (output,), (output, output), and how well they are known."""

    mean: np.ndarray
    cov: np.ndarray
    mean_bound: np.ndarray
    cov_bound: float
    lost: float
    states: int


def exact_moments(
    problem: Problem,
    theta: Any,
    *,
    tolerance: float = 1e-8,
    device: str = "cpu",
    max_states: int = MAX_STATES,
    threads: int | None = None,
    progress: bool | None = None,
) -> xr.Dataset:
    """Solve the master equation for mean and multi-time covariance of all outputs at each parameter value.

    `theta` is (point, parameter) in any of the usual forms. The dataset is that of `simulate_moments`, errors zero,
    replicates 0, with `mean_bound`, `cov_bound` (Frobenius), `lost_mass` and `states` beside them.
    A job whose distribution needs more than `max_states` states at once is refused with a `SizeError`, by a forecast
    before it starts where that is clear, else when it gets there.

    >>> from ctmoments.model.model import Model
    >>> from ctmoments.model.space import Space
    >>> model = Model({"X": 5}, ["g"], ["X -> 0 : g*X"])
    >>> data = exact_moments(Problem(model, Space(g=(0.1, 1)), "X", [1, 2]), 0.5)
    >>> data["mean"].values.round(6).tolist(), data.attrs["error_bound_kind"]
    ([[3.032653, 1.839397]], 'rigorous')
    """
    job = prepare(problem, theta, tolerance, device, max_states)
    begin = time.perf_counter()
    solved = over_points(job, job.moments, threads, progress, "exact moments")
    zero = np.zeros((len(solved), len(job.times) * len(job.weights)))
    data = moments_dataset(
        problem, job.theta, np.array([s.mean for s in solved]), np.array([s.cov for s in solved]),
        zero, np.zeros((*zero.shape, zero.shape[1])), source="exact",
        attrs={
            "seconds": time.perf_counter() - begin,
            "tolerance": tolerance,
            "error_bound_kind": "rigorous" if job.rigorous else "estimated",
        },
    )  # fmt: skip
    return data.assign(
        mean_bound=variable("mean_bound", [s.mean_bound for s in solved]),
        cov_bound=variable("cov_bound", [s.cov_bound for s in solved]),
        lost_mass=variable("lost_mass", [s.lost for s in solved]),
        states=variable("states", [s.states for s in solved]),
    )


@dataclass(frozen=True)
class Job:
    """An exact job after the gate: what the workers for each point need."""

    problem: Problem
    theta: xr.DataArray
    columns: np.ndarray
    starts: np.ndarray
    weights: np.ndarray  # (components, species), whole numbers
    scales: np.ndarray  # (components,)
    times: np.ndarray
    budget: float
    max_states: int
    order: list[int]
    ranges: Mapping[tuple, tuple[np.ndarray, np.ndarray] | None]

    @property
    def rigorous(self) -> bool:
        return all(found is not None for found in self.ranges.values())

    def observe(self, states: np.ndarray) -> np.ndarray:
        return self.scales[:, None] * (self.weights @ states)

    def passage(self, point: int, budget: float, report: Callable[[float], None]) -> Passage:
        """Solve the forward sweep at one point."""
        chain = chain_of(self.problem, self.columns[point], self.starts[point])
        lattice = make_lattice(chain.start, chain.changes, self.order)
        sweep = ForwardSweep(chain, lattice, max(self.times[-1], 1e-300), budget, self.max_states)
        for duration in np.diff(self.times, prepend=0.0):
            sweep.advance(float(duration), report)
        return sweep.passage

    def moments(self, point: int, report: Callable[[float], None]) -> PointMoments:
        """Solve one point; where outputs have no known range, twice."""
        fine = self._moments_once(point, self.budget, report)
        if self.ranges[tuple(self.starts[point])] is not None:
            return fine
        coarse = self._moments_once(point, self.budget * COARSER, report)
        mean_bound = np.abs(fine.mean - coarse.mean) + fine.mean_bound
        cov_bound = float(np.linalg.norm(fine.cov - coarse.cov)) + fine.cov_bound
        return PointMoments(fine.mean, fine.cov, mean_bound, cov_bound, fine.lost, fine.states)

    def _moments_once(self, point: int, budget: float, report: Callable[[float], None]) -> PointMoments:
        horizon = max(self.times[-1], 1e-300)
        passage = self.passage(point, budget, lambda used: report(0.3 * used / horizon))
        total = max(sum(s.cost for segments in passage.intervals for s in segments), 1.0) * len(self.times) / 3
        chain = chain_of(self.problem, self.columns[point], self.starts[point])
        mean, centred = centred_outputs(passage, self.observe)
        second = second_moments(chain, passage, centred, lambda cost: report(0.7 * cost / total / len(mean)))
        outputs = mean.size
        cov = second.reshape(outputs, outputs)
        spread, uncertain = self._spread(point, mean, passage)
        return PointMoments(
            mean.ravel(), (cov + cov.T) / 2, uncertain * spread,
            float(uncertain * (1 + uncertain) * (spread @ spread)), passage.lost, passage.states,
        )  # fmt: skip

    def _spread(self, point: int, mean: np.ndarray, passage: Passage) -> tuple[np.ndarray, float]:
        """Return how far each output can lie from its mean, and the probability that is not accounted for.

        Rounding counts as probability: each power may misplace 2^-52 of it. Without a range, the paths that left are
        taken to lie `BEYOND` times as far out as the farthest state that was held.
        """
        found = self.ranges[tuple(self.starts[point])]
        uncertain = passage.lost + 2 * passage.rounding
        if found is None:
            held = [there.window.states[:, there.values[there.window.positions] > 0] for there in passage.distributions]
            far = [np.abs(self.observe(x) - m[:, None]).max(axis=1) for x, m in zip(held, mean.T, strict=True)]
            return BEYOND * np.array(far).T.ravel(), uncertain
        low, high = (self.scales * bound for bound in found)
        low, high = np.minimum(low, high)[:, None], np.maximum(low, high)[:, None]
        return np.maximum(mean - low, high - mean).ravel(), uncertain


def chain_of(problem: Problem, column: np.ndarray, start: np.ndarray) -> Chain:
    """Return the chain of a problem at one parameter value (in the order of `model.parameters`)."""
    model = problem.model
    names = tuple(model.species)
    parameters = dict(zip(model.parameters, column.tolist(), strict=True))

    def rates(states: np.ndarray) -> np.ndarray:
        values = parameters | dict(zip(names, states.astype(np.float64), strict=True))
        return np.stack([np.broadcast_to(evaluate(rate, values), states.shape[1]) for rate in model.rates])

    return Chain(start, model.stoichiometry, rates, names, [str(reaction) for reaction in model.reactions])


def prepare(problem: Problem, theta: Any, tolerance: float, device: str, max_states: int) -> Job:
    """Check what came in, and find what all points share."""
    if device != "cpu":
        raise InputError(f'`device` must be "cpu", got {device!r}: the exact solver has no other yet.')
    if not TOLERANCES[0] <= tolerance <= TOLERANCES[1]:
        raise InputError(f"`tolerance` must lie between {TOLERANCES[0]:g} and {TOLERANCES[1]:g}, got {tolerance!r}.")
    if getattr(problem, "model", None) is None:
        raise ModelError("`problem` must have a model with rates, got one made from a callable. Simulate it instead.")
    theta = as_theta(problem, theta)
    columns = problem.parameter_columns(theta)
    starts = problem.initial_states(theta)
    weights = np.array([component.weights for component in problem.components], np.int64)
    scales = np.array([component.scale for component in problem.components], np.float64)
    chains = [chain_of(problem, columns[p], starts[p]) for p in np.unique(starts, axis=0, return_index=True)[1]]
    ranges = {tuple(chain.start): output_ranges(chain, weights) for chain in chains}
    times = np.array(problem.times, np.float64)
    survey = survey_job(chains[0], float(times[-1]))
    if survey.states > FORECAST_SLACK * max_states:
        seconds = survey.seconds(len(problem.output_times))
        raise SizeError(
            f"The distribution needs about {survey.states:,.0f} states at once ({seconds:.1g} s a point), more than "
            f"max_states = {max_states:,}. Raise `max_states`, shorten the times, or simulate instead."
        )
    return Job(
        problem, theta, columns, starts, weights, scales, times, LET_GO * tolerance, max_states, survey.order, ranges
    )  # fmt: skip


def over_points(job: Job, solve: Callable, threads: int | None, progress: bool | None, what: str) -> list:
    """Solve all points, several at once; the compiled step leaves the interpreter free."""
    points = job.theta.sizes["point"]
    workers = min(points, thread_count(threads))
    done, stopped = 0.0, False
    with progress_bar(what, points, "points", progress) as bar:

        def report(share: float) -> None:
            nonlocal done
            if stopped:
                raise Stopped
            done += share
            bar(min(done, points))

        if workers == 1:
            return [solve(point, report) for point in range(points)]
        with ThreadPoolExecutor(workers) as pool:
            futures = [pool.submit(solve, point, report) for point in range(points)]
            try:
                return [future.result() for future in futures]
            except BaseException:  # Ctrl-C too: without this the pool would finish every point first
                stopped = True
                pool.shutdown(wait=False, cancel_futures=True)
                raise
