"""From the course of mean, covariance and flow to the moments of the outputs.

In: mean (time, n, point), covariance (time, n, n, point), the flow between neighbouring times, observed components.
Out: mean and full multi-time covariance of the outputs, and which points are unphysical. For t >= s
Cov(x(t), x(s)) = Phi(t, s) C(s), with Phi(t, s) the product of the flows in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

ROUNDING = 1e-6  # of the largest variance: what integration may leave below zero


def flowing_links(cov: np.ndarray, flow: np.ndarray, weights: np.ndarray) -> Iterator[np.ndarray]:
    """At each time t, Cov(x(t), y(s)) for all s up to t, in time order: (point, n, s and component)."""
    spread = np.moveaxis(cov, -1, 1) @ weights.T  # C(s) w: (time, point, n, component)
    links = np.empty((spread.shape[1], spread.shape[2], 0))
    for here, step in zip(spread, np.moveaxis(flow, -1, 1), strict=True):
        links = np.concatenate([step @ links, here], axis=2)
        yield links


@np.errstate(all="ignore")
def output_moments(
    mean: np.ndarray, links: Iterable[np.ndarray], weights: np.ndarray, still: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mean (point, output) and covariance (point, output, output), component by component in time order.

    `links` are those of `flowing_links`, time by time. Components that are `still` have no covariance.
    """
    times, _, points = mean.shape
    components = len(weights)
    means = np.einsum("cn,tnp->pct", weights, mean).reshape(points, -1)
    blocks = np.empty((points, components, times, components, times))
    for t, link in enumerate(links):
        row = (weights @ link).reshape(points, components, t + 1, components)
        blocks[:, :, t, :, : t + 1] = row.swapaxes(2, 3)
        blocks[:, :, : t + 1, :, t] = row.transpose(0, 3, 2, 1)
    blocks[:, still] = 0.0
    blocks[:, :, :, still] = 0.0
    return means, blocks.reshape(points, components * times, -1)


def full_matrices(halves: np.ndarray, width: int) -> np.ndarray:
    """Symmetric matrices (time, n, n, point) from their upper triangles (time, n(n+1)/2, point), row by row."""
    full = np.empty((len(halves), width, width, halves.shape[-1]))
    rows, columns = np.triu_indices(width)
    full[:, rows, columns] = halves
    full[:, columns, rows] = halves
    return full


def unphysical_points(mean: np.ndarray, cov: np.ndarray) -> np.ndarray:
    """Where moments are not finite, a variance is negative or the covariance indefinite, beyond rounding."""
    return np.array([_unphysical(m, c) for m, c in zip(mean, cov, strict=True)], bool)


def _unphysical(mean: np.ndarray, cov: np.ndarray) -> bool:
    if not (np.isfinite(mean).all() and np.isfinite(cov).all()):
        return True
    variances = np.diagonal(cov)
    floor = ROUNDING * max(variances.max(initial=0.0), 1e-6)
    if variances.min(initial=0.0) < -floor:
        return True
    scale = np.sqrt(np.maximum(variances, floor))
    try:  # a Cholesky factor of the correlations costs a tenth of their eigenvalues
        np.linalg.cholesky(cov / scale[:, None] / scale + ROUNDING * np.eye(len(cov)))
    except np.linalg.LinAlgError:
        return True
    return False
