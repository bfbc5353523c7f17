"""Arithmetic written once: accurate against mpmath, special values as in IEEE, equal to the bit in every width."""

from __future__ import annotations

import ctypes
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from llvmlite import ir

from ctmoments.simulate import arithmetic
from ctmoments.simulate.engine import compile_function
from ctmoments.simulate.ir import POINTER, WORD, Lanes, load, store, word
from ctmoments.simulate.scalars import Scalars

ON = Scalars()
WIDTHS = (1, 2, 4, 8)
INF, NAN = math.inf, math.nan
SPECIAL = [0.0, -0.0, 1.0, -1.0, INF, -INF, NAN, 5e-324, 2.2e-308, -5e-324, 1.7e308, -1.7e308, 0.5, 2.0, -2.0, 3.0]
UNARY = {"log": arithmetic.log, "exp": arithmetic.exp}
mpmath.mp.dps = 40


def _compiled(function, arity: int, width: int, words: bool = False):
    """A function of `arithmetic` as machine code over arrays (a multiple of `width` long)."""
    module = ir.Module("probe")
    builder = ir.IRBuilder(ir.Function(module, ir.FunctionType(WORD, [POINTER]), "probe").append_basic_block("entry"))
    on = Lanes(builder, width)
    base = builder.function.args[0]
    arguments = [load(builder, on.words if words else on.reals, base, word(k * width)) for k in range(arity)]
    store(builder, function(on, *arguments), base, word(arity * width))
    builder.ret(word(0))
    code = compile_function(str(module), "probe")

    def call(*arrays):
        result = np.empty(len(arrays[0]))
        cells = np.empty((arity + 1) * width, np.uint64 if words else np.float64)
        for k in range(0, len(result), width):
            for argument, array in enumerate(arrays):
                cells[argument * width : (argument + 1) * width] = array[k : k + width]
            code(cells.ctypes.data_as(ctypes.c_void_p).value)
            result[k : k + width] = cells[arity * width :].view(np.float64)
        return result

    return call


def _same_bits(a, b) -> bool:
    a, b = np.asarray(a, float), np.asarray(b, float)
    return bool(((a.view(np.uint64) == b.view(np.uint64)) | (np.isnan(a) & np.isnan(b))).all())


def _inputs(count: int = 512) -> np.ndarray:
    rng = np.random.default_rng(1)
    wide = np.exp2(rng.uniform(-1074, 1023.9, count - len(SPECIAL) - 64))
    near_one = 1 + rng.uniform(-0.5, 1.0, 64) * np.exp2(-rng.integers(0, 52, 64))
    return np.concatenate([SPECIAL, near_one, wide])


def _exp_inputs() -> np.ndarray:
    return np.concatenate([SPECIAL, np.linspace(-746, 710, 431), np.exp2(np.linspace(-60, 9, 65))])


@pytest.mark.parametrize("name", UNARY)
def test_functions_are_the_same_bits_at_every_width(name):
    values = _exp_inputs() if name == "exp" else _inputs()
    oracle = [UNARY[name](ON, float(value)) for value in values]
    for width in WIDTHS:
        assert _same_bits(_compiled(UNARY[name], 1, width)(values), oracle), width


def test_power_is_the_same_bits_at_every_width():
    rng = np.random.default_rng(2)
    pairs = np.array([(a, b) for a in SPECIAL for b in SPECIAL])
    more = np.stack([rng.uniform(0, 50, 256), rng.uniform(-9, 9, 256)], axis=1)
    base, exponent = np.concatenate([pairs, more]).T
    oracle = [arithmetic.power(ON, float(a), float(b)) for a, b in zip(base, exponent, strict=True)]
    for width in WIDTHS:
        assert _same_bits(_compiled(arithmetic.power, 2, width)(base, exponent), oracle), width


def _ulps(got: float, exact) -> float:
    return float(abs(mpmath.mpf(got) - exact) / math.ulp(float(exact)))


def test_log_is_within_2_units_in_the_last_place():
    values = _inputs()
    values = values[(values > 0) & (values < INF)]
    assert max(_ulps(arithmetic.log(ON, v), mpmath.log(mpmath.mpf(float(v)))) for v in values.tolist() if v != 1) < 2


def test_exp_is_within_2_units_in_the_last_place():
    values = [v for v in _exp_inputs().tolist() if -708 < v < 709.7]
    assert max(_ulps(arithmetic.exp(ON, v), mpmath.exp(mpmath.mpf(v))) for v in values) < 2
    small = [v for v in _exp_inputs().tolist() if -744.5 < v < -708]  # subnormal: one step of 5e-324 more
    assert max(_ulps(arithmetic.exp(ON, v), mpmath.exp(mpmath.mpf(v))) for v in small) < 2


