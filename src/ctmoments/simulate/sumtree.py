"""Blocks of eight rates or sums, emitted as LLVM IR: sum them, change one, find the one that a threshold falls on.

A level of the tree is two arrays: the values, and beside each what lies before it in its block. Running sums are
taken when a block changes, off the path that the choice of the next reaction waits for.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from ctmoments.simulate.graph import FAN
from ctmoments.simulate.ir import REAL, WORD, load, spread, store, word

INT32 = ir.IntType(32)
BLOCK = ir.VectorType(REAL, FAN)
INDICES = ir.VectorType(INT32, FAN)
ZERO = ir.Constant(REAL, 0.0)
ZEROS = ir.Constant(BLOCK, [ZERO] * FAN)


def sum_block(builder: ir.IRBuilder, values: Any, before: Any, node: Any) -> Any:
    """Sum the block at `node` of the level above; keeps what lies before each of its elements in `before`."""
    first = builder.mul(node, word(FAN))
    running = load(builder, BLOCK, values, first, align=8)
    for shift in (1, 2, 4):
        running = builder.fadd(running, _moved(builder, running, shift))
    store(builder, _moved(builder, running, 1), before, first)
    return builder.extract_element(running, ir.Constant(INT32, FAN - 1))


def _moved(builder: ir.IRBuilder, block: Any, shift: int) -> Any:
    """The block moved up by `shift` places, zeros following."""
    places = [ir.Constant(INT32, FAN if k < shift else k - shift) for k in range(FAN)]
    return builder.shuffle_vector(block, ZEROS, ir.Constant(INDICES, places))


def replace_element(builder: ir.IRBuilder, values: Any, index: Any, value: Any) -> None:
    """`values[index] = value` by way of its whole block, which a later load of the block finds at once.

    By bits and not by `select`: LLVM would make that a masked store, from which no load is served.
    """
    words = ir.VectorType(WORD, FAN)
    first = builder.and_(index, word(2**64 - FAN))
    places = ir.Constant(words, [word(k) for k in range(FAN)])
    wanted = _everywhere(builder, builder.and_(index, word(FAN - 1)))
    here = builder.sext(builder.icmp_unsigned("==", places, wanted), words)
    block = load(builder, words, values, first, align=8)
    changed = builder.and_(_everywhere(builder, builder.bitcast(value, WORD)), here)
    store(builder, builder.or_(builder.and_(block, builder.not_(here)), changed), values, first)


def _everywhere(builder: ir.IRBuilder, value: Any) -> Any:
    """One word in every lane of a block."""
    undefined = ir.Constant(ir.VectorType(WORD, FAN), ir.Undefined)
    one = builder.insert_element(undefined, value, ir.Constant(INT32, 0))
    return builder.shuffle_vector(one, undefined, ir.Constant(INDICES, [ir.Constant(INT32, 0)] * FAN))


def choose_child(builder: ir.IRBuilder, values: Any, before: Any, node: Any, whole: Any, threshold: Any):
    """Which element of a block the threshold falls on: its index, its value, and what is left of the threshold.

    `whole` is the block's sum. Sums of sums and what is left round differently, so the last element before which not
    everything lies takes what would fall through; an element of value 0 is never chosen.
    """
    first = builder.mul(node, word(FAN))
    lower = load(builder, BLOCK, before, first, align=8)
    reached = builder.fcmp_ordered(">=", spread(builder, threshold, FAN), lower)
    possible = builder.fcmp_ordered("<", lower, spread(builder, whole, FAN))
    bits = builder.zext(builder.bitcast(builder.and_(reached, possible), ir.IntType(FAN)), WORD)
    chosen = builder.sub(builder.ctpop(builder.or_(bits, word(1))), word(1))
    index = builder.add(first, chosen)
    return index, load(builder, REAL, values, index), builder.fsub(threshold, load(builder, REAL, before, index))
