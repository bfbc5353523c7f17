"""LLVM IR for `width` lanes at once: `Arithmetic` by emission, and a little help with memory and loops.

In: an `llvmlite` builder and a width (1 is plain scalar code: what CUDA runs). Out: IR values. Nothing here knows
what a path is, and nothing assumes a CPU, a C library or a width above one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

REAL = ir.DoubleType()
WORD = ir.IntType(64)
BIT = ir.IntType(1)
POINTER = ir.PointerType()
ORDERED = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "=="}


def word(value: int) -> ir.Constant:
    """A 64-bit constant."""
    return ir.Constant(WORD, value)


class Lanes:
    """`Arithmetic` (arithmetic.py) emitted for `width` lanes."""

    def __init__(self, builder: ir.IRBuilder, width: int) -> None:
        self.builder = builder
        self.width = width
        vector: Callable[[ir.Type], ir.Type] = (lambda t: t) if width == 1 else (lambda t: ir.VectorType(t, width))
        self.reals, self.words, self.masks = vector(REAL), vector(WORD), vector(BIT)

    def _splat(self, kind: ir.Type, value: Any) -> ir.Constant:
        one = ir.Constant(kind, value)
        return one if self.width == 1 else ir.Constant(ir.VectorType(kind, self.width), [one] * self.width)

    def real(self, value):
        return self._splat(REAL, float(value))

    def word(self, value):
        return self._splat(WORD, value)

    def add(self, a, b):
        return self.builder.fadd(a, b)

    def sub(self, a, b):
        return self.builder.fsub(a, b)

    def mul(self, a, b):
        return self.builder.fmul(a, b)

    def div(self, a, b):
        return self.builder.fdiv(a, b)

    def fma(self, a, b, c):
        return self._intrinsic("fma", a, b, c)

    def neg(self, a):
        return self.builder.fneg(a)

    def abs(self, a):
        return self._intrinsic("fabs", a)

    def sqrt(self, a):
        return self._intrinsic("sqrt", a)

    def floor(self, a):
        return self._intrinsic("floor", a)

    def ceil(self, a):
        return self._intrinsic("ceil", a)

    def compare(self, op, a, b):
        if op == "ne":
            return self.builder.fcmp_unordered("!=", a, b)
        return self.builder.fcmp_ordered(ORDERED[op], a, b)

    def both(self, a, b):
        return self.builder.and_(a, b)

    def either(self, a, b):
        return self.builder.or_(a, b)

    def negate(self, a):
        return self.builder.xor(a, self._splat(BIT, 1))

    def select(self, mask, a, b):
        return self.builder.select(mask, a, b)

    def bits(self, a):
        return self.builder.bitcast(a, self.words)

    def from_bits(self, a):
        return self.builder.bitcast(a, self.reals)

    def word_add(self, a, b):
        return self.builder.add(a, b)

    def word_sub(self, a, b):
        return self.builder.sub(a, b)

    def word_mul(self, a, b):
        return self.builder.mul(a, b)

    def word_or(self, a, b):
        return self.builder.or_(a, b)

    def word_xor(self, a, b):
        return self.builder.xor(a, b)

    def shl(self, a, count):
        return self.builder.shl(a, self.word(count))

    def shr(self, a, count):
        return self.builder.lshr(a, self.word(count))

    def mask_bits(self, mask):
        """A mask as the low `width` bits of one word."""
        if self.width == 1:
            return self.builder.zext(mask, WORD)
        return self.builder.zext(self.builder.bitcast(mask, ir.IntType(self.width)), WORD)

    def _intrinsic(self, name: str, *arguments):
        suffix = "f64" if self.width == 1 else f"v{self.width}f64"
        kinds = [self.reals] * len(arguments)
        function = declare(self.builder.module, f"llvm.{name}.{suffix}", self.reals, kinds)
        return self.builder.call(function, arguments)


def declare(module: ir.Module, name: str, result: ir.Type, arguments: list[ir.Type]) -> ir.Function:
    """The function of that name, declared once in a module."""
    if name in module.globals:
        return module.globals[name]
    return ir.Function(module, ir.FunctionType(result, arguments), name)


def load(builder: ir.IRBuilder, kind: ir.Type, base, index, align: int = 8):
    """`((kind-sized 64-bit cells) base)[index]`: cells are 8 bytes whatever is loaded from them."""
    return builder.load(builder.gep(base, [index], source_etype=WORD), typ=kind, align=align)


def store(builder: ir.IRBuilder, value, base, index, align: int = 8) -> None:
    """Store at 64-bit cell `index` of `base`."""
    builder.store(value, builder.gep(base, [index], source_etype=WORD), align=align)


def spread(builder: ir.IRBuilder, value, width: int):
    """One double in every lane."""
    if width == 1:
        return value
    vector = ir.VectorType(REAL, width)
    one = builder.insert_element(ir.Constant(vector, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), width), [0] * width)
    return builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), zeros)


@dataclass
class Loop:
    """What a loop's body sees: its index, and one word carried from turn to turn (set `carry` to pass it on)."""

    index: Any
    carry: Any


