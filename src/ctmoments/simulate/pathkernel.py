"""What every lock-step kernel shares: the context, a lane's fields, and what happens to a lane that is not calm.

In: a `Network`. Out: emitted functions of an LLVM module. `attend` looks at lanes that passed an output time or met
trouble: it records outputs and decides how a path ends. `renew` counts ended lanes and gives each its next path.
`look` sends lanes over the event limit to `attend`. A kernel (`direct.py`, `sparse.py`) adds the turn itself.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir

from ctmoments.errors import Status
from ctmoments.simulate import arithmetic
from ctmoments.simulate.context import CLOCK_LIMIT, Cell, padded
from ctmoments.simulate.ir import POINTER, REAL, WORD, Lanes, counting, declare, each_bit, load, store, word
from ctmoments.simulate.network import Network
from ctmoments.simulate.streams import GOLDEN


class Mark(NamedTuple):
    """A marked time that a path passes: its number, which path, where the lane was before the jump and after it."""

    cursor: Any
    path: Any
    before: Any
    now: Any


class PathKernel:
    """A module with the function `simulate(context)`; subclasses emit the turn and say where lanes keep their state."""

    def __init__(self, network: Network, width: int, groups: int) -> None:
        if width * groups > 64:
            raise ValueError("lanes are told apart by the bits of one word")
        self.network = network
        self.width = width
        self.lanes = width * groups
        self.module = ir.Module("paths")

    def text(self) -> str:
        """The module as LLVM reads it."""
        self._emit_attend()
        self._emit_renew()
        self._emit_look()
        self._emit_simulate()
        return str(self.module)

    # ---- where things are ----

    @property
    def fields(self) -> dict[str, int]:
        """Number of each field: field f of a lane is cell f * lanes + lane of the scratch memory."""
        raise NotImplementedError

    @property
    def cells(self) -> int:
        """Cells of scratch memory that a thread needs."""
        raise NotImplementedError

    @property
    def live(self) -> int:
        """The cell whose bits say which lanes carry a path."""
        raise NotImplementedError

    def _emit_simulate(self) -> None:
        raise NotImplementedError

    def _amount(self, builder: ir.IRBuilder, lanes: Any, i: int, lane: Any, before: Any) -> Any:
        """The amount of slot i before the jump that `attend` looks at."""
        raise NotImplementedError

    def _fill(self, builder: ir.IRBuilder, context: Any, lanes: Any, lane: Any, row: Any, copy: Any) -> None:
        """Start amounts and columns of a lane's next path."""
        raise NotImplementedError

    def _least(self, builder: ir.IRBuilder, lanes: Any, at: Any) -> Any:
        """The least of what is watched for being negative."""
        return self._one(builder, lanes, "least", at)

    def _answered(self, builder: ir.IRBuilder, context: Any, lanes: Any, lane: Any, now: Any, after: Any) -> None:
        """A chance to look at the jump that flagged the lane, and at what the lane did since."""

    def _mark(self, builder: ir.IRBuilder, context: Any, lanes: Any, lane: Any, at: Mark) -> None:
        """The path passes a time that is marked: here each is an output time."""
        self._record(builder, context, lanes, lane, at.before, at.path, at.cursor)

    # ---- what happens to a lane that is not calm ----

    def _emit_attend(self) -> None:
        """Status and outputs of the lanes flagged at `turn`; returns those that ended.

        `before` holds what that turn started from, `now` what it wrote, `after` what the turn since then wrote.
        """
        builder = self._function("attend", WORD, [POINTER, WORD, WORD, WORD, WORD, WORD])
        context, flagged, turn, before, now, after = builder.function.args
        on = Lanes(builder, 1)
        lanes = self._pointer(builder, context, Cell.LANES)
        times = self._pointer(builder, context, Cell.TIMES)
        count = self._number(builder, context, Cell.MARKS)
        with each_bit(builder, flagged) as loop:
            lane, so_far = loop.index, loop.carry
            jumped = builder.add(lane, now)
            time, total = (self._one(builder, lanes, name, jumped) for name in ("time", "total"))
            least = self._least(builder, lanes, jumped)
            path = self._one(builder, lanes, "path", lane, WORD)
            events = builder.sub(turn, self._one(builder, lanes, "born", lane, WORD))
            limit = self._number(builder, context, Cell.MAX_EVENTS)
            too_many = builder.icmp_unsigned(">", events, limit)
            out_of_range = ir.Constant(ir.IntType(1), 0)
            for i in self.network.guarded:
                amount = self._amount(builder, lanes, i, lane, before)
                out_of_range = on.either(out_of_range, on.compare("lt", amount, on.real(0.0)))
            finite = on.compare("lt", total, on.real(float("inf")))
            bad_rate = on.negate(on.both(finite, on.compare("ge", least, on.real(0.0))))
            # an infinite time comes of a total near 0: nothing fires before the end
            flat = on.compare("gt", on.mul(total, time), on.real(CLOCK_LIMIT))
            stuck = on.both(flat, on.compare("lt", time, on.real(float("inf"))))
            failure = word(0)
            # the limit overrules: `look` notices it late, and when must not decide how a path ends
            for condition, status in (
                (stuck, Status.CLOCK_STUCK),
                (bad_rate, Status.BAD_RATE),
                (out_of_range, Status.OUT_OF_RANGE),
                (too_many, Status.EVENT_LIMIT),
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

            # marked times that are not after the new time see the state before the jump (the left limit)
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
            self._mark(builder, context, lanes, lane, Mark(cursor, path, before, now))
            cursor.add_incoming(builder.add(cursor, word(1)), builder.block)
            builder.branch(passing)
            builder.position_at_end(recorded)
            self._store_one(builder, cursor, lanes, "cursor", lane)
            self._answered(builder, context, lanes, lane, now, after)
            settled = builder.block
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
            result.add_incoming(so_far, settled)
            result.add_incoming(ended, close)
            loop.carry = result
        builder.ret(loop.carry)

    def _record(self, builder: ir.IRBuilder, context, lanes, lane, before, path, cursor) -> None:
        """Write every component at output time `cursor`: whole-number sums of amounts."""
        outputs = self._pointer(builder, context, Cell.OUTPUTS)
        row = builder.mul(path, word(padded(self.network.outputs)))
        for c, weights in enumerate(self.network.weights):
            value = word(0)
            for i, weight in enumerate(weights):
                if weight:
                    amount = builder.fptosi(self._amount(builder, lanes, i, lane, before), WORD)
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
            live = load(builder, WORD, lanes, word(self.live))
            was_live = builder.and_(builder.lshr(live, lane), word(1))
            store(builder, builder.add(load(builder, WORD, done, word(0)), was_live), done, word(0))
            available = builder.icmp_unsigned("<", path, paths)
            without = builder.and_(live, builder.xor(bit, word(2**64 - 1)))
            live = builder.select(available, builder.or_(live, bit), without)
            store(builder, live, lanes, word(self.live))
            before = builder.block
            fill = builder.append_basic_block("fill")
            filled = builder.append_basic_block("filled")
            builder.cbranch(available, fill, filled)

            builder.position_at_end(fill)
            row = load(builder, WORD, self._pointer(builder, context, Cell.ROW), path)
            self._fill(builder, context, lanes, lane, row, copy)
            self._seed(builder, on, context, lanes, lane, path, row)
            self._store_one(builder, on.real(0.0), lanes, "time", builder.add(lane, copy))
            first_time = load(builder, REAL, self._pointer(builder, context, Cell.TIMES), word(0))
            self._store_one(builder, first_time, lanes, "next", lane)
            for name, value in (("path", path), ("cursor", word(0)), ("born", turn)):
                self._store_one(builder, value, lanes, name, lane)
            following = builder.add(path, word(1))
            done_filling = builder.block
            builder.branch(filled)

            builder.position_at_end(filled)
            result = builder.phi(WORD)
            result.add_incoming(path, before)
            result.add_incoming(following, done_filling)
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
        with counting(builder, self.lanes) as loop:
            lane = loop.index
            events = builder.sub(turn, self._one(builder, lanes, "born", lane, WORD))
            due = self._one(builder, lanes, "next", lane)
            over = builder.icmp_unsigned(">", events, limit)
            self._store_one(builder, builder.select(over, on.real(float("-inf")), due), lanes, "next", lane)
        builder.ret(self._load_through(builder, context, Cell.STOP))

    # ---- memory ----

    def _cell(self, builder: ir.IRBuilder, name: str, lane: Any) -> Any:
        return builder.add(lane, word(self.fields[name] * self.lanes))

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
        on = Lanes(builder, self.width)
        align = 8 * self.width
        return load(builder, kind or on.reals, lanes, self._cell(builder, name, first), align)

    def _put(self, builder: ir.IRBuilder, value, lanes, name: str, first) -> None:
        store(builder, value, lanes, self._cell(builder, name, first), 8 * self.width)

    def _one(self, builder: ir.IRBuilder, lanes, name: str, lane, kind: ir.Type = REAL):
        return load(builder, kind, lanes, self._cell(builder, name, lane))

    def _store_one(self, builder: ir.IRBuilder, value, lanes, name: str, lane) -> None:
        store(builder, value, lanes, self._cell(builder, name, lane))
