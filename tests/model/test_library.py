"""The built-in problems: all there, all documented, sensible at every corner of their boxes."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from ctmoments.model import library
from ctmoments.model.describe import describe
from ctmoments.model.expressions import evaluate, vanishes_below
from ctmoments.model.library import list_problems, load_problem
from ctmoments.model.space import Integer, Linear, Log, Space

PROBLEMS = {name: load_problem(name) for name in list_problems()}


def corners(problem):
    unit = itertools.product([0.0, 1.0], repeat=len(problem.space.parameters))
    return problem.space.from_unit(np.array(list(unit)))


def rates(problem, theta):
    values = dict(zip(problem.model.parameters, problem.parameter_columns(theta).T, strict=True))
    values |= dict(zip(problem.model.species, problem.initial_states(theta).T, strict=True))
    return np.stack([np.broadcast_to(evaluate(rate, values), len(theta)) for rate in problem.model.rates])


def test_the_promised_problems_are_there():
    assert set(list_problems()) == {
        "birth-death", "dimerisation", "lotka-volterra", "schlogl", "seir", "sir", "sir-initial", "sir-two-patch",
        "sis", "telegraph", "toggle-switch", "vilar-oscillator",
    }  # fmt: skip
    assert len(PROBLEMS["seir"].space.parameters) == 4 and len(PROBLEMS["sir-two-patch"].space.parameters) >= 5


def test_the_paper_problem():
    sir = PROBLEMS["sir"]
    assert sir.space == Space(alpha=(0.1, 0.9), beta=(0.00125, 0.00325))
    assert sir.model.parameters == ("alpha", "beta")
    assert sir.initial_states(np.array([[0.5, 0.002]])).tolist() == [[763, 3, 0]]
    assert [str(rate) for rate in sir.model.rates] == ["beta*S*I", "alpha*I"]
    assert sir.model.stoichiometry.T.tolist() == [[-1, 1, 0], [0, -1, 1]]
    assert sir.observe == ("I",) and sir.times == tuple(range(1, 14))


def test_the_number_first_infected_is_a_parameter():
    problem = PROBLEMS["sir-initial"]
    assert problem.space.dimensions["I0"] == Integer(1, 20)
    assert problem.initial_states(np.array([[0.5, 0.002, 20]])).tolist() == [[746, 20, 0]]


@pytest.mark.parametrize("name", list_problems())
def test_each_problem_is_documented(name):
    problem = PROBLEMS[name]
    comments = [line for line in (library.FOLDER / f"{name}.toml").read_text().splitlines() if line.startswith("#")]
    assert problem.name == name and comments
    assert len(problem.description) > 30 and len(problem.source) > 30
    lines = describe(problem).splitlines()
    assert len(lines) <= 50 and max(map(len, lines)) <= 110
    assert all(parameter in describe(problem) for parameter in problem.space.entries)


@pytest.mark.parametrize("name", list_problems())
def test_each_problem_can_start_at_every_corner(name):
    at_start = rates(PROBLEMS[name], corners(PROBLEMS[name]))
    assert np.isfinite(at_start).all() and (at_start >= 0).all() and (at_start.sum(axis=0) > 0).all()


@pytest.mark.parametrize("name", list_problems())
def test_no_reaction_fires_without_its_reactants(name):
    for reaction in PROBLEMS[name].model.reactions:
        for species, needed in reaction.reactants.items():
            assert vanishes_below(reaction.rate, species, needed), str(reaction)


@pytest.mark.parametrize("name", ["sir", "sir-initial", "sis", "seir", "sir-two-patch"])
def test_populations_are_closed(name):
    assert (PROBLEMS[name].model.stoichiometry.sum(axis=0) == 0).all()


def test_conserved_totals():
    weights = {"P": 1, "P2": 2}
    model = PROBLEMS["dimerisation"].model
    assert (np.array([weights[name] for name in model.species]) @ model.stoichiometry == 0).all()
    model = PROBLEMS["vilar-oscillator"].model
    for genes in (("D_A", "D_A_on"), ("D_R", "D_R_on")):
        rows = [list(model.species).index(name) for name in genes]
        assert (model.stoichiometry[rows].sum(axis=0) == 0).all()


def test_schlogl_is_bistable_all_over_its_box():
    problem = PROBLEMS["schlogl"]
    constants = problem.model.constants
    unit = np.stack(np.meshgrid(np.linspace(0, 1, 11), np.linspace(0, 1, 11)), axis=-1).reshape(-1, 2)
    for k3, k4 in problem.space.from_unit(unit):
        roots = np.roots([-constants["k2"], constants["k1"], -k4, k3])
        assert (np.abs(roots.imag) < 1e-9).all() and np.ptp(roots.real) > 60


def test_every_kind_of_dimension_occurs():
    kinds = {type(dimension) for problem in PROBLEMS.values() for dimension in problem.space.dimensions.values()}
    assert kinds == {Linear, Log, Integer}
    assert any(problem.space.fixed for problem in PROBLEMS.values())
    assert any(len(problem.observe) > 1 for problem in PROBLEMS.values())


def test_files_are_packaged():
    assert sorted(Path(library.FOLDER).glob("*.toml")) == sorted(library.FOLDER / f"{name}.toml" for name in PROBLEMS)
