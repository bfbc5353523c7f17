"""`PaperMLP`: the paper's recipe to the letter, the reference that every other learner is compared with.

In: moments datasets (simulated), a seed. Out: a `MomentMap` of two separate networks: one for the mean, one for the
lower triangle of the Cholesky factor.

Where the paper is silent we chose what reproduces its figures (docs/measurements.md): PyTorch's default
initialisation; validation on N/5 fresh values at the same M; the last partial batch dropped; best weights restored.
The units of the loss were chosen after the fact, each network's by its figure: ten runs each in raw and in standardised
units gave a mean error of 3.7 and 4.0 % at 15 × 6000 (the paper 3.2), a covariance error of 7.7 and 8.8 % at 200 × 400
(the paper 8.8). Hence raw for the mean, standardised for the covariance; `mean_units` and `cov_units` decide.
Its designs, without other wishes, follow its power laws.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

import numpy as np
import xarray as xr

from ctmoments import __version__
from ctmoments.errors import InputError
from ctmoments.learn.members import weighted_error
from ctmoments.learn.outputs import deterministic_outputs
from ctmoments.learn.paper_design import (
    CASE_COVARIANCE,
    CASE_MEAN,
    COVARIANCE_LAW,
    MEAN_LAW,
    TRAINING,
    fresh_validation,
    split_budget,
)
from ctmoments.learn.recipe import Recipe
from ctmoments.learn.targets import cholesky_targets
from ctmoments.model.problem import Problem
from ctmoments.moments.estimate import simulate_moments
from ctmoments.predict.covariance import FactorCovariance
from ctmoments.predict.moment_map import MomentMap
from ctmoments.predict.network import Network
from ctmoments.simulate.design import sample_design

MEAN, COVARIANCE = 0, 1  # labels: where the two networks draw their weights
UNITS = ("raw", "standardised")  # of the loss: squares of outputs as they are, or each in its own spread


@dataclass(frozen=True, kw_only=True)
class PaperMLP:
    """The paper's settings; `correct_bias` divides out the leading bias of the Cholesky target (not in the paper)."""

    hidden: tuple[int, ...] = (128, 128, 128)
    dropout: float = 0.05
    learning_rate: float = 1e-3
    weight_decay: float = 1e-5
    batch: int = 64
    patience: int = 50
    epochs: int = 5000  # a limit that early stopping has not reached
    mean_units: str = "raw"
    cov_units: str = "standardised"
    correct_bias: bool = False

    def __post_init__(self) -> None:
        for name in ("mean_units", "cov_units"):
            if getattr(self, name) not in UNITS:
                raise InputError(f"`{name}` must be one of {', '.join(UNITS)}, got {getattr(self, name)!r}.")
        object.__setattr__(self, "hidden", tuple(self.hidden))
        _ = self.recipe

    @property
    def recipe(self) -> Recipe:
        """How both networks are trained."""
        settings = asdict(self)
        for name in ("mean_units", "cov_units", "correct_bias"):
            del settings[name]
        return Recipe(activation="relu", **settings)

    def learn(
        self, problem: Problem, budget: int, seed: int, *, points: int | None = None, replicates: int | None = None,
        device: str = "cpu", threads: int | None = None, progress: bool | None = None,
    ) -> MomentMap:  # fmt: skip
        """A map from `budget` paths, simulated here, those of the validation included."""
        return learn_paper(
            problem, budget, self, seed, points=points, replicates=replicates, device=device, threads=threads,
            progress=progress,
        )  # fmt: skip

    def fit(
        self, problem: Problem, data: xr.Dataset, seed: int, *, validation: xr.Dataset | None = None,
        device: str = "cpu", threads: int | None = None, progress: bool | None = None,
    ) -> MomentMap:  # fmt: skip
        """A map from moments that exist."""
        return fit_paper(
            problem, data, self, seed, validation=validation, device=device, threads=threads, progress=progress
        )


