"""The direct method that leaves records: what a path's reactions did, step by step, beside its outputs.

In: a `Network`. Out: an LLVM module like `direct.py`'s, whose paths are the same paths. A path is cut into steps at
marked times (output times and a grid) and whenever it has moved far enough. With the predictable weight
w_r = max_i |ν_ir| / (x_i + 1) a step leaves where it began (time, amounts) and for each reaction

    M_r = ∫ w_r (dN_r - a_r ds),    Q_r = ∫ a_r w_r² ds,

the compensated count and its predictable variation. A lane carries both summed up since the start; where a step
closes, `attend` writes the differences as a row of cells: path, time, amounts, M, Q. Movement is Σ w² over the events
since the last closing, the realised variation of relative amounts: a reaction that halves a small population closes a
step at once, one of thousands does not. (With the same 51 steps a path of the SIR, w² left 0.7 % of the variance where
w^1.5 left 1.2 and w 3.2.) Steps in which nothing could fire are left out.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from ctmoments.simulate.context import Cell
from ctmoments.simulate.direct import DirectKernel, Turn
from ctmoments.simulate.ir import REAL, WORD, Lanes, load, store, word
from ctmoments.simulate.network import Network
from ctmoments.simulate.pathkernel import Mark

LONGEST = 1e300  # stands for an infinite waiting time: 0 * LONGEST is 0


def row_cells(network: Network) -> int:
    """Cells of a step's row: path, time, amounts, M, Q."""
    return 2 + len(network.species) + 2 * len(network.rates)


