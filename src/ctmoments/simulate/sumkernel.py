"""Power sums of blocks of paths, emitted as LLVM IR: exact whole numbers carried in doubles.

In: outputs of paths, in ranges (`SumCell`): consecutive replicates of one point, at most `RANGE` of them. Out, for
each range: Σd and the lower triangle of Σddᵀ of d = y - (first path of the range), and for the standard error of the
covariance the sums over whole leaves (`LEAF` replicates, aligned) of D = LEAF·Σddᵀ - ΣdΣdᵀ and of D². Everything is a
whole number below 2^53 while |d| <= 2^18, hence exact and free of order; a range beyond says so and is summed in
Python (`sums.py`). D² needs more than 53 bits, so it is summed in three parts: D = a·2^21 + b, Σa², Σab, Σb².
"""

from __future__ import annotations

from enum import IntEnum

from llvmlite import ir

from ctmoments.errors import Status
from ctmoments.simulate.context import padded
from ctmoments.simulate.ir import POINTER, REAL, WORD, Lanes, counting, load, repeat, spread, store, word

LEAF = 8  # replicates; the variance over leaves is about as efficient as fourth moments (30/M against 24/M)
RANGE = 4096  # replicates at most in one range: keeps every sum below 2^53
LARGEST_DEVIATION = 2.0**18
BATCH = 8  # leaves whose deviations wait in the cache while the sums pass by once
WIDEST = 8  # lanes of the widest vector
SPLIT = 21  # bits of b in D = a * 2^21 + b


class SumCell(IntEnum):
    """The context of the kernel: addresses and numbers, 64 bits each."""

    RANGES = 0  # number of ranges
    FIRST = 1  # range -> index of its first path in the block, int64
    COUNT = 2  # range -> number of paths, int64
    OUTPUTS = 3  # int64, rows of the stride: outputs in whole vectors
    STATUS = 4  # path -> status, int64
    SCRATCH = 5  # float64: `scratch_rows()` rows of the stride
    SUM1 = 6  # range -> row of the stride
    SQUARES = 7  # range -> five matrices of as many rows as outputs: Σdd, ΣD, Σa², Σab, Σb²
    PATHS = 8  # range -> paths that did not fail, int64
    LEAVES = 9  # range -> whole leaves, int64
    DEVIATION = 10  # range -> largest |d|, float64 in WIDEST lanes


def scratch_rows() -> int:
    """Rows of scratch: deviations and leaf sums of a batch, and a row for whether each leaf is whole."""
    return BATCH * LEAF + BATCH + 1


def emit_sums(width: int, length: int) -> str:
    """The text of a module with one function `add_up(context)` for so many outputs.

    The number of outputs is a constant of the code: with it in a register, addresses cost as much as the sums.
    """
    module = ir.Module("sums")
    function = ir.Function(module, ir.FunctionType(WORD, [POINTER]), "add_up")
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    _SumKernel(builder, width, length).emit(function.args[0])
    builder.ret(word(0))
    return str(module)


