"""Power sums of blocks of paths, emitted as LLVM IR: exact whole numbers carried in doubles.

In: outputs of paths, in ranges (`SumCell`): consecutive replicates of one point, at most `RANGE` of them. Out, for
each range: Σd and the lower triangle of Σddᵀ of d = y - (first path of the range), and for the standard error of the
covariance the sums over whole leaves (`LEAF` replicates, aligned) of D = LEAF·Σddᵀ - ΣdΣdᵀ and of D². Everything is a
whole number below 2^53 while |d| <= 2^20, hence exact and free of order; a range beyond says so and is summed in
Python (`sums.py`). D² needs more than 53 bits, so it is summed in three parts: D = a·2^23 + b, Σa², Σab, Σb².
"""

from __future__ import annotations

from enum import IntEnum

from llvmlite import ir

from ctmoments.errors import Status
from ctmoments.simulate.ir import POINTER, REAL, WORD, Lanes, counting, load, spread, store, word

LEAF = 8  # replicates; the variance over leaves is about as efficient as fourth moments (30/M against 24/M)
RANGE = 512  # replicates at most in one range: keeps every sum below 2^53
LARGEST_DEVIATION = 2.0**20
WIDEST = 8  # lanes of the widest vector
SPLIT = 23  # bits of b in D = a * 2^23 + b


class SumCell(IntEnum):
    """The context of the kernel: addresses and numbers, 64 bits each."""

    RANGES = 0  # number of ranges
    FIRST = 1  # range -> index of its first path in the block, int64
    COUNT = 2  # range -> number of paths, int64
    OUTPUTS = 3  # int64, rows of STRIDE
    STATUS = 4  # path -> status, int64
    STRIDE = 5  # a multiple of the vector width
    LENGTH = 6  # number of outputs
    SCRATCH = 7  # float64: LEAF + 1 rows of STRIDE
    SUM1 = 8  # range -> row of STRIDE
    SQUARES = 9  # range -> five matrices of LENGTH rows of STRIDE: Σdd, ΣD, Σa², Σab, Σb²
    PATHS = 10  # range -> paths that did not fail, int64
    LEAVES = 11  # range -> whole leaves, int64
    DEVIATION = 12  # range -> largest |d|, float64 in WIDEST lanes


def emit_sums(width: int) -> str:
    """The text of a module with one function `add_up(context)`."""
    module = ir.Module("sums")
    function = ir.Function(module, ir.FunctionType(WORD, [POINTER]), "add_up")
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    _SumKernel(builder, width).emit(function.args[0])
    builder.ret(word(0))
    return str(module)


