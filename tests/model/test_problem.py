"""Problems: components, times, columns, initial states, and what is refused."""

import dataclasses
import pickle

import numpy as np
import pytest

from ctmoments.errors import ModelError, ThetaError
from ctmoments.model.component import parse_component
from ctmoments.model.model import Model
from ctmoments.model.problem import Problem
from ctmoments.model.space import Integer, Space
from ctmoments.model.theta import as_theta

MODEL = Model(
    {"S": "N - I0", "I": "I0", "R": 0}, ["alpha", "beta", "I0"], ["S + I -> 2 I @ beta", "I -> R @ alpha"], {"N": 766}
)
SPACE = Space(I0=Integer(1, 20), beta=0.002, alpha=(0.1, 0.9))
PROBLEM = Problem(MODEL, SPACE, observe=["I", "S + I"], times=range(1, 4))


def test_outputs_stand_component_by_component():
    assert PROBLEM.observe == ("I", "S + I") and PROBLEM.times == (1.0, 2.0, 3.0)
    assert PROBLEM.output_components == ("I", "I", "I", "S + I", "S + I", "S + I")
    assert PROBLEM.output_times.tolist() == [1, 2, 3, 1, 2, 3]
    assert Problem(MODEL, SPACE, "I", (0,)).times == (0.0,)
    assert Problem(MODEL, SPACE, "I", np.array([0.5, 2])).times == (0.5, 2.0)


def test_problems_are_values():
    again = pickle.loads(pickle.dumps(PROBLEM))
    assert again == PROBLEM and hash(again) == hash(PROBLEM)
    assert dataclasses.replace(PROBLEM, times=(1,)).times == (1.0,)
    assert "S + I" in str(PROBLEM) == repr(PROBLEM)


def test_columns_come_in_the_order_of_the_model():
    columns = PROBLEM.parameter_columns(np.array([[3, 0.5], [7, 0.25]]))
    assert columns.tolist() == [[0.5, 0.002, 3], [0.25, 0.002, 7]]


def test_initial_states():
    states = PROBLEM.initial_states(np.array([[3, 0.5], [7, 0.25]]))
    assert states.dtype == np.int64 and states.tolist() == [[763, 3, 0], [759, 7, 0]]


@pytest.mark.parametrize(
    ("amount", "value", "match"),
    [
        ("10 - x", 11.0, r"initial amount of 'X' = 10 - x at point 4, .* must be a whole number from 0 .* got -1.0"),
        ("x", 2.5, r"at point 4, {'x': 2.5}, must be a whole number .* got 2.5"),
        ("x*1e15", 11.0, r"at point 4, .* must be a whole number from 0 to 2\^52"),
        ("1/(x - 3)", 3.0, r"at point 4, .* must be a whole number .* got inf"),
    ],
)
def test_initial_states_refused(amount, value, match):
    problem = Problem(Model({"X": amount}, ["x"], ["X -> 0 @ 1"]), Space(x=(0, 20)), "X", [1])
    theta = as_theta(problem, [value]).assign_coords(point=[4])
    with pytest.raises(ThetaError, match=match):
        problem.initial_states(theta)


def test_initial_states_forgive_float_arithmetic():
    problem = Problem(Model({"X": "x*10"}, ["x"], ["X -> 0 @ 1"]), Space(x=(0, 20)), "X", [1])
    assert problem.initial_states(np.array([[0.1 + 0.2]])).tolist() == [[3]]


@pytest.mark.parametrize(
    ("text", "weights", "scale"),
    [
        ("I", (0, 1, 0), 1.0), (" S+I ", (1, 1, 0), 1.0), ("0.5*S + I", (1, 2, 0), 0.5), ("S - 2*I", (1, -2, 0), 1.0),
        ("2*S + 4*I", (1, 2, 0), 2.0), ("(S + I)/3", (1, 1, 0), 1 / 3), ("S*0.1 + 0.2*R", (1, 0, 2), 0.1),
        ("-I", (0, -1, 0), 1.0), ("S + S", (1, 0, 0), 2.0), ("2*(S + 3) - 6", (1, 0, 0), 2.0),
    ],
)  # fmt: skip
def test_components(text, weights, scale):
    component = parse_component(text, ("S", "I", "R"))
    assert (component.weights, component.scale) == (weights, scale)


@pytest.mark.parametrize(
    ("observe", "match"),
    [
        ("Q", r"observed component 'Q': 'Q' must be a species"),
        ("alpha", r"'alpha' must be a species"),
        ("S*I", r"must be a linear combination of species with numbers as weights"),
        ("S/0", r"must be a linear combination"),
        ("sqrt(S)", r"must be a linear combination"),
        ("S + 1", r"without a constant term"),
        ("S - S", r"every weight is 0"),
        ("3", r"without a constant term"),
        ("0.1234567891*S + I", r"weights must be ratios of whole numbers up to 2\^31"),
        ([], r"`observe` must be a species"),
        (None, r"`observe` must be a species"),
        ([1], r"observed component 1 must be text"),
        (["I", "I"], r"components must differ, got 'I' after 'I'"),
        (["S + I", "I + S"], r"components must differ, got 'I \+ S' after 'S \+ I'"),
        ("S +", r"observed component 'S \+', column 4"),
    ],
)
def test_observe_refused(observe, match):
    with pytest.raises(ModelError, match=match):
        Problem(MODEL, SPACE, observe, [1])


@pytest.mark.parametrize(
    ("times", "match"),
    [
        ([], r"`times` must hold at least one time"),
        (13, r"`times` must be a list of numbers, got 13"),
        ("1", r"`times` must be a list of numbers, got '1'"),
        ([3.0, 5.0, 3.0], r"`times` must increase, got 3.0 after 5.0"),
        ([1, 1], r"`times` must increase, got 1.0 after 1.0"),
        ([-1, 1], r"`times` must be finite numbers from 0 on, got -1"),
        ([1, float("inf")], r"`times` must be finite numbers from 0 on, got inf"),
        ([float("nan")], r"got nan"),
        ([True], r"got True"),
        (["1"], r"got '1'"),
    ],
)
def test_times_refused(times, match):
    with pytest.raises(ModelError, match=match):
        Problem(MODEL, SPACE, "I", times)


@pytest.mark.parametrize(
    ("space", "match"),
    [
        (Space(alpha=(0, 1), beta=0.1), r"must hold every parameter of the model, but 'I0' is missing. Add it"),
        (Space(alpha=(0, 1), beta=0.1, I_0=3), r"but 'I0' is missing. Did you mean 'I_0'"),
        (Space(alpha=(0, 1), beta=0.1, I0=3, gamma=1), r"`space`: 'gamma' must be a parameter of the model"),
        (Space(alpha=(0, 1), beta=0.1, I0=3, N=1), r"`space`: 'N' must be a parameter of the model"),
        ({"alpha": 1}, r"`space` must be a Space, got"),
    ],
)
def test_spaces_refused(space, match):
    with pytest.raises(ModelError, match=match):
        Problem(MODEL, space, "I", [1])


def test_the_rest_refused():
    with pytest.raises(ModelError, match="`model` must be a Model, got 'sir'"):
        Problem("sir", SPACE, "I", [1])
    with pytest.raises(ModelError, match="`name` must be text, got 3"):
        Problem(MODEL, SPACE, "I", [1], name=3)