class _SumKernel:
    def __init__(self, builder: ir.IRBuilder, width: int, length: int) -> None:
        self.builder = builder
        self.width = width
        self.length = length
        self.columns = padded(length)
        self.stride = word(self.columns)
        self.on = Lanes(builder, width)

    def emit(self, context) -> None:
        builder = self.builder
        base = {c: load(builder, POINTER, context, word(c)) for c in SumCell if c != SumCell.RANGES}
        matrix = word(self.length * self.columns)
        self.leaf_sums = self._at(base[SumCell.SCRATCH], builder.mul(self.stride, word(BATCH * LEAF)))
        self.whole = self._at(self.leaf_sums, builder.mul(self.stride, word(BATCH)))
        with counting(builder, load(builder, WORD, context, word(SumCell.RANGES))) as ranges:
            r = ranges.index
            first, count = (load(builder, WORD, base[c], r) for c in (SumCell.FIRST, SumCell.COUNT))
            sum1 = self._at(base[SumCell.SUM1], builder.mul(r, self.stride))
            squares = self._at(base[SumCell.SQUARES], builder.mul(builder.mul(r, word(5)), matrix))
            parts = [self._at(squares, builder.mul(matrix, word(k))) for k in range(5)]
            reference = self._at(base[SumCell.OUTPUTS], builder.mul(first, self.stride))
            with counting(builder, count, step=BATCH * LEAF) as batches:
                left = builder.sub(count, batches.index)
                most = word(BATCH * LEAF)
                left = builder.select(builder.icmp_unsigned("<", left, most), left, most)
                leaves = builder.udiv(builder.add(left, word(LEAF - 1)), word(LEAF))
                with counting(builder, leaves) as loop:
                    in_batch = builder.mul(loop.index, word(LEAF))
                    here = builder.add(builder.add(first, batches.index), in_batch)
                    self._leaf(base, reference, sum1, loop.index, here, builder.sub(left, in_batch), r)
                with counting(builder, self.length) as rows:
                    self._row(base[SumCell.SCRATCH], parts, rows.index, leaves)

    def _leaf(self, base, reference, sum1, leaf, here, remaining, r) -> None:
        """Deviations of a leaf into scratch (0 for missing and failed paths), and their sums."""
        builder, on = self.builder, self.on
        at = builder.mul(r, word(WIDEST))
        leaf_sum = self._at(self.leaf_sums, builder.mul(leaf, self.stride))
        with counting(builder, self.columns, step=self.width) as loop:
            self._put(on.real(0.0), leaf_sum, loop.index)
        with counting(builder, LEAF) as paths:
            p = paths.index
            path = builder.add(here, p)
            present = builder.icmp_unsigned("<", p, remaining)
            safe = builder.select(present, path, here)
            status = load(builder, WORD, base[SumCell.STATUS], safe)
            good = builder.and_(present, builder.icmp_unsigned("<=", status, word(Status.ABSORBED)))
            factor = self._spread(self._truth(good))
            row = self._at(base[SumCell.OUTPUTS], builder.mul(safe, self.stride))
            place = builder.add(builder.mul(leaf, word(LEAF)), p)
            target = self._at(base[SumCell.SCRATCH], builder.mul(place, self.stride))
            with counting(builder, self.columns, step=self.width) as loop:
                difference = builder.sub(self._words(row, loop.index), self._words(reference, loop.index))
                deviation = on.mul(builder.sitofp(difference, on.reals), factor)
                self._put(deviation, target, loop.index)
                self._put(on.add(self._get(leaf_sum, loop.index), deviation), leaf_sum, loop.index)
                size = on.abs(deviation)
                largest = self._get(base[SumCell.DEVIATION], at)
                self._put(on.select(on.compare("gt", size, largest), size, largest), base[SumCell.DEVIATION], at)
            paths.carry = builder.add(paths.carry, builder.zext(good, WORD))
        whole = builder.icmp_unsigned("==", paths.carry, word(LEAF))
        store(builder, self._truth(whole), self.whole, leaf)
        self._bump(base[SumCell.PATHS], r, paths.carry)
        self._bump(base[SumCell.LEAVES], r, builder.zext(whole, WORD))
        with counting(builder, self.columns, step=self.width) as loop:
            total = self._get(sum1, loop.index)
            self._put(on.add(total, self._get(leaf_sum, loop.index)), sum1, loop.index)

    def _row(self, scratch, parts, i, leaves) -> None:
        """Row i of every matrix, columns up to i rounded up to whole vectors, over the leaves of a batch."""
        builder, on = self.builder, self.on
        at = builder.mul(i, self.stride)
        with counting(builder, builder.add(i, word(1)), step=self.width) as loop:
            j = loop.index
            cell = builder.add(at, j)
            carry = [word(0), *(self._get(part, cell) for part in parts)]
            with repeat(builder, leaves, carry) as batch:
                leaf, total, d_sum, aa, ab, bb = batch.carry
                first = builder.mul(builder.mul(leaf, word(LEAF)), self.stride)
                product = on.real(0.0)
                for p in range(LEAF):
                    row = self._at(scratch, builder.add(first, builder.mul(self.stride, word(p))))
                    product = on.fma(self._spread(load(builder, REAL, row, i)), self._get(row, j), product)
                sums = self._at(self.leaf_sums, builder.mul(leaf, self.stride))
                cross = on.mul(self._spread(load(builder, REAL, sums, i)), self._get(sums, j))
                whole = self._spread(load(builder, REAL, self.whole, leaf))
                d = on.mul(whole, on.sub(on.mul(product, on.real(LEAF)), cross))
                a = on.floor(on.mul(d, on.real(2.0**-SPLIT)))
                b = on.fma(a, on.real(-(2.0**SPLIT)), d)
                batch.carry = [builder.add(leaf, word(1)), on.add(total, product), on.add(d_sum, d),
                               on.fma(a, a, aa), on.fma(a, b, ab), on.fma(b, b, bb)]  # fmt: skip
            for part, value in zip(parts, batch.carry[1:], strict=True):
                self._put(value, part, cell)

    def _truth(self, condition):
        return self.builder.select(condition, ir.Constant(REAL, 1.0), ir.Constant(REAL, 0.0))

    def _spread(self, value):
        return spread(self.builder, value, self.width)

    def _at(self, base, cell):
        return self.builder.gep(base, [cell], source_etype=WORD)

    def _get(self, base, cell):
        return load(self.builder, self.on.reals, base, cell)

    def _words(self, base, cell):
        return load(self.builder, self.on.words, base, cell)

    def _put(self, value, base, cell) -> None:
        store(self.builder, value, base, cell)

    def _bump(self, base, index, amount) -> None:
        store(self.builder, self.builder.add(load(self.builder, WORD, base, index), amount), base, index)