class _SumKernel:
    def __init__(self, builder: ir.IRBuilder, width: int) -> None:
        self.builder = builder
        self.width = width
        self.on = Lanes(builder, width)

    def emit(self, context) -> None:
        builder = self.builder
        cell = {c: load(builder, WORD, context, word(c)) for c in (SumCell.RANGES, SumCell.STRIDE, SumCell.LENGTH)}
        base = {c: load(builder, POINTER, context, word(c)) for c in SumCell if c not in cell}
        stride, length = cell[SumCell.STRIDE], cell[SumCell.LENGTH]
        matrix = builder.mul(length, stride)
        with counting(builder, cell[SumCell.RANGES]) as ranges:
            r = ranges.index
            first, count = (load(builder, WORD, base[c], r) for c in (SumCell.FIRST, SumCell.COUNT))
            sum1 = self._at(base[SumCell.SUM1], builder.mul(r, stride))
            squares = self._at(base[SumCell.SQUARES], builder.mul(builder.mul(r, word(5)), matrix))
            parts = [self._at(squares, builder.mul(matrix, word(k))) for k in range(5)]
            reference = self._at(base[SumCell.OUTPUTS], builder.mul(first, stride))
            leaf_sum = self._at(base[SumCell.SCRATCH], builder.mul(stride, word(LEAF)))
            with counting(builder, count, step=LEAF) as leaves:
                here = builder.add(first, leaves.index)
                good = self._deviations(base, stride, reference, leaf_sum, here,
                                        builder.sub(count, leaves.index), r)  # fmt: skip
                whole = builder.icmp_unsigned("==", good, word(LEAF))
                self._bump(base[SumCell.PATHS], r, good)
                self._bump(base[SumCell.LEAVES], r, builder.zext(whole, WORD))
                with counting(builder, stride, step=self.width) as loop:
                    total = self._get(sum1, loop.index)
                    self._put(self.on.add(total, self._get(leaf_sum, loop.index)), sum1, loop.index)
                with counting(builder, length) as rows:
                    self._row(base[SumCell.SCRATCH], leaf_sum, parts, stride, rows.index, whole)

    def _deviations(self, base, stride, reference, leaf_sum, here, remaining, r):
        """Deviations of a leaf into scratch (0 for missing and failed paths), their sum; returns the good paths."""
        builder, on = self.builder, self.on
        at = builder.mul(r, word(WIDEST))
        with counting(builder, stride, step=self.width) as loop:
            self._put(on.real(0.0), leaf_sum, loop.index)
        with counting(builder, LEAF) as paths:
            p = paths.index
            path = builder.add(here, p)
            present = builder.icmp_unsigned("<", p, remaining)
            safe = builder.select(present, path, here)
            status = load(builder, WORD, base[SumCell.STATUS], safe)
            good = builder.and_(present, builder.icmp_unsigned("<=", status, word(Status.ABSORBED)))
            factor = self._spread(builder.select(good, ir.Constant(REAL, 1.0), ir.Constant(REAL, 0.0)))
            row = self._at(base[SumCell.OUTPUTS], builder.mul(safe, stride))
            target = self._at(base[SumCell.SCRATCH], builder.mul(p, stride))
            with counting(builder, stride, step=self.width) as loop:
                difference = builder.sub(self._words(row, loop.index), self._words(reference, loop.index))
                deviation = on.mul(builder.sitofp(difference, on.reals), factor)
                self._put(deviation, target, loop.index)
                self._put(on.add(self._get(leaf_sum, loop.index), deviation), leaf_sum, loop.index)
                size = on.abs(deviation)
                largest = self._get(base[SumCell.DEVIATION], at)
                self._put(on.select(on.compare("gt", size, largest), size, largest), base[SumCell.DEVIATION], at)
            paths.carry = builder.add(paths.carry, builder.zext(good, WORD))
        return paths.carry

    def _row(self, scratch, leaf_sum, parts, stride, i, whole) -> None:
        """Row i of every matrix: columns up to i, rounded up to whole vectors."""
        builder, on = self.builder, self.on
        rows = [self._at(scratch, builder.mul(stride, word(p))) for p in range(LEAF)]
        spread = [self._spread(load(builder, REAL, row, i)) for row in rows]
        own = self._spread(load(builder, REAL, leaf_sum, i))
        weight = self._spread(builder.select(whole, ir.Constant(REAL, 1.0), ir.Constant(REAL, 0.0)))
        at = builder.mul(i, stride)
        with counting(builder, builder.add(i, word(1)), step=self.width) as loop:
            j = loop.index
            product = on.mul(spread[0], self._get(rows[0], j))
            for p in range(1, LEAF):
                product = on.fma(spread[p], self._get(rows[p], j), product)
            spread_out = on.sub(on.mul(product, on.real(LEAF)), on.mul(own, self._get(leaf_sum, j)))
            d = on.mul(weight, spread_out)
            a = on.floor(on.mul(d, on.real(2.0**-SPLIT)))
            b = on.fma(a, on.real(-(2.0**SPLIT)), d)
            cell = builder.add(at, j)
            for part, factors in zip(parts, ((product,), (d,), (a, a), (a, b), (b, b)), strict=True):
                total = self._get(part, cell)
                total = on.add(total, factors[0]) if len(factors) == 1 else on.fma(*factors, total)
                self._put(total, part, cell)

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