def test_power_keeps_the_promised_error():
    rng = np.random.default_rng(3)
    for base, exponent in zip(np.exp(rng.uniform(-9, 9, 400)), rng.uniform(-20, 20, 400), strict=True):
        exact = mpmath.mpf(float(base)) ** mpmath.mpf(float(exponent))
        error = abs(mpmath.mpf(arithmetic.power(ON, float(base), float(exponent))) / exact - 1)
        assert error < 2.3e-16 * 2 * (1 + abs(exponent * math.log(base)))


@pytest.mark.parametrize(("function", "arguments", "wanted"), [
    ("log", (0.0,), -INF), ("log", (-0.0,), -INF), ("log", (-1.0,), NAN), ("log", (INF,), INF), ("log", (1.0,), 0.0),
    ("log", (NAN,), NAN), ("log", (-INF,), NAN), ("exp", (-INF,), 0.0), ("exp", (INF,), INF), ("exp", (0.0,), 1.0),
    ("exp", (-800.0,), 0.0), ("exp", (709.79,), INF), ("exp", (NAN,), NAN),
    ("power", (0.0, 0.0), 1.0), ("power", (0.0, 2.5), 0.0), ("power", (0.0, -1.5), INF), ("power", (-8.0, 1 / 3), NAN),
    ("power", (-2.0, 3.0), -8.0), ("power", (-2.0, 4.0), 16.0), ("power", (NAN, 0.0), 1.0), ("power", (1.0, NAN), 1.0),
    ("power", (NAN, 2.5), NAN), ("power", (INF, -0.5), 0.0), ("power", (0.5, INF), 0.0), ("power", (2.0, INF), INF),
])  # fmt: skip
def test_special_values(function, arguments, wanted):
    got = getattr(arithmetic, function)(ON, *arguments)
    assert math.isnan(got) if math.isnan(wanted) else got == pytest.approx(wanted, rel=1e-15, abs=0)


def test_whole_powers_multiply():
    for exponent in range(1, 65):
        assert arithmetic.whole_power(ON, 2.0, exponent) == 2.0**exponent
        assert arithmetic.whole_power(ON, 1.1, exponent) == pytest.approx(1.1**exponent, rel=1e-14)


def test_uniforms_never_reach_0_or_1_and_have_52_bits():
    """u = 0 and u = 1 would give infinite and zero times; 32 bits would end waiting times at 22."""
    assert arithmetic.uniform(ON, 0) == 2.0**-53
    assert arithmetic.uniform(ON, 2**64 - 1) == 1 - 2.0**-53
    for k in (0, 1, 2**31, 2**51, 2**52 - 2):
        assert arithmetic.uniform(ON, (k + 1) << 12) - arithmetic.uniform(ON, k << 12) == 2.0**-52


def test_thresholds_stay_below_the_total():
    """u * total < total for the largest u, so that a last reaction of rate 0 is never reached by rounding."""
    largest = arithmetic.uniform(ON, 2**64 - 1)
    totals = np.exp2(np.random.default_rng(5).uniform(-1000, 1000, 10_000))
    for total in (*totals, *np.nextafter(np.exp2(np.arange(-1000, 1000, 7)), 0), *np.exp2(np.arange(-1000.0, 1000))):
        assert largest * total < total


def test_exponentials_are_minus_log_u():
    """Positive, at most 36.74, relative error 3e-12: far from log(0), and no waiting time cut off at 22."""
    words = [0, 1 << 12, 1 << 30, 1 << 40, 1 << 63, (1 << 63) - 1, (3 << 62) + 12345, 2**64 - 1, 2**64 - (1 << 12)]
    words += np.random.default_rng(6).integers(0, 2**64, 2000, dtype=np.uint64).tolist()
    values = [arithmetic.exponential(ON, value) for value in words]
    for value, got in zip(words, values, strict=True):
        k = Fraction(2 * (value >> 12) + 1, 2**53)
        exact = -mpmath.log(mpmath.mpf(k.numerator) / k.denominator)
        assert got > 0 and abs(got / exact - 1) < 4e-12
    assert max(values) == values[0] == pytest.approx(53 * math.log(2), rel=1e-11)
    for width in WIDTHS:
        padded = np.array(words[: len(words) // 8 * 8], np.uint64)
        got = _compiled(arithmetic.exponential, 1, width, words=True)(padded)
        assert _same_bits(got, values[: len(padded)]), width


def test_scalars_overflow_as_ieee_does():
    assert ON.fma(1e200, 1e200, -1.0) == INF and ON.fma(1e200, -1e200, 1.0) == -INF
    assert ON.fma(1e200, 1e200, -INF) == -INF and math.isnan(ON.fma(INF, 0.0, 1.0))
    assert ON.div(1.0, 0.0) == INF and ON.div(-1.0, 0.0) == -INF and ON.div(1.0, -0.0) == -INF
    assert math.isnan(ON.div(0.0, 0.0)) and math.isnan(ON.div(NAN, 0.0))