@dataclass(frozen=True)
class Samples:
    """What one network learns from and is judged by: unit coordinates (point, parameter), values (point, output)."""

    unit: np.ndarray
    values: np.ndarray
    judged_unit: np.ndarray
    judged_values: np.ndarray


def train_column(
    samples: Sequence[Samples],
    settings: PaperMLP,
    addresses: Sequence[tuple[int, int]],
    *,
    units: str = "standardised",
    device: str = "cpu",
    threads: int | None = None,
    progress: bool | None = None,
    what: str = "training",
) -> tuple[list[Network], np.ndarray]:
    """Train a network on each of the samples, which are of one size; the networks, and their epochs."""
    from ctmoments.learn.train import train_networks

    inputs, targets, weights, scales, rows, judged, filled = [], [], [], [], [], [], 0
    for each in samples:
        x_shift, x_scale = standard(each.unit)
        x_scale = np.where(x_scale > 0, x_scale, 1.0)
        y_shift, y_scale = standard(each.values)  # a constant output: scale 0, so it is predicted as it is
        scales.append((x_shift, x_scale, y_shift, y_scale))
        importance = y_scale**2 / max(np.mean(y_scale**2), 1e-300) if units == "raw" else np.ones(len(y_scale))
        for unit, values, place in (
            (each.unit, each.values, rows),
            (each.judged_unit, each.judged_values, judged),
        ):
            inputs.append((unit - x_shift) / x_scale)
            targets.append((values - y_shift) / np.where(y_scale > 0, y_scale, 1.0))
            weights.append(np.broadcast_to(importance, values.shape))
            place.append(np.arange(filled, filled + len(unit)))
            filled += len(unit)
    outputs = samples[0].values.shape[1]
    trained = train_networks(
        settings.recipe, np.concatenate(inputs), (np.concatenate(targets), np.concatenate(weights)), rows, addresses,
        outputs=outputs, judged=judged, loss=weighted_error, device=device, threads=threads, progress=progress,
        what=what,
    )  # fmt: skip
    networks = [
        Network(
            weights=tuple(weight[[i]] for weight, _ in trained.layers),
            biases=tuple(bias[[i]] for _, bias in trained.layers),
            activation="relu", input_shift=scale[0], input_scale=scale[1], output_shift=scale[2], output_scale=scale[3],
        )
        for i, scale in enumerate(scales)
    ]  # fmt: skip
    return networks, trained.epochs


