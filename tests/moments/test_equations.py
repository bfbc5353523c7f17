"""The hierarchy against the paper's formula, against sympy's own expansion of the generator, and in its words."""

from math import comb

import numpy as np
import pytest
import sympy

from ctmoments.errors import ModelError
from ctmoments.model.expressions import evaluate
from ctmoments.model.library import load_problem
from ctmoments.model.model import Model
from ctmoments.moments.equations import moment_equations

SIR = Model(
    {"S": 763, "I": 3, "R": 0}, ["gamma", "beta"], ["S + I -> 2 I : beta*S*I", "I -> R : gamma*I"], name="the SIR"
)


def paper_derivative(a, b, beta, gamma):
    """M_{a,b}' of the paper's appendix: {powers: coefficient}."""
    terms = {}

    def add(powers, number):
        terms[powers] = terms.get(powers, 0.0) + number

    for n in range(b + 1):
        for m in range(a + 1):
            add((m + 1, n + 1), beta * comb(a, m) * comb(b, n) * (-1) ** (a - m))
        add((a, n + 1), gamma * comb(b, n) * (-1) ** (b - n))
    add((a + 1, b + 1), -beta)
    add((a, b + 1), -gamma)
    return {powers: number for powers, number in terms.items() if abs(number) > 1e-12}


@pytest.mark.parametrize(("a", "b"), [(a, n - a) for n in range(1, 5) for a in range(n + 1)])
def test_the_papers_formula(a, b):
    equations = moment_equations(SIR, order=4, species=["S", "I"])
    values = {"beta": 0.37, "gamma": 1.9}
    found = {powers: evaluate(c, values) for powers, c in equations.derivative(S=a, I=b).items()}
    assert found == pytest.approx(paper_derivative(a, b, **values))


def test_the_sir_in_words():
    equations = moment_equations(SIR)
    lines = equations.to_text().splitlines()
    assert "E[I]' = beta*E[S*I] - gamma*E[I]" in lines
    assert "E[S*I]' = beta*(-E[S*I] - E[S*I^2] + E[S^2*I]) - gamma*E[S*I]" in lines
    central = equations.to_text("central").splitlines()
    assert "Cov(S, I)' = beta*(-Cov(S*I, I) + Cov(S*I, S) - E[S*I]) - gamma*Cov(S, I)" in central
    assert not equations.closed
    assert equations.missing == ("E[S*I*R]", "E[S*I^2]", "E[S^2*I]")
    assert repr(equations).startswith("Moment equations of the SIR up to order 2, not closed: E[S*I*R], ")
    assert len(repr(equations).splitlines()) == 10


def test_the_sir_in_latex():
    latex = moment_equations(SIR, species=["S", "I"]).to_latex()
    assert r"\frac{d}{dt} \mathrm{E}\left[I\right] &= \beta \, \mathrm{E}\left[S \, I\right] - \gamma \, " in latex
    assert latex.count(r"\\") == 4
    assert latex.count("{") == latex.count("}")


def test_linear_networks_close_at_every_order():
    telegraph = load_problem("telegraph").model
    for order in (1, 2, 3):
        equations = moment_equations(telegraph, order)
        assert equations.closed
        assert equations.missing == ()
        assert "closed: no higher moments" in repr(equations)


def test_what_cancels_is_gone():
    model = Model({"X": 4}, ["k"], ["0 -> X : k*X*X/3", "X -> 0 : k*X^2/6 + k*X*X/6"])
    equations = moment_equations(model)
    assert equations.to_text().splitlines()[0] == "E[X]' = 0"
    assert equations.to_text().splitlines()[1] == "E[X^2]' = 2/3*k*E[X^2]"
    assert equations.closed


