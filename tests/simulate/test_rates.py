"""Rates: machine code, the oracle and NumPy agree on every operation of the grammar, and on random trees."""

from __future__ import annotations

import ctypes
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from llvmlite import ir

from ctmoments.model.expressions import ARITY, Call, Name, Number, evaluate, parse_expression, walk
from ctmoments.simulate.engine import compile_function
from ctmoments.simulate.ir import POINTER, WORD, Lanes, load, store, word
from ctmoments.simulate.rates import RateWriter
from ctmoments.simulate.scalars import Scalars

NAMES = ("x", "y", "k")
POINTS = [
    (0.0, 0.0, 1.0), (1.0, 2.0, 0.5), (7.0, 3.0, 2.5), (40.0, 0.0, -1.5), (3.0, 3.0, 0.0), (2.0**40, 5.0, 1e-9),
    (1e6, 12.0, 1e3), (6.0, 9.0, 1 / 3),
]  # fmt: skip
EVERY_OP = (
    "x + y*k - x/3", "-x^2", "x^0", "x^1", "x^7", "(x + 1)^-3", "(x + 1)^0.5", "(x + 1)^64", "(x + 1)^-65", "k^3",
    "exp(-x/9)", "log(x + 1)", "sqrt(x)", "abs(x - y)", "floor(x/3)", "ceil(x/3)", "min(x, y, 2)", "max(x, y, 2)",
    "x < y", "x <= y", "x > y", "x >= y", "x == y", "x != y", "x and y", "x or y", "not x", "not (x < y or y == 3)",
    "if(x > y, x, k)", "if(x, 1/x, 0)", "hill(x, 3, 2)", "hillr(x, 3, 2.5)", "mm(x, 4, 2)", "x*(x - 1)*(x - 2)",
    "if(x > 2 and not (y > 5), floor(k*x)^2, max(y, k))", "min(x/(y - y), 3)", "log(-x - 1)", "max(sqrt(-1 - x), 2)",
)  # fmt: skip


def _compiled(expression, width: int) -> list[float]:
    module = ir.Module("probe")
    builder = ir.IRBuilder(ir.Function(module, ir.FunctionType(WORD, [POINTER]), "probe").append_basic_block("entry"))
    on, base = Lanes(builder, width), builder.function.args[0]
    values = {name: load(builder, on.reals, base, word(k * width)) for k, name in enumerate(NAMES)}
    store(builder, RateWriter(on, values).real(expression), base, word(len(NAMES) * width))
    builder.ret(word(0))
    code, results = compile_function(str(module), "probe"), []
    for k in range(0, len(POINTS), width):
        cells = np.concatenate([np.array(POINTS[k : k + width]).T.ravel(), np.zeros(width)])
        code(cells.ctypes.data_as(ctypes.c_void_p).value)
        results += cells[-width:].tolist()
    return results


def _oracle(expression) -> list[float]:
    return [RateWriter(Scalars(), dict(zip(NAMES, point, strict=True))).real(expression) for point in POINTS]


def _bits(values) -> list[int]:
    return [-1 if math.isnan(value) else int(np.float64(value).view(np.uint64)) for value in values]


@pytest.mark.parametrize("text", EVERY_OP)
def test_every_operation(text):
    expression = parse_expression(text)
    oracle = _oracle(expression)
    numpy = [evaluate(expression, dict(zip(NAMES, point, strict=True))) for point in POINTS]
    np.testing.assert_allclose(oracle, numpy, rtol=1e-13)
    for width in (1, 8):
        assert _bits(_compiled(expression, width)) == _bits(oracle), width


def test_the_list_holds_every_operation():
    used = {node.op for text in EVERY_OP for node, _ in walk(parse_expression(text)) if isinstance(node, Call)}
    assert used == set(ARITY)


LEAVES = some.one_of(
    some.sampled_from(NAMES).map(Name), some.sampled_from([0.0, 1.0, 2.0, 3.0, -1.0, 0.5, 1e300]).map(Number)
)
TREES = some.recursive(
    LEAVES,
    lambda inner: some.one_of([some.tuples(*[inner] * n).map(lambda a, op=op: Call(op, a)) for op, n in ARITY.items()]),
    max_leaves=12,
)


@given(TREES)
def test_random_trees_are_the_same_bits(expression):
    """Machine code against the oracle: NaN, infinities and signed zeros included."""
    assert _bits(_compiled(expression, 8)) == _bits(_oracle(expression))
