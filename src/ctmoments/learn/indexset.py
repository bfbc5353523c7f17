"""Which Chebyshev products an expansion uses: those of a total degree, counted by what each parameter is worth.

In: the number of parameters, how many terms are wanted, and a stretch for each parameter (how much faster than the
average a function's degrees die out along it). Out: degrees (term, parameter), sorted by their order Σ_d a_d k_d.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

HIGHEST = 40
HALVINGS = 50  # of the interval in which the order of the last term lies


def order_of(index: np.ndarray, stretch: np.ndarray | None = None) -> np.ndarray:
    """The order of each product: float64 (term,)."""
    return (index * (1.0 if stretch is None else stretch)).sum(axis=1).astype(float)


def euclidean_order(index: np.ndarray, stretch: np.ndarray | None = None) -> np.ndarray:
    """√(Σ_d (a_d k_d)²), what the smoothness prior falls with.

    SIR, mean at 90,000 and 500,000 paths: 5 % less error than with the total degree, 10 % less than with max_d k_d;
    with a stretch that all outputs share another 3 to 4 % in the mean, 5 to 10 % in the covariance.
    """
    return np.sqrt(((index * (1.0 if stretch is None else stretch)) ** 2).sum(axis=1))


@lru_cache(maxsize=64)
def _index_set(terms: int, stretch: tuple[float, ...]) -> np.ndarray:
    low, high = 0.0, HIGHEST * sum(stretch)
    best = _up_to(high, stretch, terms)
    if best is None:
        best = np.zeros((1, len(stretch)), np.int64)
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            if (found := _up_to(middle, stretch, terms)) is None:
                high = middle
            else:
                low, best = middle, found
    best = best[np.lexsort((*best.T, np.round(order_of(best, np.array(stretch)), 9)))]
    best.flags.writeable = False
    return best


def _up_to(order: float, stretch: tuple[float, ...], terms: int) -> np.ndarray | None:
    """All products up to this order; None where they are more than `terms`."""
    index, used = np.zeros((1, 0), np.int64), np.zeros(1)
    for each in stretch:
        degrees = np.arange(min(HIGHEST, int(order / each + 1e-9)) + 1)
        total = used[:, None] + each * degrees
        row, column = np.nonzero(total <= order + 1e-9)
        if len(row) > terms:
            return None
        index, used = np.column_stack([index[row], degrees[column]]), total[row, column]
    return index


def index_set(parameters: int, terms: int, stretch: np.ndarray | None = None) -> np.ndarray:
    """The largest whole set of at most `terms` products (at least the constant): int64 (term, parameter).

    >>> len(index_set(2, 240)), int(index_set(2, 240).max())
    (231, 20)
    """
    return _index_set(terms, (1.0,) * parameters if stretch is None else tuple(np.asarray(stretch, float).tolist()))
