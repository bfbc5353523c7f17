"""The grammar, the tree and its calculus, against Python, sympy and finite differences."""

import math

import numpy as np
import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from ctmoments.errors import ModelError
from ctmoments.model.expressions import (
    ARITY,
    Call,
    Name,
    Number,
    differentiate,
    evaluate,
    free_names,
    parse_expression,
    simplify,
    substitute,
    to_latex,
    to_text,
    vanishes_below,
)

VALUES = {"x": 1.7, "y": 0.6, "k": 2.5, "n": 3.0}
LEAVES = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(Number), st.sampled_from(["x", "y", "k_1", "I0"]).map(Name)
)


def _calls(children):
    return st.sampled_from(sorted(ARITY)).flatmap(
        lambda op: st.tuples(*[children] * ARITY[op]).map(lambda arguments: Call(op, arguments))
    )


TREES = st.recursive(LEAVES, _calls, max_leaves=25)


@given(TREES)
def test_text_and_tree_round_trip(tree):
    assert parse_expression(to_text(tree)) == tree


@given(TREES)
def test_latex_is_written_and_balanced(tree):
    text = to_latex(tree)
    assert text.count("{") == text.count("}") and text.count(r"\left") == text.count(r"\right")


@given(TREES)
def test_simplify_keeps_finite_values(tree):
    values = {"x": 1.25, "y": 0.5, "k_1": 3.0, "I0": 2.0}
    before, after = evaluate(tree, values), evaluate(simplify(tree), values)
    if math.isfinite(before) and all(math.isfinite(evaluate(node, values)) for node in _nodes(tree)):
        assert after == before


def _nodes(tree):
    yield tree
    if isinstance(tree, Call):
        for argument in tree.arguments:
            yield from _nodes(argument)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 + 2*3", 7), ("(1 + 2)*3", 9), ("2^3^2", 512), ("2**3**2", 512), ("-x^2", -(1.7**2)), ("2^-1", 0.5),
        ("8/4/2", 1), ("10 - 4 - 3", 3), ("-x*y", -1.7 * 0.6), ("1e3 + .5 + 2.", 1002.5), ("1.5E-2", 0.015),
        ("x < y", 0), ("x >= 1.7", 1), ("x != 1.7", 0), ("not x < y and y == 0.6", 1), ("x < y or not 0", 1),
        ("if(x > y, 10, 20)", 10), ("if(x - 1.7, 10, 20)", 20), ("min(3, 1, 2)", 1), ("max(3, 1, 7, 2)", 7),
        ("exp(log(x))", math.exp(math.log(1.7))), ("sqrt(abs(-4))", 2), ("floor(-1.5) + ceil(1.2)", 0),
        ("hill(x, k, n)", 1.7**3 / (2.5**3 + 1.7**3)), ("hillr(x, k, n)", 2.5**3 / (2.5**3 + 1.7**3)),
        ("mm(x, 4, k)", 4 * 1.7 / (2.5 + 1.7)), ("1/0", math.inf), ("+x - -x", 3.4), ("(x<y) == (y>x)", 1),
    ],
)  # fmt: skip
def test_evaluate_agrees_with_python(text, expected):
    assert evaluate(parse_expression(text), VALUES) == pytest.approx(expected, rel=1e-15)


def test_evaluate_is_elementwise_and_quiet():
    x = np.array([-1.0, 0.0, 4.0])
    with np.errstate(all="raise"):
        got = evaluate(parse_expression("if(x > 0, sqrt(x), log(x)) + k"), {"x": x, "k": 1})
    np.testing.assert_array_equal(got, [math.nan, -math.inf, 3.0])


def test_operations_stay_in_the_order_written():
    tree = parse_expression("a*b*c")
    assert tree == Call("mul", (Call("mul", (Name("a"), Name("b"))), Name("c")))
    values = {"a": 0.1, "b": 0.2, "c": 0.3}
    assert evaluate(tree, values) == (0.1 * 0.2) * 0.3 != 0.1 * (0.2 * 0.3)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", r"expression, column 1: .*must stand here, got the end"),
        ("x +", r"column 4: .*got the end"),
        ("2 x", r"column 3: an operator or the end must follow, got 'x'"),
        ("2x", r"column 2: an operator"),
        ("(x + 1", r"column 7: '\)' must close the bracket of column 1, got the end"),
        ("x $ y", r"column 3: .*got '\$'"),
        ("x = y", r"equality is written =="),
        ("x < y < k", r"column 7: comparisons must not be chained"),
        ("sqr(x)", r"unknown function 'sqr'. Did you mean 'sqrt'\?"),
        ("beta(S + I)", r"unknown function 'beta'.*product is written with \*"),
        ("sqrt(x, y)", r"'sqrt' takes 1 arguments, got 2"),
        ("min(x)", r"'min' takes 2 or more arguments, got 1"),
        ("hill(x, k)", r"'hill' takes 3 arguments, got 2"),
        ("exp + 1", r"'exp' must be followed by '\('"),
        ("k*time", r"depend on time come later"),
        ("1e999", r"range of a float64, got 1e999"),
        ("1 + not x", r"'not' must stand in brackets"),
        ("__import__('os')", r"column 12: .*got"),
        ("x.real", r"column 2: .*got '\.'"),
        ("x and", r"column 6: .*got the end"),
        ("٣", r"column 1"),
        ("(" * 200 + "x" + ")" * 200, r"must not nest deeper than 100"),
        ("-" * 200 + "x", r"must not nest deeper than 100"),
        ("1 or 1 and 1 < 1 + 1 * (" * 90, r"must not nest deeper than 100"),
        ("+".join(["x"] * 200), r"must not nest deeper than 100; group"),
        ("x" * 10_001, r"at most 10000 characters, got 10001"),
    ],
)
def test_refusals_name_the_place(text, match):
    with pytest.raises(ModelError, match=match):
        parse_expression(text)