def standard(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each column."""
    return values.mean(axis=0), values.std(axis=0)


def fit_paper(
    problem: Problem,
    data: xr.Dataset,
    settings: PaperMLP | None = None,
    seed: int = 0,
    *,
    validation: xr.Dataset | None = None,
    cov_data: xr.Dataset | None = None,
    cov_validation: xr.Dataset | None = None,
    deterministic: np.ndarray | None = None,
    device: str = "cpu",
    threads: int | None = None,
    progress: bool | None = None,
) -> MomentMap:
    """A map from moments at N values: `data` for both networks, or `cov_data` for the covariance.

    Without `validation`, N/5 fresh values with the same M are simulated.
    """
    settings = settings or PaperMLP()
    deterministic = deterministic_outputs(problem) if deterministic is None else np.asarray(deterministic, bool)
    if deterministic.all():
        raise InputError("no output varies from path to path: there is nothing to learn. Solve the model instead.")
    if validation is None:
        validation = fresh_validation(problem, data, seed, threads, progress)
    if cov_data is None:
        cov_data, cov_validation = data, validation if cov_validation is None else cov_validation
    if cov_validation is None:
        cov_validation = fresh_validation(problem, cov_data, seed, threads, progress, CASE_COVARIANCE)
    active = np.flatnonzero(~deterministic)
    means = samples_of(problem, data, validation, mean_targets)
    factors = samples_of(problem, cov_data, cov_validation, lambda part: factor_targets(part, active, settings))
    options: dict[str, Any] = {"device": device, "threads": threads, "progress": progress}
    (mean_part,), mean_epochs = train_column(
        [means], settings, [(seed, MEAN)], units=settings.mean_units, what="training the mean", **options
    )
    (cov_part,), cov_epochs = train_column(
        [factors], settings, [(seed, COVARIANCE)], units=settings.cov_units, what="the covariance", **options
    )
    card = {
        "method": "PaperMLP",
        "settings": asdict(settings) | {"hidden": list(settings.hidden)},
        "seed": seed,
        **budget_of([data] if cov_data is data else [data, cov_data], [validation, cov_validation]),
        "points": {"mean": data.sizes["point"], "covariance": cov_data.sizes["point"]},
        "replicates": {"mean": int(data["replicates"].max()), "covariance": int(cov_data["replicates"].max())},
        "epochs": {"mean": int(mean_epochs[0]), "covariance": int(cov_epochs[0])},
        "versions": {"ctmoments": __version__, "jax": version("jax"), "numpy": np.__version__},
    }
    return MomentMap(
        problem=problem, mean_part=mean_part, cov_part=FactorCovariance(inner=cov_part),
        deterministic=deterministic, card=card,
    )  # fmt: skip


def mean_targets(data: xr.Dataset) -> np.ndarray:
    """Sample means (point, output)."""
    return data["mean"].values


def factor_targets(data: xr.Dataset, active: np.ndarray, settings: PaperMLP) -> np.ndarray:
    """Triangles of the Cholesky factors of the outputs that vary (point, entry)."""
    replicates = data["replicates"].values
    if (replicates == 1).any():
        raise InputError("`PaperMLP` learns from sample covariances, so each value needs 2 replicates or more, got 1.")
    cov = data["cov"].values[:, active[:, None], active]
    return cholesky_targets(cov, replicates, settings.correct_bias and bool(replicates.all())).values


def samples_of(
    problem: Problem, data: xr.Dataset, validation: xr.Dataset, targets: Callable[[xr.Dataset], np.ndarray]
) -> Samples:
    """What a network needs of both datasets; points whose moments are NaN (failed paths) are left out."""
    parts = []
    for name, part in (("data", data), ("validation", validation)):
        whole = np.isfinite(part["mean"].values).all(axis=1)
        if not whole.any():
            raise InputError(f"`{name}` must have at least one point with finite moments, got none.")
        part = part.isel(point=np.flatnonzero(whole))
        parts += [problem.space.to_unit(part["theta"].values), targets(part)]
    return Samples(*parts)


def budget_of(data: Sequence[xr.Dataset], validation: Sequence[xr.Dataset]) -> dict[str, int]:
    """What was simulated: all paths and events, and those that were trained on."""
    validation = list({id(part): part for part in validation}.values())
    count = {key: sum(int(part.attrs.get(key, 0)) for part in [*data, *validation]) for key in ("paths", "events")}
    return count | {"training_paths": sum(int(part.attrs.get("paths", 0)) for part in data)}


def learn_paper(
    problem: Problem,
    budget: int,
    settings: PaperMLP | None = None,
    seed: int = 0,
    *,
    points: int | None = None,
    replicates: int | None = None,
    deterministic: np.ndarray | None = None,
    device: str = "cpu",
    threads: int | None = None,
    progress: bool | None = None,
) -> MomentMap:
    """A map from `budget` paths: two designs of half the budget each, validation included, by the paper's laws."""
    data, validation = [], []
    for case, law in ((CASE_MEAN, MEAN_LAW), (CASE_COVARIANCE, COVARIANCE_LAW)):
        count, paths_each = split_budget(budget // 2, law, points, replicates)
        design, paths = TRAINING[case]
        theta = sample_design(problem, count, seed=seed, purpose=design)
        data.append(
            simulate_moments(problem, theta, paths_each, seed=seed, purpose=paths, threads=threads, progress=progress)
        )
        validation.append(fresh_validation(problem, data[-1], seed, threads, progress, case))
    return fit_paper(
        problem, data[0], settings, seed, validation=validation[0], cov_data=data[1], cov_validation=validation[1],
        deterministic=deterministic, device=device, threads=threads, progress=progress,
    )  # fmt: skip
