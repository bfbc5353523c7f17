"""Arithmetic, decided once: what every kernel and the interpreter compute, operation by operation.

The algorithms below (generator, logarithm, exponential, power) are written against `Arithmetic`, a short list of
IEEE-754 double and 64-bit word operations. `ir.Lanes` emits them as LLVM IR for any number of lanes; `scalars.Scalars`
carries them out on Python numbers and is the oracle. No operation is reordered or contracted, every fused
multiply-add is asked for by name, so a path is the same path on SSE, AVX-512, ARM and CUDA.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

from ctmoments.simulate.streams import MULTIPLIERS, SHIFTS

Real = Any  # a double, or a vector of doubles
Word = Any  # an unsigned 64-bit word, or a vector of them
Mask = Any  # a truth value, or a vector of them


class Arithmetic(Protocol):
    """What an implementation offers. Shifts take a plain number of bits; `shr` fills with zeros."""

    def real(self, value: float) -> Real: ...
    def word(self, value: int) -> Word: ...
    def add(self, a: Real, b: Real) -> Real: ...
    def sub(self, a: Real, b: Real) -> Real: ...
    def mul(self, a: Real, b: Real) -> Real: ...
    def div(self, a: Real, b: Real) -> Real: ...
    def fma(self, a: Real, b: Real, c: Real) -> Real: ...
    def neg(self, a: Real) -> Real: ...
    def abs(self, a: Real) -> Real: ...
    def sqrt(self, a: Real) -> Real: ...
    def floor(self, a: Real) -> Real: ...
    def ceil(self, a: Real) -> Real: ...
    def compare(self, op: str, a: Real, b: Real) -> Mask: ...
    def both(self, a: Mask, b: Mask) -> Mask: ...
    def either(self, a: Mask, b: Mask) -> Mask: ...
    def negate(self, a: Mask) -> Mask: ...
    def select(self, mask: Mask, a: Real, b: Real) -> Real: ...
    def bits(self, a: Real) -> Word: ...
    def from_bits(self, a: Word) -> Real: ...
    def word_add(self, a: Word, b: Word) -> Word: ...
    def word_sub(self, a: Word, b: Word) -> Word: ...
    def word_mul(self, a: Word, b: Word) -> Word: ...
    def word_or(self, a: Word, b: Word) -> Word: ...
    def word_xor(self, a: Word, b: Word) -> Word: ...
    def shl(self, a: Word, count: int) -> Word: ...
    def shr(self, a: Word, count: int) -> Word: ...


# ---- random numbers -------------------------------------------------------------------------------------------

ONE_BITS = 0x3FF0000000000000


def mix64(on: Arithmetic, word: Word) -> Word:
    """The finaliser of splitmix64; `streams.mix64` is the same in NumPy."""
    for shift, multiplier in zip(SHIFTS[:2], MULTIPLIERS, strict=True):
        word = on.word_mul(on.word_xor(word, on.shr(word, shift)), on.word(multiplier))
    return on.word_xor(word, on.shr(word, SHIFTS[2]))


def rotate(on: Arithmetic, word: Word, count: int) -> Word:
    """Rotate left."""
    return on.word_or(on.shl(word, count), on.shr(word, 64 - count))


def draw(on: Arithmetic, state: tuple[Word, ...]) -> tuple[Word, tuple[Word, ...]]:
    """One word of xoshiro256+ (Blackman & Vigna 2021) and the state after it.

    Its lowest bits are linear in the state and are thrown away by `uniform`; the others are as good as those of
    xoshiro256++, which takes two operations a word more.
    """
    s0, s1, s2, s3 = state
    word = on.word_add(s0, s3)
    shifted = on.shl(s1, 17)
    s2 = on.word_xor(s2, s0)
    s3 = on.word_xor(s3, s1)
    s1 = on.word_xor(s1, s2)
    s0 = on.word_xor(s0, s3)
    s2 = on.word_xor(s2, shifted)
    return word, (s0, s1, s2, rotate(on, s3, 45))


def uniform(on: Arithmetic, word: Word) -> Real:
    """(k + 1/2) / 2^52 for the top 52 bits k: never 0, never 1, so that log(u) < 0 and u * total < total."""
    one_to_two = on.from_bits(on.word_or(on.shr(word, 12), on.word(ONE_BITS)))
    return on.sub(one_to_two, on.real(1.0 - 2.0**-53))


# ---- exponential waiting times ----------------------------------------------------------------------------------

# Minimax polynomial (Remez, 60 digits) for log(1 + f)/f on [sqrt(1/2) - 1, sqrt(2) - 1], relative error 2.6e-12.
# No division: 8 % faster on Intel than log by (m - 1)/(m + 1), and far below what any sample could tell.
WAITING_LOG = (
    0.9999999999983441, -0.4999999999189498, 0.3333333346086337, -0.25000002281467243, 0.19999985274124824,
    -0.16666476754117018, 0.14286257126809743, -0.12506922390721506, 0.1110537294371802, -0.09877254379533244,
    0.09030021063417122, -0.09331785919931418, 0.09185013145998953, -0.048339373700104785,
)  # fmt: skip
SQRT_HALF_BITS = 0x3FE6A09E667F3BCD
TWO_52_BITS = 0x4330000000000000
LN2 = 0.6931471805599453
LN2_HIGH = 0.6931471803691238  # 32 bits: LN2_HIGH * n is exact for |n| < 2^21
LN2_LOW = 1.9082149292705877e-10


def split_binary(on: Arithmetic, a: Real) -> tuple[Real, Real]:
    """A positive normal number as 2^n * m with m in [sqrt(1/2), sqrt(2)): (n, m), both doubles."""
    shifted = on.word_add(on.bits(a), on.word(ONE_BITS - SQRT_HALF_BITS))
    exponent = on.shr(shifted, 52)  # n + 1023
    mantissa = on.from_bits(on.word_add(on.word_sub(on.bits(a), on.shl(exponent, 52)), on.word(ONE_BITS)))
    n = on.sub(on.from_bits(on.word_or(exponent, on.word(TWO_52_BITS))), on.real(2.0**52 + 1023.0))
    return n, mantissa


def horner(on: Arithmetic, coefficients: tuple[float, ...], x: Real) -> Real:
    """A polynomial, lowest degree first, by fused multiply-adds."""
    result = on.real(coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        result = on.fma(result, x, on.real(coefficient))
    return result


def exponential(on: Arithmetic, word: Word) -> Real:
    """A unit exponential: -log(u), positive, at most 36.8."""
    n, mantissa = split_binary(on, uniform(on, word))
    f = on.sub(mantissa, on.real(1.0))
    square = on.mul(f, f)  # even and odd terms apart: half the latency of one chain
    even, odd = (horner(on, tuple(-c for c in WAITING_LOG[start::2]), square) for start in (0, 1))
    return on.fma(on.fma(odd, f, even), f, on.mul(n, on.real(-LN2)))


# ---- functions in rates -----------------------------------------------------------------------------------------

# atanh series on s = f/(2 + f), |s| < 0.1716: log(m) = 2 s + s^3 * P(s^2); truncation below 1e-17.
ATANH = tuple(2.0 / (2 * k + 3) for k in range(9))
EXP_TAYLOR = tuple(1.0 / math.factorial(k) for k in range(14))  # |r| <= log(2)/2: truncation 4e-18
INV_LN2 = 1.4426950408889634
ROUND_MAGIC = 1.5 * 2.0**52  # adding and subtracting it rounds to the nearest whole number


def log(on: Arithmetic, a: Real) -> Real:
    """Natural logarithm within 2 units in the last place; log(0) = -inf, log of a negative number NaN."""
    tiny = on.compare("lt", a, on.real(2.0**-1022))
    n, mantissa = split_binary(on, on.select(tiny, on.mul(a, on.real(2.0**54)), a))
    n = on.select(tiny, on.sub(n, on.real(54.0)), n)
    f = on.sub(mantissa, on.real(1.0))
    s = on.div(f, on.add(on.real(2.0), f))
    square = on.mul(s, s)
    tail = on.mul(on.mul(s, square), horner(on, ATANH, square))
    # 2 s = f - s f keeps the leading term exact
    log_mantissa = on.sub(f, on.sub(on.mul(s, f), tail))
    result = on.add(on.mul(n, on.real(LN2_HIGH)), on.fma(n, on.real(LN2_LOW), log_mantissa))
    result = on.select(on.compare("eq", a, on.real(0.0)), on.real(-math.inf), result)
    result = on.select(on.compare("eq", a, on.real(math.inf)), a, result)
    bad = on.either(on.compare("lt", a, on.real(0.0)), on.compare("ne", a, a))
    return on.select(bad, on.real(math.nan), result)


def exp(on: Arithmetic, a: Real) -> Real:
    """Exponential within 2 units in the last place; overflows to inf, underflows to 0 by way of subnormals."""
    clamped = on.select(on.compare("gt", a, on.real(710.0)), on.real(710.0), a)
    clamped = on.select(on.compare("lt", clamped, on.real(-746.0)), on.real(-746.0), clamped)
    shifted = on.fma(clamped, on.real(INV_LN2), on.real(ROUND_MAGIC))
    n = on.sub(shifted, on.real(ROUND_MAGIC))
    r = on.fma(n, on.real(-LN2_LOW), on.fma(n, on.real(-LN2_HIGH), clamped))
    result = horner(on, EXP_TAYLOR, r)
    # 2^n in two halves, so that neither leaves the range of normal numbers
    half = on.sub(on.fma(n, on.real(0.5), on.real(ROUND_MAGIC)), on.real(ROUND_MAGIC))
    for part in (half, on.sub(n, half)):
        result = on.mul(result, power_of_two(on, part))
    return on.select(on.compare("ne", a, a), a, result)


def power_of_two(on: Arithmetic, n: Real) -> Real:
    """2^n for a whole number |n| <= 1022 given as a double."""
    biased = on.bits(on.add(n, on.real(2.0**52 + 1023.0)))
    return on.from_bits(on.shl(biased, 52))


def power(on: Arithmetic, base: Real, exponent: Real) -> Real:
    """base ^ exponent by exp(exponent * log|base|): relative error about 2e-16 * (1 + |exponent * log base|).

    0^0 = 1; a negative base needs a whole exponent, and is NaN otherwise. Whole constant exponents up to 64 never
    come here: `whole_power` multiplies.
    """
    size = on.abs(base)
    result = exp(on, on.mul(exponent, log(on, size)))
    whole = on.compare("eq", on.floor(exponent), exponent)
    half = on.mul(exponent, on.real(0.5))
    odd = on.both(whole, on.compare("ne", on.floor(half), half))
    negative = on.compare("lt", base, on.real(0.0))
    result = on.select(on.both(negative, odd), on.neg(result), result)
    result = on.select(on.both(negative, on.negate(whole)), on.real(math.nan), result)
    one = on.either(on.compare("eq", exponent, on.real(0.0)), on.compare("eq", base, on.real(1.0)))
    return on.select(one, on.real(1.0), result)


def whole_power(on: Arithmetic, base: Real, exponent: int) -> Real:
    """base ^ exponent for a whole exponent >= 1, by squaring from the lowest bit."""
    result = None
    while True:
        if exponent & 1:
            result = base if result is None else on.mul(result, base)
        exponent >>= 1
        if not exponent:
            return result
        base = on.mul(base, base)
