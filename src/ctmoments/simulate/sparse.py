"""The direct method with a dependency graph, for networks of more than a few dozen reactions.

In: a `Graph`. Out: an LLVM module like `direct.py`'s. A few paths a thread: random numbers and times in lock-step,
then each lane picks its reaction in a tree of sums with eight children a node, and after that each lane applies it,
computes anew the rates it changes and the sums above them. Sums are taken afresh from the children, so nothing drifts
and a network where nothing can fire has total exactly 0; blocks are changed in registers, because a vector load of
what was just stored in parts stalls. Lanes do not wait for each other, so the processor overlaps them.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from ctmoments.simulate import arithmetic
from ctmoments.simulate.context import LOOK_EVERY, Cell
from ctmoments.simulate.graph import FAN, Graph, operand
from ctmoments.simulate.ir import POINTER, REAL, WORD, Lanes, counting, each_bit, load, repeat, spread, store, word
from ctmoments.simulate.pathkernel import PathKernel
from ctmoments.simulate.rates import RateWriter
from ctmoments.simulate.sumtree import choose_child, replace_element, sum_block

INT32 = ir.IntType(32)


class SparseKernel(PathKernel):
    """Only the rates that an event changes, and the sums above them."""

    def __init__(self, graph: Graph, width: int, groups: int) -> None:
        super().__init__(graph.network, width, groups)
        self.graph = graph

    @property
    def fields(self) -> dict[str, int]:
        names = ["next", "r0", "r1", "r2", "r3", "path", "cursor", "born", "time", "total", "least", "threshold"]
        return {name: i for i, name in enumerate([*names, "reaction"])}

    @property
    def live(self) -> int:
        return len(self.fields) * self.lanes

    @property
    def _own(self) -> int:
        """Where lanes' own memory begins: `Graph.cells` for each, the tree's levels, amounts, columns."""
        return -(-(self.live + 1) // FAN) * FAN

    @property
    def cells(self) -> int:
        return self._own + self.lanes * self.graph.cells

    def _lane(self, builder: ir.IRBuilder, lanes: Any, lane: Any) -> Any:
        """Where a lane's own memory is."""
        at = builder.add(word(self._own), builder.mul(lane, word(self.graph.cells)))
        return builder.gep(lanes, [at], source_etype=WORD)

    def _level(self, builder: ir.IRBuilder, own: Any, level: int) -> Any:
        """Where the values of a level of a lane's tree are."""
        return builder.gep(own, [word(sum(self.graph.levels[:level]))], source_etype=WORD)

    def _before(self, builder: ir.IRBuilder, own: Any, level: int) -> Any:
        """Where it is kept what lies before each value in its block."""
        return self._level(builder, builder.gep(own, [word(sum(self.graph.levels))], source_etype=WORD), level)

    def _amounts(self, builder: ir.IRBuilder, own: Any) -> Any:
        """Where a lane's amounts are."""
        return builder.gep(own, [word(self.graph.amounts)], source_etype=WORD)

    # ---- the turn ----

    def _emit_simulate(self) -> None:
        builder = self._function("simulate", WORD, [POINTER])
        context = builder.function.args[0]
        lanes = self._pointer(builder, context, Cell.LANES)
        bound = spread(builder, load(builder, REAL, context, word(Cell.RATE_BOUND)), self.width)
        store(builder, word(0), lanes, word(self.live))
        everyone = word((1 << self.lanes) - 1)
        zero = word(0)
        taken = builder.call(self._declared("renew"), [context, everyone, zero, zero, zero])
        entry = builder.block
        turn_block, leave = builder.append_basic_block("turn"), builder.append_basic_block("leave")
        attend_block, renew_block = builder.append_basic_block("attend"), builder.append_basic_block("renew")
        fire_block, look = builder.append_basic_block("fire"), builder.append_basic_block("look")
        fire_all, fired = builder.append_basic_block("fire_all"), builder.append_basic_block("fired")
        builder.branch(turn_block)

        builder.position_at_end(turn_block)
        turn, taken_now = builder.phi(WORD), builder.phi(WORD)
        turn.add_incoming(zero, entry)
        taken_now.add_incoming(taken, entry)
        live = load(builder, WORD, lanes, word(self.live))
        flagged = builder.and_(self._draw_times(builder, lanes, bound), live)
        following = builder.add(turn, word(1))
        drawn = builder.block
        builder.cbranch(builder.icmp_unsigned("==", flagged, zero), fire_block, attend_block).set_weights([9, 1])
        builder.position_at_end(attend_block)
        ended = builder.call(self._declared("attend"), [context, flagged, turn, zero, zero, zero])
        builder.cbranch(builder.icmp_unsigned("==", ended, zero), fire_block, renew_block).set_weights([9, 1])
        builder.position_at_end(renew_block)
        taken_more = builder.call(self._declared("renew"), [context, ended, following, taken_now, zero])
        done = self._load_through(builder, context, Cell.DONE)
        paths = self._number(builder, context, Cell.PATHS)
        builder.cbranch(builder.icmp_unsigned("<", done, paths), fire_block, leave)

        builder.position_at_end(fire_block)
        still, taken_next = builder.phi(WORD), builder.phi(WORD)
        without_ended = {drawn: zero, attend_block: zero, renew_block: ended}
        for block, gone in without_ended.items():
            still.add_incoming(gone, block)
            taken_next.add_incoming(taken_more if block is renew_block else taken_now, block)
        firing = builder.and_(live, builder.not_(still))
        builder.cbranch(builder.icmp_unsigned("!=", firing, zero), fire_all, fired)
        builder.position_at_end(fire_all)
        with each_bit(builder, firing) as loop:
            self._pick(builder, lanes, loop.index)
        with each_bit(builder, firing) as loop:
            self._fire(builder, context, lanes, loop.index)
        builder.branch(fired)
        builder.position_at_end(fired)
        rest = builder.and_(following, word(LOOK_EVERY - 1))
        builder.cbranch(builder.icmp_unsigned("!=", rest, zero), turn_block, look).set_weights([LOOK_EVERY, 1])
        builder.position_at_end(look)
        stop = builder.call(self._declared("look"), [context, following])
        builder.cbranch(builder.icmp_unsigned("==", stop, zero), turn_block, leave)
        for phi, value in ((turn, following), (taken_now, taken_next)):
            phi.add_incoming(value, fired)
            phi.add_incoming(value, look)
        builder.position_at_end(leave)
        builder.ret(zero)

    def _draw_times(self, builder: ir.IRBuilder, lanes: Any, bound: Any) -> Any:
        """The next event's time and the threshold that picks it, in every lane; returns the lanes not calm."""
        on = Lanes(builder, self.width)
        with counting(builder, self.lanes, step=self.width) as loop:
            first = loop.index
            state = tuple(self._get(builder, lanes, f"r{w}", first, on.words) for w in range(4))
            waiting_word, state = arithmetic.draw(on, state)
            choice_word, state = arithmetic.draw(on, state)
            for w in range(4):
                self._put(builder, state[w], lanes, f"r{w}", first)
            total = self._get(builder, lanes, "total", first)
            step = on.div(arithmetic.exponential(on, waiting_word), total)
            time = on.add(self._get(builder, lanes, "time", first), step)
            self._put(builder, time, lanes, "time", first)
            threshold = on.mul(arithmetic.uniform(on, choice_word), total)
            self._put(builder, threshold, lanes, "threshold", first)
            least = self._get(builder, lanes, "least", first)
            in_time = on.compare("lt", time, self._get(builder, lanes, "next", first))
            sound = on.both(on.compare("lt", total, bound), on.compare("ge", least, on.real(0.0)))
            bits = on.mask_bits(on.negate(on.both(in_time, sound)))
            loop.carry = builder.or_(loop.carry, builder.shl(bits, first))
        return loop.carry

    # ---- one event of one lane ----

    def _pick(self, builder: ir.IRBuilder, lanes: Any, lane: Any) -> None:
        """The leaf that the threshold falls on, from the root down."""
        own = self._lane(builder, lanes, lane)
        threshold, node = self._one(builder, lanes, "threshold", lane), word(0)
        whole = self._one(builder, lanes, "total", lane)
        for level in reversed(range(len(self.graph.levels))):
            values, before = self._level(builder, own, level), self._before(builder, own, level)
            node, whole, threshold = choose_child(builder, values, before, node, whole, threshold)
        self._store_one(builder, node, lanes, "reaction", lane)

    def _fire(self, builder: ir.IRBuilder, context: Any, lanes: Any, lane: Any) -> None:
        """Run the program of the lane's reaction: `graph.py` says what it holds."""
        own = self._lane(builder, lanes, lane)
        amounts = self._amounts(builder, own)
        tables = self._pointer(builder, context, Cell.TABLES)
        reaction = self._one(builder, lanes, "reaction", lane, WORD)
        cursor = self._entry(builder, tables, builder.add(word(self.graph.starts), reaction))
        with repeat(builder, self._entry(builder, tables, cursor), [builder.add(cursor, word(1))]) as changes:
            slot, change = (self._entry(builder, tables, changes.carry[0], k) for k in range(2))
            amount = builder.fadd(load(builder, REAL, amounts, slot), builder.sitofp(change, REAL))
            store(builder, amount, amounts, slot)
            changes.carry = [builder.add(changes.carry[0], word(2))]
        cursor, least = changes.carry[0], self._one(builder, lanes, "least", lane)
        values = self._level(builder, own, 0)
        count = self._entry(builder, tables, cursor)
        with repeat(builder, count, [builder.add(cursor, word(1)), least]) as rates:
            cursor, least = rates.carry
            changed = self._entry(builder, tables, cursor)
            rate = self._rate(builder, tables, own, changed)
            replace_element(builder, values, changed, rate)
            smaller = builder.fcmp_ordered("<", rate, least)
            rates.carry = [builder.add(cursor, word(1)), builder.select(smaller, rate, least)]
        cursor, least = rates.carry
        for level in range(1, len(self.graph.levels)):
            below, values = values, self._level(builder, own, level)
            count = self._entry(builder, tables, cursor)
            with repeat(builder, count, [builder.add(cursor, word(1))]) as nodes:
                node = self._entry(builder, tables, nodes.carry[0])
                total = sum_block(builder, below, self._before(builder, own, level - 1), node)
                replace_element(builder, values, node, total)
                nodes.carry = [builder.add(nodes.carry[0], word(1))]
            cursor = nodes.carry[0]
        total = sum_block(builder, values, self._before(builder, own, len(self.graph.levels) - 1), word(0))
        self._store_one(builder, total, lanes, "total", lane)
        self._store_one(builder, self._watch(builder, amounts, least), lanes, "least", lane)

    def _rate(self, builder: ir.IRBuilder, tables: Any, own: Any, reaction: Any) -> Any:
        """A rate by its shape and operands."""
        row = builder.add(word(self.graph.rates), builder.mul(reaction, word(1 + self.graph.operands)))
        values = {}
        for k in range(self.graph.operands):
            values[operand(k).name] = load(builder, REAL, own, self._entry(builder, tables, row, 1 + k))
        if len(self.graph.shapes) == 1:
            return RateWriter(Lanes(builder, 1), values).real(self.graph.shapes[0])
        blocks = [builder.append_basic_block("shape") for _ in self.graph.shapes]
        after = builder.append_basic_block("rated")
        choice = builder.switch(self._entry(builder, tables, row), blocks[0])
        rates = []
        for k, (block, shape) in enumerate(zip(blocks, self.graph.shapes, strict=True)):
            if k:
                choice.add_case(word(k), block)
            builder.position_at_end(block)
            rates.append((RateWriter(Lanes(builder, 1), values).real(shape), builder.block))
            builder.branch(after)
        builder.position_at_end(after)
        result = builder.phi(REAL)
        for rate, block in rates:
            result.add_incoming(rate, block)
        return result

    def _watch(self, builder: ir.IRBuilder, amounts: Any, least: Any) -> Any:
        """Amounts that could fall below zero: a negative one makes `least` negative, which `attend` looks into."""
        for i in self.network.guarded:
            amount = load(builder, REAL, amounts, word(i))
            least = builder.select(builder.fcmp_ordered("<", amount, least), amount, least)
        return least

    # ---- blocks and tables ----

    def _entry(self, builder: ir.IRBuilder, tables: Any, at: Any, offset: int = 0) -> Any:
        """A number of the tables."""
        place = builder.gep(tables, [builder.add(at, word(offset)) if offset else at], source_etype=INT32)
        return builder.sext(builder.load(place, typ=INT32, align=4), WORD)

    # ---- what `attend` and `renew` ask ----

    def _amount(self, builder: ir.IRBuilder, lanes, i, lane, before):
        own = self._lane(builder, lanes, lane)
        return load(builder, REAL, self._amounts(builder, own), word(i))

    def _fill(self, builder: ir.IRBuilder, context, lanes, lane, row, copy) -> None:
        """Start amounts, columns, every rate, every sum."""
        tables = self._pointer(builder, context, Cell.TABLES)
        own = self._lane(builder, lanes, lane)
        target = self._amounts(builder, own)
        for cell, count in ((Cell.START, len(self.network.species)), (Cell.COLUMNS, len(self.network.columns))):
            if count:
                first = builder.mul(row, word(count))
                source = builder.gep(self._pointer(builder, context, cell), [first], source_etype=WORD)
                with counting(builder, count) as loop:
                    store(builder, load(builder, REAL, source, loop.index), target, loop.index)
            target = builder.gep(target, [word(count)], source_etype=WORD)
        self._store_one(builder, ir.Constant(REAL, 0.0), lanes, "time", lane)
        leaves, least = self._level(builder, own, 0), ir.Constant(REAL, 0.0)
        with repeat(builder, word(len(self.network.rates)), [word(0), least]) as loop:
            reaction, least = loop.carry
            rate = self._rate(builder, tables, own, reaction)
            store(builder, rate, leaves, reaction)
            least = builder.select(builder.fcmp_ordered("<", rate, least), rate, least)
            loop.carry = [builder.add(reaction, word(1)), least]
        self._store_one(builder, loop.carry[1], lanes, "least", lane)
        for level, size in enumerate(self.graph.levels):
            values, above = self._level(builder, own, level), self._level(builder, own, level + 1)
            with counting(builder, size // FAN) as blocks:
                total = sum_block(builder, values, self._before(builder, own, level), blocks.index)
                if level + 1 < len(self.graph.levels):
                    store(builder, total, above, blocks.index)
                else:
                    self._store_one(builder, total, lanes, "total", lane)
