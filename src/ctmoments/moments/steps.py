"""One attempted step of a system, for many points at once, each with a step of its own.

In: a `System`, the state (number, point), parameters, steps h (point,). Out: a `Trial`. Two methods with one shape:
`bind_explicit`, order 8 (Dormand and Prince's DOP853, coefficients from SciPy), and `bind_implicit`, the L-stable
Rosenbrock method Rodas5P of order 5 (Steinebach 2023, BIT 63:27), one factorisation a step and no iteration.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.integrate import DOP853

from ctmoments.moments.system import System


@dataclass(frozen=True, eq=False)
class Trial:
    """Where a step leads, its error in units of the tolerance, and h times the fastest rate met on the way."""

    state: np.ndarray
    error: np.ndarray
    pull: np.ndarray


Attempt = Callable[[np.ndarray, np.ndarray, np.ndarray, float], Trial]

_A, _B, _E3, _E5 = (np.asarray(getattr(DOP853, name)) for name in ("A", "B", "E3", "E5"))


def allowed_errors(system: System, old: np.ndarray, new: np.ndarray, tolerance: float) -> np.ndarray:
    """The error each number may have: relative to itself, above a floor.

    The floor rises with the largest number of its kind (mean, covariance, flow), else rounding would look like an
    error.
    """
    size = np.maximum(np.abs(old), np.abs(new))
    core, mean = len(system.core), system.width or len(system.core)
    for block in (size[:mean], size[mean:core], size[core:]):
        if len(block):
            block += 1e-3 + 1e-4 * block.max(axis=0)
    return tolerance * size


def _combine(weights: np.ndarray, slopes: np.ndarray) -> np.ndarray:
    return (weights @ slopes.reshape(len(slopes), -1)).reshape(slopes.shape[1:])


def bind_explicit(system: System, points: int) -> Attempt:
    """The explicit step, with work space for this many points."""
    rates = system.bind(points)
    slopes = np.empty((13, system.size, points))

    def attempt(state: np.ndarray, parameters: np.ndarray, h: np.ndarray, tolerance: float) -> Trial:
        stage = state
        rates(stage, parameters, slopes[0])
        for s in range(1, 12):
            stage = state + h * _combine(_A[s, :s], slopes[:s])
            rates(stage, parameters, slopes[s])
        new = state + h * _combine(_B, slopes[:12])
        rates(new, parameters, slopes[12])
        weights = allowed_errors(system, state, new, tolerance)
        fifth = np.abs(_combine(_E5, slopes) / weights).max(axis=0)
        third = np.abs(_combine(_E3, slopes) / weights).max(axis=0)
        error = np.where(fifth > 0, h * fifth**2 / np.sqrt(fifth**2 + 0.01 * third**2), 0.0 * fifth)
        turned = np.square((slopes[12] - slopes[11]) / weights).sum(axis=0)
        moved = np.square((new - stage) / weights).sum(axis=0)
        return Trial(new, error, h * np.sqrt(turned / np.maximum(moved, 1e-300)))

    return attempt


GAMMA = 0.21193756319429014
_INNER = (  # weights of earlier stages in the point where a stage looks; stages 7 and 8 add the stage before
    (3.0,),
    (2.849394379747939, 0.45842242204463923),
    (-6.954028509809101, 2.489845061869568, -10.358996098473584),
    (2.8029986275628964, 0.5072464736228206, -0.3988312541770524, -0.04721187230404641),
    (-7.502846399306121, 2.561846144803919, -11.627539656261098, -0.18268767659942256, 0.030198172008377946),
)
_INNER += ((*_INNER[4], 1.0), (*_INNER[4], 1.0, 1.0))
_LINEAR = (  # weights of earlier stages, over h, in a stage's right-hand side
    (-14.155112264123755,),
    (-17.97296035885952, -2.859693295451294),
    (147.12150275711716, -1.41221402718213, 71.68940251302358),
    (165.43517024871676, -0.4592823456491126, 42.90938336958603, -5.961986721573306),
    (24.854864614690072, -3.0009227002832186, 47.4931110020768, 5.5814197821558125, -0.6610691825249471),
    (30.91273214028599, -3.1208243349937974, 77.79954646070892, 34.28646028294783, -19.097331116725623,
     -28.087943162872662),
    (37.80277123390563, -3.2571969029072276, 112.26918849496327, 66.9347231244047, -40.06618937091002,
     -54.66780262877968, -9.48861652309627),
)  # fmt: skip


def bind_implicit(system: System, points: int) -> Attempt:
    """The Rosenbrock step, with work space for this many points.

    The flow is linear, so its columns share the small matrix J, and only the bend of J couples it to the core:
    one factorisation of c x c and one of n x n replace the (c + n^2) x (c + n^2) of the whole.
    """
    rates = system.bind(points)
    core, width = len(system.core), system.width
    stages = np.empty((8, system.size, points))

    def attempt(state: np.ndarray, parameters: np.ndarray, h: np.ndarray, tolerance: float) -> Trial:
        h = np.maximum(h, 1e-200)
        jacobian, matrix, bend = system.matrices(state[:core], parameters)
        solve_core = _resolvent(jacobian, h)
        solve_flow = _resolvent(matrix, h)
        flow = _square(state[core:], width)
        slope = np.empty_like(state)
        stage = state
        for s in range(8):
            if s:
                stage = state + _combine(np.array(_INNER[s - 1]), stages[:s])
            rates(stage, parameters, slope)
            side = slope + _combine(np.array(_LINEAR[s - 1]), stages[:s]) / h if s else slope
            moved = solve_core @ side[:core].T[:, :, None]
            turned = (bend @ moved).reshape(points, width, width) @ flow + _square(side[core:], width)
            stages[s, :core] = moved[:, :, 0].T
            stages[s, core:] = (solve_flow @ turned).reshape(points, width**2).T
        new = stage + stages[7]
        weights = allowed_errors(system, state, new, tolerance)
        return Trial(new, np.abs(stages[7] / weights).max(axis=0), np.zeros_like(h))

    return attempt


def _square(rows: np.ndarray, width: int) -> np.ndarray:
    """Rows of a matrix's entries as one matrix (n, n) for each point."""
    return rows.T.reshape(rows.shape[1], width, width)


def _resolvent(matrices: np.ndarray, h: np.ndarray) -> np.ndarray:
    """(I/(h gamma) - J)^-1 for each point; NaN where J is not finite, which the error control then rejects."""
    shifted = np.eye(matrices.shape[1]) / (h * GAMMA)[:, None, None] - matrices
    bad = ~np.isfinite(shifted).all((1, 2))
    shifted[bad] = np.eye(matrices.shape[1])
    try:
        inverse = np.linalg.inv(shifted)
    except np.linalg.LinAlgError:  # one is exactly singular: that one is retried with another step
        bad |= np.linalg.det(shifted) == 0
        shifted[bad] = np.eye(matrices.shape[1])
        inverse = np.linalg.inv(shifted)
    inverse[bad] = np.nan
    return inverse
