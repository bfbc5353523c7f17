from __future__ import annotations

from ctmoments.learn.outputs import deterministic_outputs
from ctmoments.model.model import Model
from ctmoments.model.problem import Problem
from ctmoments.model.space import Space


def test_time_zero_and_conserved_totals_are_deterministic():
    model = Model({"S": 10, "I": 2, "Z": 4}, ["b"], ["S + I -> 2 I : b*S*I", "I -> S : I", "0 -> Z : 0"])
    problem = Problem(model, Space(b=(0.1, 1)), ["S", "S + I", "Z"], [0, 1, 2])
    assert deterministic_outputs(problem).tolist() == [True, False, False, True, True, True, True, True, True]
