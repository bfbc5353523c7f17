"""Blocks of eight rates or sums, emitted as LLVM IR: sum them, change one, find the one that a threshold falls on."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from ctmoments.simulate.graph import FAN
from ctmoments.simulate.ir import BIT, REAL, WORD, load, spread, store, word

INT32 = ir.IntType(32)
BLOCK = ir.VectorType(REAL, FAN)
INDICES = ir.VectorType(INT32, FAN)
ZERO = ir.Constant(REAL, 0.0)
ZEROS = ir.Constant(BLOCK, [ZERO] * FAN)


def load_block(builder: ir.IRBuilder, values: Any, node: Any) -> Any:
    """The block that is summed at `node` of the level above."""
    return load(builder, BLOCK, values, builder.mul(node, word(FAN)), align=8)


def block_sum(builder: ir.IRBuilder, block: Any) -> Any:
    """The sum of a block, halves onto halves."""
    for half in (4, 2, 1):
        moved = ir.Constant(INDICES, [ir.Constant(INT32, (k + half) % FAN) for k in range(FAN)])
        block = builder.fadd(block, builder.shuffle_vector(block, block, moved))
    return builder.extract_element(block, ir.Constant(INT32, 0))


def replace_element(builder: ir.IRBuilder, values: Any, index: Any, value: Any) -> None:
    """`values[index] = value` by way of its whole block, which a later load of the block finds at once."""
    first = builder.and_(index, word(2**64 - FAN))
    places = ir.Constant(ir.VectorType(WORD, FAN), [word(k) for k in range(FAN)])
    undefined = ir.Constant(places.type, ir.Undefined)
    wanted = builder.insert_element(undefined, builder.and_(index, word(FAN - 1)), ir.Constant(INT32, 0))
    everywhere = ir.Constant(INDICES, [ir.Constant(INT32, 0)] * FAN)
    here = builder.icmp_unsigned("==", places, builder.shuffle_vector(wanted, undefined, everywhere))
    block = load(builder, BLOCK, values, first, align=8)
    store(builder, builder.select(here, spread(builder, value, FAN), block), values, first)


def choose_child(builder: ir.IRBuilder, children: Any, threshold: Any) -> tuple[Any, Any]:
    """Which child of a node the threshold falls on, by running sums, and what is left of it inside that child.

    Sums of children and what is left round differently, so the last child with a positive sum takes what would fall
    through; a child of sum 0 is never chosen.
    """
    running = children
    for shift in (1, 2, 4):
        moved = [ir.Constant(INT32, FAN if k < shift else k - shift) for k in range(FAN)]
        running = builder.fadd(running, builder.shuffle_vector(running, ZEROS, ir.Constant(INDICES, moved)))
    passed = _bits(builder, builder.fcmp_ordered(">=", spread(builder, threshold, FAN), running))
    positive = _bits(builder, builder.fcmp_ordered(">", children, ZEROS))
    last = builder.sub(word(63), builder.ctlz(builder.or_(positive, word(1)), ir.Constant(BIT, 1)))
    count = builder.ctpop(passed)
    chosen = builder.select(builder.icmp_unsigned("<", count, last), count, last)
    below = builder.extract_element(builder.fsub(running, children), builder.trunc(chosen, INT32))
    left = builder.fsub(threshold, below)
    return chosen, builder.select(builder.fcmp_ordered(">", left, ZERO), left, ZERO)


def _bits(builder: ir.IRBuilder, mask: Any) -> Any:
    return builder.zext(builder.bitcast(mask, ir.IntType(FAN)), WORD)
