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

from dataclasses import dataclass
from enum import IntEnum

from llvmlite import ir

from ctmoments.errors import Status
from ctmoments.simulate import arithmetic
from ctmoments.simulate.ir import POINTER, REAL, WORD, Lanes, counting, declare, each_bit, load, spread, store, word
from ctmoments.simulate.network import Network, column_slot, species_slot
from ctmoments.simulate.rates import RateWriter
from ctmoments.simulate.streams import GOLDEN

CLOCK_LIMIT = 2.0**45  # total rate x time beyond which a mean step is below 128 units in the clock's last place
LOOK_EVERY = 4096  # turns between looks at the stop flag and the event counts: about 0.2 ms


class Cell(IntEnum):
    """The context that a driver hands to a kernel: addresses and numbers, 64 bits each."""

    LANES = 0  # scratch memory for lane state
    PATHS = 1  # number of paths
    ROW = 2  # path -> row of parameter values, int64
    REPLICATE = 3  # path -> replicate, uint64
    KEYS = 4  # row -> two uint64: the address absorbed up to the point
    COLUMNS = 5  # row -> parameter columns, float64
    START = 6  # row -> amounts at t = 0, float64
    TIMES = 7  # output times, float64
    OUTPUTS = 8  # path -> outputs, int64, rows of `padded(outputs)`
    STATUS = 9  # path -> status, int64
    EVENTS = 10  # path -> events fired, int64
    MAX_EVENTS = 11
    RATE_BOUND = 12  # float64: totals from here on are looked at
    STOP = 13  # address of a flag, int64: not 0 asks to return
    DONE = 14  # address of a count of ended paths, int64


