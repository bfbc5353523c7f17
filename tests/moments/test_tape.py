"""A tape gives what `evaluate` gives, with every register reused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctmoments.errors import ModelError
from ctmoments.model.expressions import ARITY, Call, Name, Number, evaluate, parse_expression
from ctmoments.moments.tape import FUNCTIONS, compile_tape

NAMES = ("x", "y", "z")
LEAVES = st.sampled_from([Name(name) for name in NAMES]) | st.sampled_from([-1.5, 0.0, 0.5, 1.0, 2.0, 3.0]).map(Number)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        *[st.tuples(*[inner] * count).map(lambda arguments, op=op: Call(op, arguments)) for op, count in ARITY.items()]
    ),
    max_leaves=12,
)


def test_every_operation_has_a_function():
    assert set(FUNCTIONS) == set(ARITY)


@settings(max_examples=200, deadline=None)
@given(st.lists(TREES, min_size=1, max_size=6), st.integers(0, 2**32 - 1))
def test_agrees_with_evaluate(expressions, seed):
    values = np.random.default_rng(seed).uniform(-2, 2, (3, 5))
    values[:, 0] = [0.0, 1.0, 2.0]
    found = compile_tape(expressions, NAMES)(values)
    for row, expression in zip(found, expressions, strict=True):
        expected = np.broadcast_to(evaluate(expression, dict(zip(NAMES, values, strict=True))), 5)
        np.testing.assert_allclose(row, expected, rtol=1e-12, atol=0)


def test_shared_parts_are_computed_once():
    tape = compile_tape([parse_expression("(x + y)*(x + y)"), parse_expression("1/(x + y)")], NAMES)
    assert len(tape.operations) == 3


def test_an_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(ModelError, match=r"'betta'.*'beta'"):
        compile_tape([Name("betta")], ["beta"])
