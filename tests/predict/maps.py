"""Small maps for tests: smooth, cheap, with every kind of part."""

from __future__ import annotations

import numpy as np

from ctmoments.model.library import load_problem
from ctmoments.predict.chebyshev import Chebyshev
from ctmoments.predict.combine import Exponential, Scaled
from ctmoments.predict.covariance import FactorCovariance, MatrixCovariance
from ctmoments.predict.moment_map import MomentMap


def degrees(highest: int) -> np.ndarray:
    """All pairs of degrees that sum to at most `highest`."""
    return np.array([(i, j) for i in range(highest + 1) for j in range(highest + 1 - i)])


def expansion(outputs: int, highest: int = 4, seed: int = 0, offset=0.0, **more) -> Chebyshev:
    index = degrees(highest)
    decay = 0.3 ** index.sum(axis=1)[:, None]
    coefficients = np.random.default_rng(seed).normal(size=(len(index), outputs)) * decay * 0.02
    coefficients[0] += offset
    return Chebyshev(index=index, coefficients=coefficients, **more)


def sir_map(form: str = "matrix", highest: int = 4) -> MomentMap:
    problem = load_problem("sir")
    outputs = len(problem.output_components)
    size = Exponential(inner=expansion(1, seed=1, offset=3.0))
    i, j = np.tril_indices(outputs)
    triangle = expansion(len(i), highest, 2, 0.5 ** np.abs(i - j), log_se=expansion(len(i), 2, 5, -5.0))
    if form == "relative":
        base = expansion(len(i), 3, 6, 1.0 * (i == j) + 0.3 * (i != j))
        cov = MatrixCovariance(inner=expansion(len(i), highest, 2, 1.0 * (i == j)), size=size, base=base, floor=0.02)
    elif form == "matrix":
        cov = MatrixCovariance(inner=triangle, size=Exponential(inner=expansion(outputs, seed=4, offset=2.0)))
    else:
        cov = FactorCovariance(inner=triangle, base=expansion(len(i), 3, 6, 1.0 * (i == j)))
    return MomentMap(
        problem=problem,
        mean_part=Scaled(inner=expansion(outputs, highest, 3, 1.0, log_se=expansion(outputs, 2, 7, -4.0)), size=size),
        cov_part=cov,
        deterministic=np.zeros(outputs, bool),
        card={"method": "test", "seed": 3, "settings": {"degree": highest}},
    )
