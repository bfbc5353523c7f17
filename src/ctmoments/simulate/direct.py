"""The direct method in lock-step: `width * groups` paths advance one event a turn, each lane refilled when it ends.

In: a `Network`. Out: the text of an LLVM module with one function, `simulate(context)`, where context is an array of
64-bit cells (`Cell`). A turn computes, group by group, rates, random numbers, the new time and the new amounts. One
condition flags a lane: not (new time < next output and total < bound and nothing negative), which NaN fails too.
Flagged lanes are attended to one turn later: `attend` records outputs and decides how a path ends, `renew` gives ended
lanes their next path. Meanwhile the lane has moved on, which costs nothing and keeps the processor busy where a branch
on fresh results would drain it (30 ns an output before, 15 after); hence three copies of what a turn writes. What
`attend` decides depends on the path alone, so lanes and groups change nothing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir

from ctmoments.simulate import arithmetic
from ctmoments.simulate.context import LOOK_EVERY, Cell
from ctmoments.simulate.ir import POINTER, REAL, WORD, Lanes, counting, load, spread, store, word
from ctmoments.simulate.network import column_slot, species_slot
from ctmoments.simulate.pathkernel import PathKernel
from ctmoments.simulate.rates import RateWriter


class Turn(NamedTuple):
    """One event in a vector of lanes: before it, what was drawn, and where lanes, copy before and copy after begin."""

    amounts: list[Any]
    rates: list[Any]
    past: list[Any]  # masks: the threshold is past the first r + 1 sums
    step: Any  # the waiting time, perhaps infinite
    first: Any
    current: Any
    written: Any


class DirectKernel(PathKernel):
    """All rates of all lanes at each turn: the fastest way up to a few dozen reactions."""

    @property
    def kept(self) -> list[str]:
        """Fields that a lane has once."""
        columns = [f"c{k}" for k in range(len(self.network.columns))]
        return ["next", "r0", "r1", "r2", "r3", "path", "cursor", "born", *columns]

    @property
    def written(self) -> list[str]:
        """Fields that every turn writes, in three copies."""
        return ["time", "total", "least", *(f"x{i}" for i in range(len(self.network.species)))]

    @property
    def fields(self) -> dict[str, int]:
        return {name: i for i, name in enumerate([*self.kept, *self.written])}

    @property
    def copy(self) -> int:
        """Cells of one copy of what a turn writes. Two more follow the last field."""
        return len(self.written) * self.lanes

    @property
    def live(self) -> int:
        return len(self.fields) * self.lanes + 2 * self.copy

    @property
    def calmed(self) -> int:
        """The cell where `attend` says which lanes' next flags it has answered already."""
        return self.live + 1

    @property
    def cells(self) -> int:
        return self.live + 2

    def _emit_simulate(self) -> None:
        builder = self._function("simulate", WORD, [POINTER])
        context = builder.function.args[0]
        lanes = self._pointer(builder, context, Cell.LANES)
        bound = spread(builder, load(builder, REAL, context, word(Cell.RATE_BOUND)), self.width)
        everyone = word((1 << self.lanes) - 1)
        store(builder, word(0), lanes, word(self.live))
        taken = builder.call(self._declared("renew"), [context, everyone, word(0), word(0), word(0)])
        entry = builder.block
        turn_block, leave = builder.append_basic_block("turn"), builder.append_basic_block("leave")
        attend_block, renew_block = builder.append_basic_block("attend"), builder.append_basic_block("renew")
        answered, check = builder.append_basic_block("answered"), builder.append_basic_block("check")
        look = builder.append_basic_block("look")
        builder.branch(turn_block)

        # `before`, `now`, `after`: the copies written by the turn before the last, the last turn, and this one
        builder.position_at_end(turn_block)
        turn, before, now, flagged_before, taken_now = phis = [builder.phi(WORD) for _ in range(5)]
        for phi, start in zip(phis, (word(0), word(2 * self.copy), word(0), word(0), taken), strict=True):
            phi.add_incoming(start, entry)
        last = builder.icmp_unsigned("==", now, word(2 * self.copy))
        after = builder.select(last, word(0), builder.add(now, word(self.copy)))
        flagged = self._advance(builder, lanes, bound, now, after)
        following = builder.add(turn, word(1))
        advanced = builder.block
        builder.cbranch(builder.icmp_unsigned("==", flagged_before, word(0)), check, attend_block).set_weights([9, 1])

        builder.position_at_end(attend_block)
        turn_before = builder.sub(turn, word(1))
        store(builder, word(0), lanes, word(self.calmed))
        ended = builder.call(self._declared("attend"), [context, flagged_before, turn_before, before, now, after])
        calmed = load(builder, WORD, lanes, word(self.calmed))
        flagged_still = builder.and_(flagged, builder.not_(builder.or_(ended, calmed)))
        builder.cbranch(builder.icmp_unsigned("==", ended, word(0)), answered, renew_block).set_weights([9, 1])

        builder.position_at_end(renew_block)
        taken_more = builder.call(self._declared("renew"), [context, ended, following, taken_now, after])
        done = self._load_through(builder, context, Cell.DONE)
        paths = self._number(builder, context, Cell.PATHS)
        builder.cbranch(builder.icmp_unsigned("<", done, paths), answered, leave)

        builder.position_at_end(answered)
        taken_answered = builder.phi(WORD)
        taken_answered.add_incoming(taken_now, attend_block)
        taken_answered.add_incoming(taken_more, renew_block)
        builder.branch(check)

        builder.position_at_end(check)
        flagged_next, taken_next = builder.phi(WORD), builder.phi(WORD)
        for phi, calm, other in ((flagged_next, flagged, flagged_still), (taken_next, taken_now, taken_answered)):
            phi.add_incoming(calm, advanced)
            phi.add_incoming(other, answered)
        rest = builder.and_(following, word(LOOK_EVERY - 1))
        builder.cbranch(builder.icmp_unsigned("!=", rest, word(0)), turn_block, look).set_weights([LOOK_EVERY, 1])
        builder.position_at_end(look)
        stop = builder.call(self._declared("look"), [context, following])
        builder.cbranch(builder.icmp_unsigned("==", stop, word(0)), turn_block, leave)
        for phi, value in zip(phis, (following, now, after, flagged_next, taken_next), strict=True):
            phi.add_incoming(value, check)
            phi.add_incoming(value, look)

        builder.position_at_end(leave)
        builder.ret(word(0))

    def _advance(self, builder: ir.IRBuilder, lanes, bound, now, after):
        """One event in every lane; returns the lanes that want attention as bits of a word."""
        on = Lanes(builder, self.width)
        network = self.network
        with counting(builder, self.lanes, step=self.width) as loop:
            first = loop.index
            current, written = builder.add(first, now), builder.add(first, after)
            amounts = [self._get(builder, lanes, f"x{i}", current) for i in range(len(network.species))]
            values = {species_slot(i).name: amount for i, amount in enumerate(amounts)}
            for k in range(len(network.columns)):
                values[column_slot(k).name] = self._get(builder, lanes, f"c{k}", first)
            writer = RateWriter(on, values)
            rates = [writer.real(rate) for rate in network.rates] or [on.real(0.0)]
            sums = [rates[0]]
            for rate in rates[1:]:
                sums.append(on.add(sums[-1], rate))
            total = sums[-1]
            state = tuple(self._get(builder, lanes, f"r{w}", first, on.words) for w in range(4))
            waiting_word, state = arithmetic.draw(on, state)
            choice_word, state = arithmetic.draw(on, state)
            for w in range(4):
                self._put(builder, state[w], lanes, f"r{w}", first)
            step = on.div(arithmetic.exponential(on, waiting_word), total)
            time = on.add(self._get(builder, lanes, "time", current), step)
            self._put(builder, time, lanes, "time", written)
            self._put(builder, total, lanes, "total", written)
            threshold = on.mul(arithmetic.uniform(on, choice_word), total)
            past = [on.compare("ge", threshold, partial) for partial in sums[:-1]]
            self._fire(builder, on, lanes, amounts, past, written)
            in_time = on.compare("lt", time, self._get(builder, lanes, "next", first))
            calm = on.both(in_time, on.compare("lt", total, bound))
            watched = [rates[r] for r in network.checked] + [amounts[i] for i in network.guarded]
            if watched:
                least = watched[0]
                for value in watched[1:]:
                    least = on.select(on.compare("lt", value, least), value, least)
                self._put(builder, least, lanes, "least", written)
                calm = on.both(calm, on.compare("ge", least, on.real(0.0)))
            unmoved = self._observe(builder, on, lanes, Turn(amounts, rates, past, step, first, current, written))
            if unmoved is not None:
                calm = on.both(calm, unmoved)
            bits = on.mask_bits(on.negate(calm))
            loop.carry = builder.or_(loop.carry, builder.shl(bits, first))
        return builder.and_(loop.carry, load(builder, WORD, lanes, word(self.live)))

    def _observe(self, builder: ir.IRBuilder, on: Lanes, lanes, turn: Turn) -> Any:
        """A chance to follow the event; a mask of lanes that need no attention for it, or None."""

    def _fire(self, builder: ir.IRBuilder, on: Lanes, lanes, amounts, past, written) -> None:
        """Reaction r fires when the threshold is `past` the first r sums: changes telescope over them.

        The threshold is below the total (`arithmetic.uniform`), so a reaction of rate 0 cannot be chosen.
        """
        changes = self.network.changes
        for i, amount in enumerate(amounts):
            steps = [row[i] for row in changes] or [0]
            if steps[0]:
                amount = on.add(amount, on.real(steps[0]))
            for r in range(1, len(steps)):
                if steps[r] != steps[r - 1]:
                    moved = on.add(amount, on.real(steps[r] - steps[r - 1]))
                    amount = on.select(past[r - 1], moved, amount)
            self._put(builder, amount, lanes, f"x{i}", written)

    # ---- what `attend` and `renew` ask ----

    def _least(self, builder: ir.IRBuilder, lanes, at):
        if self.network.checked or self.network.guarded:
            return self._one(builder, lanes, "least", at)
        return ir.Constant(REAL, 0.0)

    def _amount(self, builder: ir.IRBuilder, lanes, i, lane, before):
        return self._one(builder, lanes, f"x{i}", builder.add(lane, before))

    def _fill(self, builder: ir.IRBuilder, context, lanes, lane, row, copy) -> None:
        for cell, prefix, number, at in (
            (Cell.START, "x", len(self.network.species), builder.add(lane, copy)),
            (Cell.COLUMNS, "c", len(self.network.columns), lane),
        ):
            base = self._pointer(builder, context, cell)
            first = builder.mul(row, word(number))
            for i in range(number):
                value = load(builder, REAL, base, builder.add(first, word(i)))
                self._store_one(builder, value, lanes, f"{prefix}{i}", at)

    def _unmoved(self, builder: ir.IRBuilder, on: Lanes, lanes, lane, since) -> Any:
        """Whether what `_observe` watches was calm in the turn since then, or None."""

    def _answered(self, builder: ir.IRBuilder, context, lanes, lane, now, after) -> None:
        """The turn since then compared with a marked time that is now past: answer its flag, if that was all."""
        on, since = Lanes(builder, 1), builder.add(lane, after)
        time, total = (self._one(builder, lanes, name, since) for name in ("time", "total"))
        least = self._least(builder, lanes, since)
        bound = load(builder, REAL, context, word(Cell.RATE_BOUND))
        sound = on.both(on.compare("lt", total, bound), on.compare("ge", least, on.real(0.0)))
        calm = on.both(on.compare("lt", time, self._one(builder, lanes, "next", lane)), sound)
        unmoved = self._unmoved(builder, on, lanes, lane, since)
        calm = calm if unmoved is None else on.both(calm, unmoved)
        bit = builder.shl(builder.zext(calm, WORD), lane)
        cell = word(self.calmed)
        store(builder, builder.or_(load(builder, WORD, lanes, cell), bit), lanes, cell)
