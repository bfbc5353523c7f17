"""Editions of a store: the same paths at more output times.

While paths are replayed for added times both editions are there. When the newer one is complete it is compared with
the older where both have outputs: replay must give the same bits. Then the older one goes.
"""

from __future__ import annotations

import numpy as np

from ctmoments.errors import FileError
from ctmoments.simulate.merge import merged
from ctmoments.simulate.store import Store
from ctmoments.simulate.sums import Sums


def settle_editions(store: Store, rows: int) -> None:
    """Drop editions before the newest, which must be complete and agree with them."""
    *older, newest = store.editions()
    if not older:
        return
    for edition in older:
        _compare(store, edition, newest, rows)
    with store.transaction():
        store.drop_editions(newest[0])


def _compare(store: Store, old: tuple, new: tuple, rows: int) -> None:
    """Points with the same paths must have the same sums at the times of both.

    A path that failed fails again, or more do where times go on longer: equal numbers are equal paths.
    """
    at = _shared(old, new)
    pairs = zip(merged(store, old[0], old[1], rows), merged(store, new[0], new[1], rows), strict=True)
    for (low, before), (_, after) in pairs:
        if not isinstance(before.sums, Sums) or not isinstance(after.sums, Sums):
            return  # a callable has its outputs as part of who it is: no times are added
        alike = (before.sums.paths == after.sums.paths) & (before.statuses.sum(1) == after.statuses.sum(1))
        wrong = alike & (before.sums.sum1 != after.sums.sum1[:, at]).any(axis=1)
        if wrong.any():
            raise FileError(
                f"{store.path}: replaying row {low + int(np.argmax(wrong))} gave other numbers than those stored. The"
                " store is kept as it is; was it made by another version, or on a machine with other arithmetic?"
            )


def _shared(old: tuple, new: tuple) -> np.ndarray:
    """Index in the newer edition of each output of the older."""
    _, outputs, times = old
    index = np.searchsorted(new[2], times)
    components = outputs // len(times)
    return (np.arange(components)[:, None] * len(new[2]) + index).ravel()
