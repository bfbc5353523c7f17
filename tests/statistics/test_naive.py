"""Moments against a naive Gillespie with NumPy's random numbers, on every library problem as it stands.

150 naive paths against 20,000 of ours: family-wise false-alarm rate 1e-6 a problem (Student's t); with power 0.99 an
error of 10 standard errors of the naive mean is found: 0.8 standard deviations, as a wrong rate or species makes.
Variances are compared within a factor of 3, which a missing half or a net-rate channel leaves. `test_master.py` is
the sharp test; this one also sees large amounts and many species.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers import assert_z
from naive import naive_paths

import ctmoments as ctm

TIMES = {"schlogl": 1, "vilar-oscillator": 1, "lotka-volterra": 3, "seir": 6}  # first so many; others the first 4
REPLICATES = 150


def _middle(problem) -> np.ndarray:
    return problem.space.from_unit(np.full((1, len(problem.space.parameters)), 0.6))[0]


@pytest.mark.parametrize("name", ctm.list_problems())
def test_moments_agree_with_naive_paths(name):
    problem = ctm.load_problem(name)
    problem = replace(problem, times=problem.times[: TIMES.get(name, 4)])
    if name == "vilar-oscillator":
        problem = replace(problem, times=(0.25, 0.5))
    point = _middle(problem)
    theirs = naive_paths(problem, point, REPLICATES, seed=31)
    ours = ctm.simulate_moments(problem, point, 20_000, seed=32)
    variance = theirs.var(axis=0, ddof=1)
    varies = variance > 0
    assert varies.any()
    se = np.sqrt(variance / REPLICATES + ours["mean_se"].values[0] ** 2)[varies]
    assert_z((theirs.mean(axis=0) - ours["mean"].values[0])[varies] / se, degrees=REPLICATES - 1)
    ratio = variance[varies] / np.diagonal(ours["cov"].values[0])[varies]
    assert (1 / 3 < ratio).all() and (ratio < 3).all()
