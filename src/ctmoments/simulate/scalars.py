"""`Arithmetic` on Python numbers, slow and plain: the oracle that kernels must agree with to the bit."""

from __future__ import annotations

import math
import operator
import struct
from fractions import Fraction


class Scalars:
    """`Arithmetic` on Python numbers, slow and plain: what a kernel must agree with to the bit."""

    MASK = 2**64 - 1

    def real(self, value):
        return float(value)

    def word(self, value):
        return value & self.MASK

    def add(self, a, b):
        return a + b

    def sub(self, a, b):
        return a - b

    def mul(self, a, b):
        return a * b

    def div(self, a, b):
        if b == 0.0:
            return math.nan if a == 0.0 or a != a else math.copysign(math.inf, a) * math.copysign(1.0, b)
        return a / b

    def fma(self, a, b, c):
        if not (math.isfinite(a) and math.isfinite(b)):
            return a * b + c
        if not math.isfinite(c):
            return c
        exact = Fraction(a) * Fraction(b) + Fraction(c)
        if exact == 0:
            return a * b + c
        try:
            return float(exact)
        except OverflowError:
            return math.inf if exact > 0 else -math.inf

    def neg(self, a):
        return -a

    def abs(self, a):
        return abs(a)

    def sqrt(self, a):
        return math.sqrt(a) if a >= 0.0 else math.nan

    def floor(self, a):
        return math.copysign(math.floor(a), a) if math.isfinite(a) else a

    def ceil(self, a):
        return math.copysign(math.ceil(a), a) if math.isfinite(a) else a

    def compare(self, op, a, b):
        return getattr(operator, op)(a, b)

    def both(self, a, b):
        return a and b

    def either(self, a, b):
        return a or b

    def negate(self, a):
        return not a

    def select(self, mask, a, b):
        return a if mask else b

    def bits(self, a):
        return struct.unpack("<Q", struct.pack("<d", a))[0]

    def from_bits(self, a):
        return struct.unpack("<d", struct.pack("<Q", a))[0]

    def word_add(self, a, b):
        return (a + b) & self.MASK

    def word_sub(self, a, b):
        return (a - b) & self.MASK

    def word_mul(self, a, b):
        return (a * b) & self.MASK

    def word_or(self, a, b):
        return a | b

    def word_xor(self, a, b):
        return a ^ b

    def shl(self, a, count):
        return (a << count) & self.MASK

    def shr(self, a, count):
        return a >> count
