"""Moments against dense master equations: library problems with few states, and small versions of the others.

20,000 replicates; family-wise false-alarm rate 1e-6 a problem; with power 0.99 an error of 8.3 standard errors is
found: 6 % of a standard deviation in a mean, about 8 % of a variance.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers import assert_moments_close
from naive import master_moments

import ctmoments as ctm

# problem -> start amounts and constants instead of the library's, caps where the chain is unbounded, how many of the
# times, points
CASES = {
    "birth-death": ({}, {"X": 80}, 4, [[15.0, 0.4], [3.0, 0.9]]),
    "dimerisation": ({}, {}, 5, [[0.00166, 0.2], [5e-3, 0.05]]),
    "telegraph": ({}, {"M": 70}, 5, [[0.3, 1.1, 20.0]]),
    "schlogl": ({}, {"X": 230}, 2, [[48.0, 3.5]]),
    "sis": ({"S": 45, "I": 5, "N": 50}, {}, 6, [[1.5, 1.0], [3.0, 0.5]]),
    "sir": ({"S": 17, "I": 3}, {}, 6, [[0.3, 0.00325], [0.9, 0.00125]]),
    "seir": ({"S": 5, "E": 1, "I": 2, "N": 8}, {}, 4, [[0.8, 0.3, 0.2, 1e-3]]),
    "sir-two-patch": ({"S1": 3, "I1": 1, "S2": 2, "I2": 1, "N1": 4, "N2": 3}, {}, 3, [[2.0, 1.0, 0.4, 0.5, 0.2]]),
    "toggle-switch": ({"U": 3}, {"U": 20, "V": 20}, 2, [[4.0, 3.0, 5.0]]),
    "lotka-volterra": ({"prey": 4, "predators": 3}, {"prey": 45, "predators": 16}, 1, [[0.5, 0.003, 0.3]]),
}
SPEED = {"sir": 40.0}  # so few people meet rarely: times are stretched by this factor instead


def _problem(name: str):
    start, caps, count, points = CASES[name]
    problem = ctm.load_problem(name)
    model = problem.model
    amounts = {species: start.get(species, amount) for species, amount in model.species.items()}
    constants = {name: start.get(name, value) for name, value in model.constants.items()}
    small = ctm.Model(amounts, model.parameters, [str(reaction) for reaction in model.reactions], constants)
    space = ctm.Space(**{key: (0.0, 100.0) for key in problem.space.parameters}, **problem.space.fixed)
    times = [time * SPEED.get(name, 1.0) for time in problem.times[:count]]
    return replace(problem, model=small, space=space, times=times), np.array(points), caps


@pytest.mark.parametrize("name", CASES)
def test_moments_agree_with_the_master_equation(name):
    problem, points, caps = _problem(name)
    exact = [master_moments(problem, point, caps) for point in points]
    data = ctm.simulate_moments(problem, points, 20_000, seed=21)
    assert_moments_close(data, *(np.array(part) for part in zip(*exact, strict=True)))
