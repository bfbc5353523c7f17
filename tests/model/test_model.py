"""Models and reactions: what is read, what is refused, and how."""

import itertools
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctmoments.errors import ModelError
from ctmoments.model.expressions import Number, parse_expression
from ctmoments.model.model import Model
from ctmoments.model.reaction import Reaction, parse_reaction

SIR = {
    "species": {"S": 763, "I": 3, "R": 0},
    "parameters": ["alpha", "beta"],
    "reactions": ["S + I -> 2 I : beta*S*I", "I -> R : alpha*I"],
}


def test_the_sir_model():
    model = Model(**SIR)
    assert model == Model(SIR["species"], SIR["parameters"], SIR["reactions"])
    assert tuple(model.species) == ("S", "I", "R") and model.parameters == ("alpha", "beta")
    np.testing.assert_array_equal(model.stoichiometry, [[-1, 0], [1, -1], [0, 1]])
    assert model.stoichiometry.dtype == np.int64 and not model.stoichiometry.flags.writeable
    assert model.rates == (parse_expression("beta*S*I"), parse_expression("alpha*I"))
    assert hash(model) == hash(pickle.loads(pickle.dumps(model))) and model == pickle.loads(pickle.dumps(model))
    assert "S + I -> 2 I : beta*S*I" in str(model) == repr(model)


def test_constants_are_numbers_in_rates_and_initial_amounts_may_be_expressions():
    model = Model({"S": "n - I0", "I": "I0"}, ["I0"], ["S -> I : -c*S"], {"c": -0.5, "n": 10})
    assert str(model.rates[0]) == "--0.5*S"
    assert str(model.species["S"]) == "n - I0"
    assert Model({"X": "2*n"}, (), ["X -> 0 : X"], {"n": 4}).species["X"] == parse_expression("2*n")
    assert Model({"X": np.int64(7)}, (), ["X -> 0 : X"]).species["X"] == Number(7)


def test_species_order_counts():
    assert Model({"A": 1, "B": 2}, (), ["A -> B : A"]) != Model({"B": 2, "A": 1}, (), ["A -> B : A"])


@pytest.mark.parametrize(
    ("text", "reactants", "products", "rate"),
    [
        ("S + I -> 2 I @ beta", {"S": 1, "I": 1}, {"I": 2}, "beta*S*I"),
        ("2 X -> Y @ k", {"X": 2}, {"Y": 1}, "k*X*(X - 1)"),
        ("X + X -> Y @ k", {"X": 2}, {"Y": 1}, "k*X*(X - 1)"),
        ("2*X -> Y @ k/2", {"X": 2}, {"Y": 1}, "k/2*X*(X - 1)"),
        ("3X -> 0 @ k + 1", {"X": 3}, {}, "(k + 1)*X*(X - 1)*(X - 2)"),
        ("0 -> X @ k", {}, {"X": 1}, "k"),
        ("-> X : k", {}, {"X": 1}, "k"),
        ("X -> : k*X", {"X": 1}, {}, "k*X"),
        ("E + S -> E + P @ k", {"E": 1, "S": 1}, {"E": 1, "P": 1}, "k*E*S"),
        ("grow_1 : X->2X:k*X", {"X": 1}, {"X": 2}, "k*X"),
        ("X -> 0 : if(a<-b, k, 0)*X", {"X": 1}, {}, "if(a < -b, k, 0)*X"),
    ],
)
def test_reactions_are_read_and_written(text, reactants, products, rate):
    reaction = parse_reaction(text)
    assert (reaction.reactants, reaction.products) == (reactants, products)
    assert reaction.rate == parse_expression(rate)
    assert parse_reaction(str(reaction)) == reaction
    assert repr(reaction) == f"Reaction({str(reaction)!r})"


SIDES = st.dictionaries(st.sampled_from(["A", "B", "C_1"]), st.integers(1, 5), max_size=3)


@given(SIDES, SIDES, st.sampled_from([":", "@"]), st.sampled_from(["", "r1"]))
def test_any_reaction_round_trips(reactants, products, sign, name):
    if not reactants and not products:
        return
    rate = {"rate" if sign == ":" else "mass_action": "k*(A - 1)/2"}
    reaction = Reaction(reactants, products, name=name, **rate)
    assert parse_reaction(str(reaction)) == reaction


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("S + I = 2 I : k", r"must read 'reactants -> products : rate'"),
        ("S -> I", r"must read 'reactants -> products : rate'"),
        ("S <-> I : k", r"must go one way.*Write a reversible reaction as two"),
        ("S <=> I : k", r"must go one way"),
        ("S -> 1.5 I : k", r"a side must read like '2 X \+ Y', '0' or nothing, got '1.5 I'"),
        ("S + -> I : k", r"a side must read like .*got ''"),
        ("0 S -> I : k", r"a coefficient must be at least 1, got '0 S'"),
        ("S -> 9999999 I : k", r"a coefficient must be a whole number from 1 to 1000000, got 9999999 I"),
        ("0 -> 0 : k", r"must take or make something"),
        ("1r: S -> I : k", r"a reaction's name must be letters, digits and _, got '1r'"),
        ("time -> I : k", r"a name must not be a word of the grammar, got 'time'"),
        ("S -> I : k*", r"reaction 'S -> I : k\*', the rate, column 4"),
        ("S -> I : k : 2", r"column 4"),
        ("99 S -> I @ k", r"mass action must take at most 30 molecules, got 99"),
        (7, r"must be text or a Reaction, got 7"),
    ],
)
def test_reactions_refused(text, match):
    with pytest.raises(ModelError, match=match):
        parse_reaction(text)


