"""Two-time moments from a passage: measures forward, expectations backward, each as a block, meeting in the middle.

E[y_a(t_a) y_b(t_b)] for t_a < t_b is a scalar product at any time between: of the measure y_a p(t_a) carried forward
and the function y_b carried backward. Carrying the measures of the early outputs forward to one meeting time, and the
functions of the later outputs back to it, gives every pair with about half the work of going all the way (the SIR at
13 times: 43 vector intervals in place of 78). Both are transposes of the same truncated operators, so the result does
not depend on the meeting time but for rounding.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ctmoments.moments.exact_chain import Chain
from ctmoments.moments.exact_kernel import aligned_zeros
from ctmoments.moments.exact_sweep import Passage, Segment, Vector, propagate

Observe = Callable[[np.ndarray], np.ndarray]  # states (species, n) -> components (components, n)


def centred_outputs(passage: Passage, observe: Observe) -> tuple[np.ndarray, list[Vector]]:
    """Return means (components, times), and the components minus their means on each time's window."""
    means, centred = [], []
    for there in passage.distributions:
        probability = there.values[there.window.positions]
        values = observe(there.window.states)
        mean = values @ probability / probability.sum()
        box = aligned_zeros((len(values), there.window.box))
        box[:, there.window.positions] = np.where(there.window.valid, values - mean[:, None], 0.0)
        means.append(mean)
        centred.append(Vector(there.window, box))
    return np.array(means).T, centred


def best_meeting(costs: np.ndarray) -> int:
    """Return after which output time (0: before the first) the blocks meet with the least work.

    `costs` (times,) is the work of one vector in the interval before each output time.
    """
    count = len(costs)
    forward = np.concatenate(([0.0], np.cumsum(costs * np.arange(count))))
    backward = np.cumsum((costs * np.arange(count, 0, -1))[::-1])[::-1]
    return int(np.argmin(forward + np.concatenate((backward, [0.0]))))


def second_moments(
    chain: Chain, passage: Passage, centred: list[Vector], report: Callable[[float], None]
) -> np.ndarray:
    """Return E[(y_a - mean_a)(y_b - mean_b)], shape (components, times, components, times)."""
    components, times = len(centred[0].values), len(centred)
    result = np.zeros((components, times, components, times))
    for t, (there, y) in enumerate(zip(passage.distributions, centred, strict=True)):
        result[:, t, :, t] = (y.values * there.values) @ y.values.T
    costs = np.array([sum(segment.cost for segment in segments) for segments in passage.intervals])
    meeting = best_meeting(costs)
    measures = _carry_measures(chain, passage, centred, meeting, result, report)
    _carry_functions(chain, passage, centred, meeting, measures, result, report)
    upper = np.triu(np.ones((times, times)), 1)
    later = result * upper[None, :, None, :]
    same = result * np.eye(times)[None, :, None, :]
    return same + later + later.transpose(2, 3, 0, 1)


def _carry(chain: Chain, segments: list[Segment], block: Vector, forward: bool, report: Callable) -> Vector:
    for segment in segments if forward else reversed(segments):
        block = propagate(chain, segment, block, forward)
        report(segment.cost * len(block.values))
    return block


def _joined(block: Vector | None, new: Vector) -> Vector:
    if block is None:
        return new
    old = block.moved(new.window).values
    values = aligned_zeros((len(old) + len(new.values), new.window.box))
    values[: len(old)], values[len(old) :] = old, new.values
    return Vector(new.window, values)


def _measure(passage: Passage, centred: list[Vector], t: int) -> Vector:
    there = passage.distributions[t]
    values = aligned_zeros(centred[t].values.shape)
    np.multiply(centred[t].values, there.values, out=values)
    return Vector(there.window, values)


def _carry_measures(
    chain: Chain, passage: Passage, centred: list[Vector], meeting: int, result: np.ndarray, report: Callable
) -> Vector | None:
    """Fill the pairs up to the meeting time; return the measures (time, component) there."""
    components = result.shape[0]
    block: Vector | None = None
    for t in range(meeting):
        if block is not None:
            block = _carry(chain, passage.intervals[t], block, True, report)
            pairs = block.moved(centred[t].window).values @ centred[t].values.T
            result[:, :t, :, t] = pairs.reshape(t, components, components).transpose(1, 0, 2)
        block = _joined(block, _measure(passage, centred, t))
    return block


def _carry_functions(
    chain: Chain, passage: Passage, centred: list[Vector], meeting: int, measures: Vector | None,
    result: np.ndarray, report: Callable,
) -> None:  # fmt: skip
    """Fill the pairs with a later time beyond the meeting time."""
    components, times = result.shape[:2]
    block: Vector | None = None
    for t in range(times - 1, meeting - 1, -1):
        block = _joined(block, centred[t])
        block = _carry(chain, passage.intervals[t], block, False, report)
        early = measures if t == meeting else _measure(passage, centred, t - 1)
        if early is None:
            continue
        pairs = early.values @ block.moved(early.window).values.T
        pairs = pairs.reshape(-1, components, times - t, components).transpose(1, 0, 3, 2)
        first = 0 if t == meeting else t - 1
        result[:, first:t, :, t:] = pairs[..., ::-1]
