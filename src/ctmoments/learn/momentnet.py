"""`MomentNet`: mean and covariance from single paths, by losses without bias, informed by linear noise.

In: paths at scattered values, one at each is best. Out: a `MomentMap`.

- Coverage: one path at each of B values, denser where paths are noisier (tilt) and towards the faces of the box (edge).
  SIR, 9·10⁴ paths, one network, two seeds: mean error 0.59 % with a uniform design, 0.50 % with this one.
- Mean: squared error, each value weighed by its noise. Covariance: squared error of L Lᵀ to products of residuals about
  a mean that has not seen the path. Both are minimised by the truth, whatever the paths' distribution.
- Frame: the mean's networks learn what the linear noise approximation misses, in its sizes (`noiseframe.py`). Its
  logarithms as further inputs did not help: 0.74 to 0.79 % against 0.59 without. The covariance's learn what a factor
  of low degree, regressed from the same paths, misses (`frame.py`). The approximation's own factor is worse than none:
  its correlations turn sharply where the infection peaks, the true ones do not, and networks spend themselves on that
  (12.8 % against 5.2 after equally long training). Gradients are noisy: batches of 2,048 instead of 512 took
  one network from 6.9 to 5.1 %.
- Ensemble: member i of g leaves out fold i, so that its residuals there are honest and the members' spread is a grouped
  jackknife: standard error (g - 1)/√g times their standard deviation. That counts the noise of the paths; the noise of
  the training itself is counted too often, so it errs to the safe side.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from typing import Any

import numpy as np
import xarray as xr

from ctmoments import __version__
from ctmoments.errors import InputError
from ctmoments.learn.indexset import index_set
from ctmoments.learn.members import crossfitted, network_of, rows_of, train_factors, train_means
from ctmoments.learn.noiseframe import NoiseFrame, frame_of_paths, noise_frame
from ctmoments.learn.outputs import deterministic_outputs
from ctmoments.learn.pilot import pilot_frame
from ctmoments.learn.recipe import Recipe
from ctmoments.learn.sources import Batch
from ctmoments.learn.tabulate import tabulated
from ctmoments.learn.validate import held_out, held_out_paths, judge
from ctmoments.model.problem import Problem
from ctmoments.predict.chebyshev import Chebyshev
from ctmoments.predict.combine import Exponential, Scaled
from ctmoments.predict.evaluator import Evaluator
from ctmoments.predict.moment_map import MomentMap
from ctmoments.predict.network import SizedFactor
from ctmoments.simulate.design import sample_design
from ctmoments.simulate.paths import simulate_paths
from ctmoments.simulate.streams import Purpose, generator

COV_RATE, COV_BATCH, COV_STEPS = 0.5, 4, 0.84  # the covariance's training, relative to the mean's
PILOT_TERMS, FRAME_TERMS = 66, 21  # of the covariance that the frame is taken from, and of the frame
CONTRAST = 4.0  # a design is at most this much denser or thinner than at its median


@dataclass(frozen=True, kw_only=True)
class MomentNet:
    """Settings. `steps` is the length of training for 9·10⁴ paths; it grows with the square root of their number."""

    members: int = 8
    hidden: tuple[int, ...] = (64, 64, 64)
    activation: str = "silu"
    learning_rate: float = 1e-2
    batch: int = 512
    steps: int = 6000
    tilt: float = 0.7
    edge: float = 0.3
    noise: bool = True  # use linear noise where it applies
    table: bool = True  # replace the ensemble by a table where that loses nothing

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", tuple(self.hidden))
        if self.members < 2:
            raise InputError(f"`members` must be at least 2: residuals and errors need them; got {self.members!r}.")
        if not 0 <= self.edge <= 1 or not 0 <= self.tilt <= 2 or self.steps < 1:
            raise InputError("`edge` must lie in [0, 1], `tilt` in [0, 2], and `steps` be positive.")
        _ = self.recipe(1000)

    def recipe(self, rows: int, covariance: bool = False) -> Recipe:
        """How a network is trained on so many paths."""
        rate, batch, steps = self.learning_rate, self.batch, self.steps * max(1.0, rows / 90_000) ** 0.5
        if covariance:
            rate, batch, steps = rate * COV_RATE, batch * COV_BATCH, steps * COV_STEPS
        return Recipe(
            hidden=self.hidden, activation=self.activation, learning_rate=rate, schedule="cosine", batch=batch,
            epochs=max(1, round(steps / max(1, rows // min(batch, rows)))),
        )  # fmt: skip

    def learn(
        self, problem: Problem, budget: int, seed: int, *, points: int | None = None, replicates: int | None = None,
        device: str = "cpu", threads: int | None = None, progress: bool | None = None,
    ) -> MomentMap:  # fmt: skip
        """A map from `budget` paths, simulated here, those that are kept aside to validate included."""
        options: dict[str, Any] = {"device": device, "threads": threads, "progress": progress}
        aside, spent = held_out(problem, held_out_paths(budget), seed, threads)
        training = budget - len(aside)
        map_ = learn_momentnet(problem, training, self, seed, points=points, replicates=replicates, **options)
        card = dict(map_.card) | {
            "paths": map_.card["paths"] + len(aside), "events": map_.card["events"] + spent.events,
            "validation": judge(map_, aside),
        }  # fmt: skip
        return replace(map_, card=card)

    def fit(
        self, problem: Problem, data: xr.Dataset, seed: int, *, validation: xr.Dataset | None = None,
        device: str = "cpu", threads: int | None = None, progress: bool | None = None,
    ) -> MomentMap:  # fmt: skip
        """A map from the paths that the attrs of `data` name: they are replayed."""
        if validation is not None:
            raise InputError("`validation` must be None for MomentNet: its folds judge each other.")
        paths = replay(problem, data, threads, progress)
        return fit_momentnet(problem, paths, self, seed, device=device, threads=threads, progress=progress)


def replay(problem: Problem, data: xr.Dataset, threads: int | None, progress: bool | None) -> xr.DataArray:
    """The paths behind a simulated moments dataset."""
    if data.attrs.get("source") != "simulated" or "seed" not in data.attrs or "purpose" not in data.attrs:
        raise InputError(
            "MomentNet learns from paths, so `data` must be simulated and its attrs must name seed and purpose; "
            f"got source {data.attrs.get('source')!r}. Use Spectral() or PaperMLP()."
        )
    purpose = Purpose[str(data.attrs["purpose"]).upper()]
    replicates = int(data["replicates"].max())
    return simulate_paths(
        problem, data["theta"], replicates, int(data.attrs["seed"]), purpose=purpose, threads=threads, progress=progress
    )


def tilted_design(
    problem: Problem, points: int, settings: MomentNet, frame: NoiseFrame | None, seed: int
) -> np.ndarray:
    """Values (point, parameter): a Sobol sequence, drawn towards the faces and thinned where paths are quiet."""
    space = problem.space
    grid = np.linspace(0, 1, 20_001)
    to_faces = (1 - settings.edge) * grid + settings.edge * (1 - np.arccos(2 * grid - 1) / np.pi)
    rng = generator(seed, Purpose.DESIGN, 1)
    draws = 2 * points + 64
    while True:
        unit = space.to_unit(sample_design(problem, draws, kind="sobol", seed=seed).values)
        unit = space.to_unit(space.from_unit(np.interp(unit, to_faces, grid)))
        kept = np.arange(len(unit))
        if frame is not None and settings.tilt > 0:
            noise = frame.relative_noise(unit)
            noise = np.clip(noise / np.median(noise), 1 / CONTRAST, CONTRAST) ** settings.tilt
            kept = np.flatnonzero(rng.random(len(unit)) < noise / CONTRAST**settings.tilt)
        if len(kept) >= points:
            return space.from_unit(unit[kept[:points]])
        draws = 2 * draws


def learn_momentnet(
    problem: Problem,
    budget: int,
    settings: MomentNet | None = None,
    seed: int = 0,
    *,
    points: int | None = None,
    replicates: int | None = None,
    deterministic: np.ndarray | None = None,
    device: str = "cpu",
    threads: int | None = None,
    progress: bool | None = None,
) -> MomentMap:
    """A map from `budget` paths: one at each value, unless `points` or `replicates` say otherwise."""
    settings = settings or MomentNet()
    deterministic = deterministic_outputs(problem) if deterministic is None else np.asarray(deterministic, bool)
    replicates = replicates or (1 if points is None else max(1, budget // points))
    points = points or budget // replicates
    frame = noise_frame(problem, np.flatnonzero(~deterministic)) if settings.noise else None
    theta = tilted_design(problem, points, settings, frame, seed)
    paths = simulate_paths(problem, theta, replicates, seed=seed, threads=threads, progress=progress)
    return fit_momentnet(
        problem, paths, settings, seed, deterministic=deterministic, frame=frame, device=device, threads=threads,
        progress=progress,
    )  # fmt: skip


def fit_momentnet(
    problem: Problem,
    paths: xr.DataArray,
    settings: MomentNet | None = None,
    seed: int = 0,
    *,
    deterministic: np.ndarray | None = None,
    frame: NoiseFrame | None = None,
    device: str = "cpu",
    threads: int | None = None,
    progress: bool | None = None,
) -> MomentMap:
    """A map from paths (point, replicate, output) that exist; failed ones are left out."""
    settings = settings or MomentNet()
    deterministic = deterministic_outputs(problem) if deterministic is None else np.asarray(deterministic, bool)
    active = np.flatnonzero(~deterministic)
    if not len(active):
        raise InputError("no output varies from path to path: there is nothing to learn. Solve the model instead.")
    rows = rows_of(problem, paths, settings.members, seed)
    if frame is None:
        frame = noise_frame(problem, active) if settings.noise else None
    if frame is None:
        frame = frame_of_paths(rows.unit, rows.values, active)
    options: dict[str, Any] = {"device": device, "threads": threads, "progress": progress}
    learned = len(rows.outside(0))
    means = train_means(rows, frame, settings.recipe(learned), seed, options)
    fitted = crossfitted(means, rows, settings.activation)
    fitted = frame.mean.values(rows.unit) + frame.size.values(rows.unit) * fitted
    batch = Batch(rows.unit, rows.values, None, np.ones(len(rows.unit)))
    pilot = pilot_frame(batch, active, index_set(rows.unit.shape[1], PILOT_TERMS), FRAME_TERMS, FRAME_TERMS)
    factors = train_factors(
        rows, fitted[:, active], frame, pilot, settings.recipe(learned, covariance=True), seed, options
    )
    spread = (settings.members - 1) / settings.members**0.5
    mean_part = Scaled(
        inner=network_of(means, settings.activation, spread, deterministic), size=frame.size, shift=frame.mean
    )
    inner = network_of(factors, settings.activation, spread)
    cov_part = SizedFactor(inner=inner, size=repeated(pilot.spread, len(active)), base=pilot.base)
    card = {
        "method": "MomentNet",
        "settings": asdict(settings) | {"hidden": list(settings.hidden)},
        "seed": seed,
        "paths": int(paths.sizes["point"] * paths.sizes["replicate"]),
        "events": int(paths.attrs.get("events", 0)),
        "training_paths": len(rows.unit),
        "frame": frame.source,
        "epochs": int(means.epochs[0]),
        "versions": {"ctmoments": __version__, "jax": version("jax"), "numpy": np.__version__},
    }
    if settings.table:
        mean_part, cov_part, told = tabulated(mean_part, cov_part, rows.unit.shape[1])
        card |= told
    return MomentMap(problem=problem, mean_part=mean_part, cov_part=cov_part, deterministic=deterministic, card=card)


def repeated(size: Evaluator, outputs: int) -> Exponential:
    """A size of one output, as that of each of several."""
    assert isinstance(size, Exponential) and isinstance(size.inner, Chebyshev)
    coefficients = np.repeat(size.inner.coefficients, outputs, axis=1)
    return Exponential(inner=Chebyshev(index=size.inner.index, coefficients=coefficients))