def test_refusals_outside_the_grammar():
    with pytest.raises(ModelError, match="reaction 'infection': an expression must be text, got 3"):
        parse_expression(3, "reaction 'infection'")
    with pytest.raises(ModelError, match="must be finite, got nan"):
        Number(math.nan)
    with pytest.raises(ModelError, match=r"unknown operation 'mull'. Did you mean 'mul'"):
        Call("mull", (Number(1), Number(1)))
    with pytest.raises(ModelError, match="'mul' takes 2 arguments, got 1"):
        Call("mul", (Number(1),))
    with pytest.raises(ModelError, match=r"no value for 'beta'. Did you mean 'beta1'"):
        evaluate(Name("beta"), {"beta1": 1.0})


def test_depth_100_works_everywhere():
    tree = parse_expression("(" * 90 + "x" + "*x)" * 90)
    assert evaluate(tree, {"x": 1.0}) == 1
    assert evaluate(differentiate(tree, "x"), {"x": 1.0}) == 91
    assert parse_expression(to_text(tree)) == tree
    assert hash(tree) == hash(parse_expression(to_text(tree)))


def test_substitute_replaces_at_once_and_folds_nothing():
    tree = substitute(parse_expression("x + y"), {"x": Name("y"), "y": 2})
    assert tree == parse_expression("y + 2")
    assert free_names(tree) == {"y"}
    assert to_text(substitute(parse_expression("x^2"), {"x": -3.0})) == "(-3)^2"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0*x", "0"), ("x*0 + y", "y"), ("1*x*1", "x"), ("x - 0", "x"), ("0 - x", "-x"), ("0/x", "0"), ("x^0", "1"),
        ("x^1", "x"), ("x/1", "x"), ("--x", "x"), ("if(1 < 2, x, y)", "x"), ("if(0, x, y)", "y"), ("2*3 + x", "6 + x"),
        ("1/0", "1/0"), ("0 and x", "0"), ("x or 1", "1"), ("(2 - 1)*x", "x"),
    ],
)  # fmt: skip
def test_simplify(text, expected):
    assert to_text(simplify(parse_expression(text))) == expected


SMOOTH = [
    "x^2*y", "x/(k + x)", "hill(x, k, n)", "hillr(x, k, 2)", "mm(x, y, k)", "exp(-k*x)*x", "log(x + y)/x", "x^y",
    "sqrt(x*y)", "2^x", "(x + y)^3/(1 + x*y)", "-x^3 + x", "x*(x - 1)/2", "k", "x", "y^x/x^y",
]  # fmt: skip


@pytest.mark.parametrize("text", SMOOTH)
@pytest.mark.parametrize("name", ["x", "y"])
def test_derivative_agrees_with_sympy(text, name):
    tree = parse_expression(text)
    symbols = {s: sympy.Symbol(s, positive=True) for s in VALUES}
    exact = sympy.diff(sympy.sympify(to_text(tree).replace("^", "**"), locals=symbols), symbols[name])
    exact = float(exact.subs({symbols[s]: v for s, v in VALUES.items()}))
    assert evaluate(differentiate(tree, name), VALUES) == pytest.approx(exact, rel=1e-12, abs=1e-14)


@pytest.mark.parametrize("text", ["min(x^2, y)", "max(x, y)*x", "abs(y - x)*x", "if(x > y, x^2, y)*x", "abs(x)"])
def test_derivative_with_kinks_agrees_with_differences(text):
    tree, h = parse_expression(text), 1e-6
    for x in (-1.3, 0.2, 1.7):
        up, down = (evaluate(tree, {"x": x + s, "y": 0.6}) for s in (h, -h))
        assert evaluate(differentiate(tree, "x"), {"x": x, "y": 0.6}) == pytest.approx((up - down) / (2 * h), rel=1e-6)


def test_derivative_of_a_power_is_finite_at_zero():
    for text, expected in [("x^2", 0.0), ("x^n", 0.0), ("hill(x, k, 2)", 0.0), ("x", 1.0)]:
        assert evaluate(differentiate(parse_expression(text), "x"), {"x": 0.0, "k": 1.0, "n": 3.0}) == expected


@pytest.mark.parametrize("text", ["floor(x)", "ceil(2*x)", "k*(x > 1)", "not x", "x and y"])
def test_derivative_refuses_jumps_by_name(text):
    with pytest.raises(ModelError, match=r"has no derivative with respect to 'x': '(floor|ceil|gt|not|and)'"):
        differentiate(parse_expression(text), "x")
    assert differentiate(parse_expression(text), "z") == Number(0)


@pytest.mark.parametrize(
    ("rate", "needed", "expected"),
    [
        ("k*X", 1, True), ("k*X", 2, False), ("k*X*(X - 1)", 2, True), ("k*X*X", 2, False), ("k", 1, False),
        ("k*Y/(X + Y)", 1, False), ("hill(X, k, 2)", 1, True), ("hill(X, k, n)", 1, False), ("k/X*X", 1, True),
        ("if(X >= 2, k, 0)", 2, True), ("if(X >= 2, k, 0)", 3, False), ("mm(X, v, k)", 1, True), ("k", 0, True),
        ("k*max(X - 1, 0)", 2, True), ("k*X*(X - 1)*(X - 2)/6", 3, True), ("k*(X - 1e-9)", 1, False),
    ],
)  # fmt: skip
def test_vanishes_below(rate, needed, expected):
    assert vanishes_below(parse_expression(rate), "X", needed) is expected