def padded(outputs: int) -> int:
    """The length of a row of outputs: whole vectors, so that `sums` reads no neighbour."""
    return -(-outputs // 8) * 8


@dataclass(frozen=True)
class Layout:
    """Where each field of a lane lives: cell `field * lanes + lane` of the scratch memory."""

    network: Network
    width: int
    groups: int

    @property
    def lanes(self) -> int:
        return self.width * self.groups

    @property
    def fields(self) -> dict[str, int]:
        slots, columns = len(self.network.species), len(self.network.columns)
        names = ["next", "r0", "r1", "r2", "r3", "path", "cursor", "born"] + [f"c{k}" for k in range(columns)]
        names += ["time", "total", "least"] + [f"x{i}" for i in range(slots)]
        return {name: i for i, name in enumerate(names)}

    @property
    def copy(self) -> int:
        """Cells of one copy of what a turn writes (the fields from "time" on). Two more follow the last field."""
        return (len(self.network.species) + 3) * self.lanes

    @property
    def live(self) -> int:
        """The cell whose bits say which lanes carry a path."""
        return len(self.fields) * self.lanes + 2 * self.copy

    @property
    def calmed(self) -> int:
        """The cell where `attend` says which lanes' next flags it has answered already."""
        return self.live + 1

    @property
    def cells(self) -> int:
        return self.live + 2

    def field(self, builder: ir.IRBuilder, name: str, lane):
        """The cell of a field for a lane (a word)."""
        return builder.add(lane, word(self.fields[name] * self.lanes))


def emit_direct(network: Network, width: int, groups: int) -> str:
    """The module's text."""
    if width * groups > 64:
        raise ValueError("lanes are told apart by the bits of one word")
    return _DirectKernel(Layout(network, width, groups)).text()


class _DirectKernel:
    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.network = layout.network
        self.module = ir.Module("direct")

    def text(self) -> str:
        self._emit_attend()
        self._emit_renew()
        self._emit_look()
        self._emit_simulate()
        return str(self.module)

    # ---- the turn ----

    def _emit_simulate(self) -> None:
        builder = self._function("simulate", WORD, [POINTER])
        context = builder.function.args[0]
        lanes = self._pointer(builder, context, Cell.LANES)
        bound = spread(builder, load(builder, REAL, context, word(Cell.RATE_BOUND)), self.layout.width)
        everyone = word((1 << self.layout.lanes) - 1)
        store(builder, word(0), lanes, word(self.layout.live))
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
        for phi, start in zip(phis, (word(0), word(2 * self.layout.copy), word(0), word(0), taken), strict=True):
            phi.add_incoming(start, entry)
        last = builder.icmp_unsigned("==", now, word(2 * self.layout.copy))
        after = builder.select(last, word(0), builder.add(now, word(self.layout.copy)))
        flagged = self._advance(builder, lanes, bound, now, after)
        following = builder.add(turn, word(1))
        advanced = builder.block
        builder.cbranch(builder.icmp_unsigned("==", flagged_before, word(0)), check, attend_block).set_weights([9, 1])

        builder.position_at_end(attend_block)
        turn_before = builder.sub(turn, word(1))
        ended = builder.call(self._declared("attend"), [context, flagged_before, turn_before, before, now, after])
        calmed = load(builder, WORD, lanes, word(self.layout.calmed))
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
        on = Lanes(builder, self.layout.width)
        network = self.network
        with counting(builder, self.layout.lanes, step=self.layout.width) as loop:
            first = loop.index
            current, written = builder.add(first, now), builder.add(first, after)
            amounts = [self._get(builder, lanes, f"x{i}", current) for i in range(len(network.species))]
            values = {species_slot(i).name: amount for i, amount in enumerate(amounts)}
            for k in range(len(network.columns)):
                values[column_slot(k).name] = self._get(builder, lanes, f"c{k}", first)
            writer = RateWriter(on, values)
            rates = [writer.real(rate) for rate in network.rates] or [on.real(0.0)]
            sums, least = [rates[0]], rates[0]
            for rate in rates[1:]:
                sums.append(on.add(sums[-1], rate))
                least = on.select(on.compare("lt", rate, least), rate, least)
            for i in network.guarded:
                least = on.select(on.compare("lt", amounts[i], least), amounts[i], least)
            total = sums[-1]
            state = tuple(self._get(builder, lanes, f"r{w}", first, on.words) for w in range(4))
            waiting_word, state = arithmetic.draw(on, state)
            choice_word, state = arithmetic.draw(on, state)
            for w in range(4):
                self._put(builder, state[w], lanes, f"r{w}", first)
            step = on.div(arithmetic.exponential(on, waiting_word), total)
            time = on.add(self._get(builder, lanes, "time", current), step)
            for name, value in (("time", time), ("total", total), ("least", least)):
                self._put(builder, value, lanes, name, written)
            threshold = on.mul(arithmetic.uniform(on, choice_word), total)
            self._fire(builder, on, lanes, amounts, sums, threshold, written)
            in_time = on.compare("lt", time, self._get(builder, lanes, "next", first))
            sound = on.both(on.compare("lt", total, bound), on.compare("ge", least, on.real(0.0)))
            bits = on.mask_bits(on.negate(on.both(in_time, sound)))
            loop.carry = builder.or_(loop.carry, builder.shl(bits, first))
        return builder.and_(loop.carry, load(builder, WORD, lanes, word(self.layout.live)))

    def _fire(self, builder: ir.IRBuilder, on: Lanes, lanes, amounts, sums, threshold, written) -> None:
        """Reaction r fires when `threshold` is past the first r sums: changes telescope over them.

        `threshold` is below the total (`arithmetic.uniform`), so a reaction of rate 0 cannot be chosen.
        """
        changes = self.network.changes
        past = [on.compare("ge", threshold, partial) for partial in sums[:-1]]
        for i, amount in enumerate(amounts):
            steps = [row[i] for row in changes] or [0]
            if steps[0]:
                amount = on.add(amount, on.real(steps[0]))
            for r in range(1, len(steps)):
                if steps[r] != steps[r - 1]:
                    moved = on.add(amount, on.real(steps[r] - steps[r - 1]))
                    amount = on.select(past[r - 1], moved, amount)
            self._put(builder, amount, lanes, f"x{i}", written)

    # ---- the rare paths ----

    def _emit_attend(self) -> None:
        """Status and outputs of the lanes flagged at `turn`; returns those that ended.

        `before` holds what that turn started from, `now` what it wrote, `after` what the turn since then wrote.
        """
        builder = self._function("attend", WORD, [POINTER, WORD, WORD, WORD, WORD, WORD])
        context, flagged, turn, before, now, after = builder.function.args
        store(builder, word(0), self._pointer(builder, context, Cell.LANES), word(self.layout.calmed))
        on = Lanes(builder, 1)
        lanes = self._pointer(builder, context, Cell.LANES)
        times = self._pointer(builder, context, Cell.TIMES)
        count = word(len(self.network.times))
        with each_bit(builder, flagged) as loop:
            lane, so_far = loop.index, loop.carry
            before_jump, jumped = builder.add(lane, before), builder.add(lane, now)
            time, total, least = (self._one(builder, lanes, name, jumped) for name in ("time", "total", "least"))
            path = self._one(builder, lanes, "path", lane, WORD)
            events = builder.sub(turn, self._one(builder, lanes, "born", lane, WORD))
            limit = self._number(builder, context, Cell.MAX_EVENTS)
            too_many = builder.icmp_unsigned(">", events, limit)
            out_of_range = ir.Constant(ir.IntType(1), 0)
            for i in self.network.guarded:
                amount = self._one(builder, lanes, f"x{i}", before_jump)
                out_of_range = on.either(out_of_range, on.compare("lt", amount, on.real(0.0)))
            finite = on.compare("lt", total, on.real(float("inf")))
            bad_rate = on.negate(on.both(finite, on.compare("ge", least, on.real(0.0))))
            stuck = on.compare("gt", on.mul(total, time), on.real(CLOCK_LIMIT))
            failure = word(0)
            for condition, status in (
                (too_many, Status.EVENT_LIMIT),
                (stuck, Status.CLOCK_STUCK),
                (bad_rate, Status.BAD_RATE),
                (out_of_range, Status.OUT_OF_RANGE),
            ):
                failure = builder.select(condition, word(status), failure)
            failed = builder.icmp_unsigned("!=", failure, word(0))

            judged = builder.block
            passing = builder.append_basic_block("passing")
            record = builder.append_basic_block("record")
            recorded = builder.append_basic_block("recorded")
            close = builder.append_basic_block("close")
            on_with_it = builder.append_basic_block("next")
            cursor_now = self._one(builder, lanes, "cursor", lane, WORD)
            builder.cbranch(failed, close, passing)

            # outputs whose time is not after the new time see the state before the jump (the left limit)
            builder.position_at_end(passing)
            cursor = builder.phi(WORD)
            cursor.add_incoming(cursor_now, judged)
            at_end = builder.icmp_unsigned("==", cursor, count)
            builder.cbranch(at_end, recorded, record)
            builder.position_at_end(record)
            due = load(builder, REAL, times, cursor)
            self._store_one(builder, due, lanes, "next", lane)
            write = builder.append_basic_block("write")
            builder.cbranch(on.compare("lt", time, due), recorded, write)
            builder.position_at_end(write)
            self._record(builder, context, lanes, before_jump, path, cursor)
            cursor.add_incoming(builder.add(cursor, word(1)), builder.block)
            builder.branch(passing)
            builder.position_at_end(recorded)
            self._store_one(builder, cursor, lanes, "cursor", lane)
            self._calm(builder, on, context, lanes, lane, builder.add(lane, after))
            builder.cbranch(builder.icmp_unsigned("==", cursor, count), close, on_with_it)

            builder.position_at_end(close)
            absorbed = builder.select(
                on.compare("eq", total, on.real(0.0)), word(Status.ABSORBED), word(Status.FINISHED)
            )
            status = builder.select(failed, failure, absorbed)
            store(builder, status, self._pointer(builder, context, Cell.STATUS), path)
            store(builder, builder.select(too_many, limit, events), self._pointer(builder, context, Cell.EVENTS), path)
            ended = builder.or_(so_far, builder.shl(word(1), lane))
            builder.branch(on_with_it)

            builder.position_at_end(on_with_it)
            result = builder.phi(WORD)
            result.add_incoming(so_far, recorded)
            result.add_incoming(ended, close)
            loop.carry = result
        builder.ret(loop.carry)

    def _calm(self, builder: ir.IRBuilder, on: Lanes, context, lanes, lane, since) -> None:
        """The turn since then compared with an output time that is now past: answer its flag, if that was all."""
        time, total, least = (self._one(builder, lanes, name, since) for name in ("time", "total", "least"))
        bound = load(builder, REAL, context, word(Cell.RATE_BOUND))
        sound = on.both(on.compare("lt", total, bound), on.compare("ge", least, on.real(0.0)))
        calm = on.both(on.compare("lt", time, self._one(builder, lanes, "next", lane)), sound)
        bit = builder.shl(builder.zext(calm, WORD), lane)
        cell = word(self.layout.calmed)
        store(builder, builder.or_(load(builder, WORD, lanes, cell), bit), lanes, cell)

    def _record(self, builder: ir.IRBuilder, context, lanes, before_jump, path, cursor) -> None:
        """Write every component at output time `cursor`: whole-number sums of amounts."""
        outputs = self._pointer(builder, context, Cell.OUTPUTS)
        row = builder.mul(path, word(padded(self.network.outputs)))
        for c, weights in enumerate(self.network.weights):
            value = word(0)
            for i, weight in enumerate(weights):
                if weight:
                    amount = builder.fptosi(self._one(builder, lanes, f"x{i}", before_jump), WORD)
                    value = builder.add(value, builder.mul(amount, word(weight)))
            cell = builder.add(builder.add(row, word(c * len(self.network.times))), cursor)
            store(builder, value, outputs, cell)

    def _emit_renew(self) -> None:
        """Count ended lanes and give each the next path, if there is one; returns the number of paths taken."""
        builder = self._function("renew", WORD, [POINTER, WORD, WORD, WORD, WORD])
        context, ended, turn, taken, copy = builder.function.args
        on = Lanes(builder, 1)
        lanes = self._pointer(builder, context, Cell.LANES)
        paths = self._number(builder, context, Cell.PATHS)
        done = self._pointer(builder, context, Cell.DONE)
        with each_bit(builder, ended, carry=taken) as loop:
            lane, path = loop.index, loop.carry
            bit = builder.shl(word(1), lane)
            live = load(builder, WORD, lanes, word(self.layout.live))
            was_live = builder.and_(builder.lshr(live, lane), word(1))
            store(builder, builder.add(load(builder, WORD, done, word(0)), was_live), done, word(0))
            available = builder.icmp_unsigned("<", path, paths)
            without = builder.and_(live, builder.xor(bit, word(2**64 - 1)))
            live = builder.select(available, builder.or_(live, bit), without)
            store(builder, live, lanes, word(self.layout.live))
            before = builder.block
            fill = builder.append_basic_block("fill")
            filled = builder.append_basic_block("filled")
            builder.cbranch(available, fill, filled)

            builder.position_at_end(fill)
            row = load(builder, WORD, self._pointer(builder, context, Cell.ROW), path)
            for cell, prefix, number, at in (
                (Cell.START, "x", len(self.network.species), builder.add(lane, copy)),
                (Cell.COLUMNS, "c", len(self.network.columns), lane),
            ):
                base = self._pointer(builder, context, cell)
                first = builder.mul(row, word(number))
                for i in range(number):
                    value = load(builder, REAL, base, builder.add(first, word(i)))
                    self._store_one(builder, value, lanes, f"{prefix}{i}", at)
            self._seed(builder, on, context, lanes, lane, path, row)
            self._store_one(builder, on.real(0.0), lanes, "time", builder.add(lane, copy))
            first_time = load(builder, REAL, self._pointer(builder, context, Cell.TIMES), word(0))
            self._store_one(builder, first_time, lanes, "next", lane)
            for name, value in (("path", path), ("cursor", word(0)), ("born", turn)):
                self._store_one(builder, value, lanes, name, lane)
            following = builder.add(path, word(1))
            builder.branch(filled)

            builder.position_at_end(filled)
            result = builder.phi(WORD)
            result.add_incoming(path, before)
            result.add_incoming(following, fill)
            loop.carry = result
        builder.ret(loop.carry)

    def _seed(self, builder: ir.IRBuilder, on: Lanes, context, lanes, lane, path, row) -> None:
        """The stream of a path: `streams.path_state`, from the keys of its point and its replicate."""
        keys = self._pointer(builder, context, Cell.KEYS)
        replicate = load(builder, WORD, self._pointer(builder, context, Cell.REPLICATE), path)
        for chain in range(2):
            key = load(builder, WORD, keys, builder.add(builder.mul(row, word(2)), word(chain)))
            key = arithmetic.mix64(on, builder.add(builder.xor(key, replicate), word(GOLDEN)))
            for half in range(2):
                state = arithmetic.mix64(on, builder.add(key, word((half + 1) * GOLDEN % 2**64)))
                self._store_one(builder, state, lanes, f"r{2 * chain + half}", lane)

    def _emit_look(self) -> None:
        """Every so often: send paths over the event limit to `attend` (no output is before -inf); the stop flag."""
        builder = self._function("look", WORD, [POINTER, WORD])
        context, turn = builder.function.args
        on = Lanes(builder, 1)
        lanes = self._pointer(builder, context, Cell.LANES)
        limit = self._number(builder, context, Cell.MAX_EVENTS)
        with counting(builder, self.layout.lanes) as loop:
            lane = loop.index
            events = builder.sub(turn, self._one(builder, lanes, "born", lane, WORD))
            due = self._one(builder, lanes, "next", lane)
            over = builder.icmp_unsigned(">", events, limit)
            self._store_one(builder, builder.select(over, on.real(float("-inf")), due), lanes, "next", lane)
        builder.ret(self._load_through(builder, context, Cell.STOP))

    # ---- memory ----

    def _function(self, name: str, result: ir.Type, arguments: list[ir.Type]) -> ir.IRBuilder:
        function = declare(self.module, name, result, arguments)
        function.attributes.add("nounwind")
        if name != "simulate":
            function.attributes.add("noinline")
            function.linkage = "internal"
        return ir.IRBuilder(function.append_basic_block("entry"))

    def _declared(self, name: str) -> ir.Function:
        return self.module.globals[name]

    def _pointer(self, builder: ir.IRBuilder, context, cell: Cell):
        return load(builder, POINTER, context, word(cell))

    def _number(self, builder: ir.IRBuilder, context, cell: Cell):
        return load(builder, WORD, context, word(cell))

    def _load_through(self, builder: ir.IRBuilder, context, cell: Cell):
        return load(builder, WORD, self._pointer(builder, context, cell), word(0))

    def _get(self, builder: ir.IRBuilder, lanes, name: str, first, kind: ir.Type | None = None):
        on = Lanes(builder, self.layout.width)
        align = 8 * self.layout.width
        return load(builder, kind or on.reals, lanes, self.layout.field(builder, name, first), align)

    def _put(self, builder: ir.IRBuilder, value, lanes, name: str, first) -> None:
        store(builder, value, lanes, self.layout.field(builder, name, first), 8 * self.layout.width)

    def _one(self, builder: ir.IRBuilder, lanes, name: str, lane, kind: ir.Type = REAL):
        return load(builder, kind, lanes, self.layout.field(builder, name, lane))

    def _store_one(self, builder: ir.IRBuilder, value, lanes, name: str, lane) -> None:
        store(builder, value, lanes, self.layout.field(builder, name, lane))