def test_reaction_objects_refused():
    with pytest.raises(ModelError, match="must have a `rate` or a `mass_action`, got neither"):
        Reaction({"X": 1}, {})
    with pytest.raises(ModelError, match="not two that differ"):
        Reaction({"X": 1}, {}, rate="X", mass_action="k")
    with pytest.raises(ModelError, match=r"coefficient must be a whole number from 1 .* got 0\.5 X"):
        Reaction({"X": 0.5}, {}, rate="X")
    with pytest.raises(ModelError, match=r"coefficient must be a whole number .* got True X"):
        Reaction({"X": True}, {}, rate="X")


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"species": {}}, r"`species` must hold at least one"),
        ({"species": ["S"]}, r"`species` must be a mapping of names, got \['S'\]"),
        ({"species": {"S": 1.5, "I": 0, "R": 0}}, r"initial amount of 'S' must be a whole number from 0 .* got 1.5"),
        ({"species": {"S": -1, "I": 0, "R": 0}}, r"initial amount of 'S' must be .* got -1"),
        ({"species": {"S": 2**52 + 1, "I": 0, "R": 0}}, r"initial amount of 'S' .* 2\^52, got 4503599627370497"),
        ({"species": {"S": float("nan"), "I": 0, "R": 0}}, r"initial amount of 'S' .* got nan"),
        ({"species": {"S": True, "I": 0, "R": 0}}, r"initial amount of 'S' must be .* got True"),
        ({"species": {"S": None, "I": 0, "R": 0}}, r"initial amount of 'S' must be .* got None"),
        ({"species": {"S": "3 - 5", "I": 0, "R": 0}}, r"initial amount of 'S' must be .* got -2.0"),
        ({"species": {"S": "766 - I", "I": 0, "R": 0}}, r"'I' in '766 - I' must be a parameter or constant"),
        ({"species": {"S": "alhpa", "I": 0, "R": 0}}, r"'alhpa' .* Did you mean 'alpha'"),
        ({"species": {"S-1": 1}}, r"species: a name must be letters, digits and _, not first a digit, got 'S-1'"),
        ({"species": {"if": 1}}, r"species: a name must not be a word of the grammar, got 'if'"),
        ({"species": {3: 1}}, r"a name must be letters.* got 3"),
        ({"parameters": "alpha"}, r"`parameters` must be a list of names, got 'alpha'"),
        ({"parameters": ["alpha", "beta", "alpha"]}, r"`parameters` must differ, got 'alpha' twice"),
        ({"parameters": ["alpha", "beta", "S"]}, r"parameter 'S' must have a name of its own, but a species has it"),
        ({"parameters": ["alpha"]}, r"reaction 1 .*'beta' in its rate must be a species, parameter or constant"),
        ({"constants": {"beta": 1}}, r"constant 'beta' must have a name of its own, but a parameter has it"),
        ({"constants": {"c": "1"}}, r"constant 'c' must be a finite number, got '1'"),
        ({"constants": {"c": 10**400}}, r"constant 'c' must be a finite number, got 1000"),
        ({"species": {"S": 10**400, "I": 0, "R": 0}}, r"initial amount of 'S': an expression must be text, got 1000"),
        ({"constants": {"c": True}}, r"constant 'c' must be a finite number, got True"),
        ({"constants": {"c": float("inf")}}, r"constant 'c' must be a finite number, got inf"),
        ({"reactions": []}, r"`reactions` must be a list of at least one reaction"),
        ({"reactions": "S -> I : S"}, r"`reactions` must be a list of at least one reaction"),
        ({"reactions": ["S -> Q : S"]}, r"reaction 1 'S -> Q : S': 'Q' must be a species"),
        ({"reactions": ["S -> I : bta*S"]}, r"'bta' in its rate must be .* Did you mean 'beta'"),
        ({"reactions": ["S -> I : t*S"]}, r"'t' in its rate must be .* depend on time come later"),
        ({"reactions": ["S -> I : S", 3]}, r"reaction 2 must be text or a Reaction, got 3"),
        ({"reactions": ["a: S -> I : S", "a: I -> R : I"]}, r"reaction names must differ, got 'a' twice"),
        ({"name": 3}, r"model name must be text, got 3"),
        ({"name": "\ud800"}, r"model name must be valid Unicode"),
    ],
)  # fmt: skip
def test_models_refused(change, match):
    with pytest.raises(ModelError, match=match):
        Model(**(SIR | change))


def test_amounts_up_to_the_limit_are_taken():
    assert Model({"X": 2**52}, (), ["X -> 0 : X"]).species["X"] == Number(2**52)


def test_a_large_model_prints_as_one_screen():
    names = [f"X{i}" for i in range(500)]
    model = Model(dict.fromkeys(names, 1), ["k"], [f"{a} -> {b} : k*{a}" for a, b in itertools.pairwise(names)])
    assert str(model).count("\n") < 50 and "499 reactions in all" in str(model)