@pytest.mark.parametrize("name", ["schlogl", "dimerisation", "lotka-volterra", "seir"])
def test_against_the_generator_expanded_by_sympy(name):
    model = load_problem(name).model
    symbols = dict(zip((*model.species, *model.parameters), sympy.symbols("v0:30"), strict=False))
    amounts = [symbols[s] for s in model.species]
    rates = [sympy.sympify(str(rate).replace("^", "**"), locals=symbols) for rate in model.rates]
    for powers, _ in moment_equations(model).equations.items():
        monomial = sympy.prod([x**n for x, n in zip(amounts, powers, strict=True)])
        expected = sum(
            rate
            * (
                monomial.subs({x: x + int(s) for x, s in zip(amounts, change, strict=True)}, simultaneous=True)
                - monomial
            )
            for rate, change in zip(rates, model.stoichiometry.T, strict=True)
        )
        derivative = moment_equations(model).derivative(**dict(zip(model.species, powers, strict=True)))
        found = sum(
            sympy.sympify(str(c).replace("^", "**"), locals=symbols)
            * sympy.prod([x**n for x, n in zip(amounts, p, strict=True)])
            for p, c in derivative.items()
        )
        difference = sympy.Poly(sympy.expand(expected - found), *amounts)
        assert max([abs(c.subs(dict.fromkeys(symbols.values(), 1.3))) for c in difference.coeffs()] or [0]) < 1e-9


def test_covariance_equations_are_what_the_raw_ones_imply():
    """On any distribution: Cov(i, j)' = E[ij]' - E[i]' E[j] - E[i] E[j]'."""
    equations = moment_equations(SIR)
    states = np.random.default_rng(0).integers(0, 9, (50, 3)).astype(float)
    values = {"beta": 0.37, "gamma": 1.9}

    def mono(powers):
        return np.prod(states**powers, axis=1)

    def moment(powers):
        return mono(powers).mean()

    def slope(powers):
        return sum(evaluate(c, values) * moment(p) for p, c in equations.derivative(**powers).items())

    def central(i, j):
        from ctmoments.moments.polynomials import factor_expression

        total = 0.0
        for (symbol, factor), number in equations.covariance_equations[i, j].items():
            kind, *parts = symbol
            if kind == "E":
                value = moment(parts[0])
            else:
                value = (mono(parts[0]) * mono(parts[1])).mean() - moment(parts[0]) * moment(parts[1])
            total += float(number) * evaluate(factor_expression(factor), values) * value
        return total

    names = ("S", "I", "R")
    means = states.mean(axis=0)
    for i in range(3):
        for j in range(i, 3):
            both = {names[i]: 2} if i == j else {names[i]: 1, names[j]: 1}
            expected = slope(both) - slope({names[i]: 1}) * means[j] - means[i] * slope({names[j]: 1})
            assert central(i, j) == pytest.approx(expected, rel=1e-10)


def test_rates_that_are_no_polynomials_are_refused_by_name():
    toggle = load_problem("toggle-switch").model
    with pytest.raises(ModelError, match=r"reaction .*polynomials in the species, got .*Use exact_moments"):
        moment_equations(toggle)


def test_factors_of_parameters_may_be_anything():
    model = Model({"X": 4}, ["k", "N"], ["0 -> X : exp(k)/(k + N)", "X -> 0 : X*(X - 1)/N^0.5"])
    text = moment_equations(model, 1).to_text()
    assert text == "E[X]' = exp(k)/(k + N) + 1/N^0.5*(E[X] - E[X^2])"


@pytest.mark.parametrize(("kwargs", "match"), [({"order": 0}, "from 1, got 0"), ({"species": ["Q"]}, "got 'Q'")])
def test_bad_input(kwargs, match):
    with pytest.raises(ModelError, match=match):
        moment_equations(SIR, **kwargs)
    with pytest.raises(ModelError, match='"raw" or "central", got \'x\''):
        moment_equations(SIR).to_text("x")
    with pytest.raises(ModelError, match="order 1 to 2 have equations here, got order 3"):
        moment_equations(SIR).derivative(S=3)