class RecordKernel(DirectKernel):
    """`DirectKernel` with records."""

    @property
    def kept(self) -> list[str]:
        species, reactions = range(len(self.network.species)), self._reactions
        begun = [*(f"begun_x{i}" for i in species), *(f"begun_{k}{r}" for k in "mq" for r in reactions)]
        return [*super().kept, "close", "begun", *begun]

    @property
    def written(self) -> list[str]:
        return [*super().written, "moved", *(f"{k}{r}" for k in "mq" for r in self._reactions)]

    @property
    def _reactions(self) -> range:
        return range(len(self.network.rates))

    def _weights(self, on: Lanes, amounts: list[Any]) -> list[Any]:
        """w of each reaction; 0 for one that changes nothing."""
        shares: dict[int, Any] = {}
        weights = []
        for changes in self.network.changes:
            weight = on.real(0.0)
            for i, change in enumerate(changes):
                if not change:
                    continue
                if i not in shares:
                    shares[i] = on.div(on.real(1.0), on.add(amounts[i], on.real(1.0)))
                part = on.mul(on.real(abs(change)), shares[i])
                weight = on.select(on.compare("gt", part, weight), part, weight)
            weights.append(weight)
        return weights

    def _observe(self, builder: ir.IRBuilder, on: Lanes, lanes, turn: Turn) -> Any:
        """Add one event to M, Q and the movement of every lane; calm are the lanes that have not moved far."""
        weights = self._weights(on, turn.amounts)
        step = on.select(on.compare("lt", turn.step, on.real(LONGEST)), turn.step, on.real(LONGEST))
        fired_weight = weights[-1]
        for r in reversed(range(len(turn.past))):
            fired_weight = on.select(turn.past[r], fired_weight, weights[r])
        for r, (weight, rate) in enumerate(zip(weights, turn.rates, strict=True)):
            jump = weight
            if r < len(turn.past):
                jump = on.select(turn.past[r], on.real(0.0), jump)
            if r:
                jump = on.select(turn.past[r - 1], jump, on.real(0.0))
            expected = on.mul(on.mul(weight, rate), step)
            before = self._get(builder, lanes, f"m{r}", turn.current)
            self._put(builder, on.add(before, on.sub(jump, expected)), lanes, f"m{r}", turn.written)
            before = self._get(builder, lanes, f"q{r}", turn.current)
            self._put(builder, on.add(before, on.mul(expected, weight)), lanes, f"q{r}", turn.written)
        moved = on.mul(fired_weight, fired_weight)
        moved = on.add(self._get(builder, lanes, "moved", turn.current), moved)
        self._put(builder, moved, lanes, "moved", turn.written)
        return on.compare("lt", moved, self._get(builder, lanes, "close", turn.first))

    def _unmoved(self, builder: ir.IRBuilder, on: Lanes, lanes, lane, since) -> Any:
        return on.compare("lt", self._one(builder, lanes, "moved", since), self._one(builder, lanes, "close", lane))

    # ---- where steps close

    def _mark(self, builder: ir.IRBuilder, context, lanes, lane, at: Mark) -> None:
        """A marked time: the step closes there, and outputs are recorded if it is an output time."""
        on = Lanes(builder, 1)
        old, new = builder.add(lane, at.before), builder.add(lane, at.now)
        due = self._one(builder, lanes, "next", lane)
        began, ended = (self._one(builder, lanes, "time", place) for place in (old, new))
        share = on.div(on.sub(due, began), on.sub(ended, began))
        amounts = [self._one(builder, lanes, f"x{i}", old) for i in range(len(self.network.species))]
        sums = {}
        for r, weight in enumerate(self._weights(on, amounts)):
            m, q = (self._one(builder, lanes, f"{k}{r}", old) for k in "mq")
            grown = on.mul(share, on.sub(self._one(builder, lanes, f"q{r}", new), q))
            quiet = on.compare("eq", grown, on.real(0.0))
            expected = on.select(quiet, on.real(0.0), on.div(grown, weight))
            sums[f"m{r}"], sums[f"q{r}"] = on.sub(m, expected), on.add(q, grown)
        self._close(builder, context, lanes, lane, at.path, due, amounts, sums)
        output = load(builder, WORD, self._pointer(builder, context, Cell.OUTPUT_OF), at.cursor)
        with builder.if_then(builder.icmp_signed(">=", output, word(0))):
            self._record(builder, context, lanes, lane, at.before, at.path, output)

    def _answered(self, builder: ir.IRBuilder, context, lanes, lane, now, after) -> None:
        """Close the step where the jump has carried the path far enough."""
        on, new = Lanes(builder, 1), builder.add(lane, now)
        time, moved = (self._one(builder, lanes, name, new) for name in ("time", "moved"))
        far = on.compare("ge", moved, self._one(builder, lanes, "close", lane))
        going = on.compare("lt", time, self._one(builder, lanes, "next", lane))
        with builder.if_then(on.both(far, going)):
            amounts = [self._one(builder, lanes, f"x{i}", new) for i in range(len(self.network.species))]
            sums = {f"{k}{r}": self._one(builder, lanes, f"{k}{r}", new) for k in "mq" for r in self._reactions}
            path = self._one(builder, lanes, "path", lane, WORD)
            self._close(builder, context, lanes, lane, path, time, amounts, sums)
            reach = load(builder, REAL, context, word(Cell.REACH))
            self._store_one(builder, on.add(moved, reach), lanes, "close", lane)
        super()._answered(builder, context, lanes, lane, now, after)

    def _close(self, builder: ir.IRBuilder, context, lanes, lane, path, time, amounts, sums) -> None:
        """Write the step that ends here, unless nothing could fire in it, and begin the next."""
        on = Lanes(builder, 1)
        names = [f"{k}{r}" for k in "mq" for r in self._reactions]
        differences = {name: on.sub(sums[name], self._one(builder, lanes, f"begun_{name}", lane)) for name in names}
        variation = on.real(0.0)
        for r in self._reactions:
            variation = on.add(variation, differences[f"q{r}"])
        counts = self._pointer(builder, context, Cell.STEPS)
        with builder.if_then(on.compare("gt", variation, on.real(0.0))):
            number, room = (load(builder, WORD, counts, word(k)) for k in range(2))
            store(builder, builder.add(number, word(1)), counts, word(0))
            with builder.if_then(builder.icmp_unsigned("<", number, room)):
                rows = self._pointer(builder, context, Cell.STEP_ROWS)
                first = builder.mul(number, word(row_cells(self.network)))
                store(builder, path, rows, first)
                begun = [self._one(builder, lanes, f"begun_x{i}", lane) for i in range(len(amounts))]
                values = [self._one(builder, lanes, "begun", lane), *begun, *differences.values()]
                for k, value in enumerate(values):
                    store(builder, value, rows, builder.add(first, word(1 + k)))
        self._begin(builder, lanes, lane, time, amounts, sums)

    def _begin(self, builder: ir.IRBuilder, lanes, lane, time, amounts, sums) -> None:
        self._store_one(builder, time, lanes, "begun", lane)
        for i, amount in enumerate(amounts):
            self._store_one(builder, amount, lanes, f"begun_x{i}", lane)
        for name, value in sums.items():
            self._store_one(builder, value, lanes, f"begun_{name}", lane)

    def _fill(self, builder: ir.IRBuilder, context, lanes, lane, row, copy) -> None:
        super()._fill(builder, context, lanes, lane, row, copy)
        zero, at = ir.Constant(REAL, 0.0), builder.add(lane, copy)
        sums = {f"{k}{r}": zero for k in "mq" for r in self._reactions}
        for name in ("moved", *sums):
            self._store_one(builder, zero, lanes, name, at)
        amounts = [self._one(builder, lanes, f"x{i}", at) for i in range(len(self.network.species))]
        self._begin(builder, lanes, lane, zero, amounts, sums)
        self._store_one(builder, load(builder, REAL, context, word(Cell.REACH)), lanes, "close", lane)