@contextmanager
def counting(builder: ir.IRBuilder, stop, step: int = 1, carry=None) -> Iterator[Loop]:
    """`for index in range(0, stop, step)`, the body emitted in the context; at least one turn."""
    body, state, loop = _open(builder, word(0), carry)
    loop.index = state
    yield loop
    following = builder.add(state, word(step))
    stop = word(stop) if isinstance(stop, int) else stop
    _close(builder, body, following, loop, builder.icmp_unsigned("<", following, stop))


@contextmanager
def each_bit(builder: ir.IRBuilder, mask, carry=None) -> Iterator[Loop]:
    """`for index in the set bits of mask` (a word, not zero), lowest first."""
    body, rest, loop = _open(builder, mask, carry)
    loop.index = builder.cttz(rest, ir.Constant(BIT, 1))
    yield loop
    cleared = builder.and_(rest, builder.sub(rest, word(1)))
    _close(builder, body, cleared, loop, builder.icmp_unsigned("!=", cleared, word(0)))


@dataclass
class Repeat:
    """What the body of `repeat` sees: the values carried from turn to turn; set `carry` to pass them on."""

    carry: list[Any]


@contextmanager
def repeat(builder: ir.IRBuilder, count, carry: list[Any]) -> Iterator[Repeat]:
    """`for _ in range(count)` with a word for a count, possibly 0; `carry` holds the last values afterwards."""
    before = builder.block
    head, body, after = (builder.append_basic_block(name) for name in ("head", "body", "after"))
    builder.branch(head)
    builder.position_at_end(head)
    left = builder.phi(WORD)
    left.add_incoming(count, before)
    phis = [builder.phi(value.type) for value in carry]
    for phi, value in zip(phis, carry, strict=True):
        phi.add_incoming(value, before)
    builder.cbranch(builder.icmp_unsigned("!=", left, word(0)), body, after)
    builder.position_at_end(body)
    loop = Repeat(list(phis))
    yield loop
    left.add_incoming(builder.sub(left, word(1)), builder.block)
    for phi, value in zip(phis, loop.carry, strict=True):
        phi.add_incoming(value, builder.block)
    builder.branch(head)
    builder.position_at_end(after)
    loop.carry = list(phis)


def _open(builder: ir.IRBuilder, start, carry) -> tuple[ir.Block, Any, Loop]:
    before = builder.block
    body = builder.append_basic_block("loop")
    builder.branch(body)
    builder.position_at_end(body)
    state, carried = builder.phi(WORD), builder.phi(WORD)
    state.add_incoming(start, before)
    carried.add_incoming(word(0) if carry is None else carry, before)
    return body, state, Loop(index=None, carry=carried)


def _close(builder: ir.IRBuilder, body: ir.Block, following, loop: Loop, goes_on) -> None:
    state, carried = body.instructions[:2]
    state.add_incoming(following, builder.block)
    carried.add_incoming(loop.carry, builder.block)
    after = builder.append_basic_block("after")
    builder.cbranch(goes_on, body, after)
    builder.position_at_end(after)
