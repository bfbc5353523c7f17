"""The inner step of the exact solver, compiled: a sum of powers of the uniformised chain over the rows of a window.

In: vectors on a window (flat boxes of float64), the operator's coefficients, a table of rows with where each
reaction's source lies. Out: for each vector u the vector sum_k weight_k P^k u, or its transpose, where P = 1 + Q/rate,
by Horner's rule: u <- P u + weight v.
One call makes all powers for all vectors; it knows nothing of models, states or times, so another device can take
its place (`reference_steps` is the same in NumPy).

Each row is a whole number of blocks of `LANES` doubles and every shift is a constant of the row, so the step is a pure
stream of fused multiply-adds. Four vectors share each load of the coefficients: 1.5 times one at a time (SIR, Zen 5).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

import numpy as np

LANES = 8  # doubles in a block: one AVX-512 register; narrower machines take two or four
CACHE_BYTES = 400_000  # of the second level that the wave front may fill
GROUP = 4  # vectors that share the loads of coefficients

Steps = Callable[..., np.ndarray]


def apply_powers(
    weights: np.ndarray, vectors: np.ndarray, hold: np.ndarray, coefficients: np.ndarray, rows: np.ndarray,
    lag: int,
) -> np.ndarray:  # fmt: skip
    """Return sum_k weights[k] P^k vectors, all vectors (count, box) at once.

    `coefficients` (1 + reactions, box) holds the probability of staying and of each reaction; `rows`
    (row, 2 + 2 reactions) holds start, length, then for each reaction the offset of the vector's element and of the
    coefficient. `hold` is unused by the arithmetic: scratch of the shape of `vectors`, zero outside the rows.
    """
    count, box = vectors.shape
    reactions = coefficients.shape[0] - 1
    degree = len(weights) - 1
    descending = np.ascontiguousarray(weights[::-1])
    depth = _depth(rows, reactions, min(count, GROUP), lag)
    first = aligned_zeros(vectors.shape)
    np.multiply(vectors, descending[0], out=first)
    if degree == 0:
        return first
    _compiled(reactions)(
        degree, _pointer(descending[1:]), _pointer(first), _pointer(hold), _pointer(vectors), count, box,
        _pointer(coefficients), _pointer(rows), len(rows), lag, depth,
    )  # fmt: skip
    return hold if degree % 2 else first


def reference_steps(weights: np.ndarray, vectors: np.ndarray, coefficients: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return the same as `apply_powers`, row by row in NumPy: the oracle of the compiled code."""
    reactions = coefficients.shape[0] - 1
    result = vectors * weights[-1]
    for weight in weights[-2::-1]:
        stepped = np.zeros_like(vectors)
        for start, length, *offsets in rows:
            here = np.arange(start, start + length)
            value = coefficients[0, here] * result[:, here] + weight * vectors[:, here]
            for j in range(reactions):
                value += coefficients[1 + j, here + offsets[reactions + j]] * result[:, here + offsets[j]]
            stepped[:, here] = value
        result = stepped
    return result


def aligned_zeros(shape: tuple[int, ...]) -> np.ndarray:
    """Return zeros that start on a cache line, so that only shifted loads cross one."""
    size = int(np.prod(shape))
    room = np.zeros(size + LANES)
    first = (-room.ctypes.data // 8) % LANES
    return room[first : first + size].reshape(shape)


def _depth(rows: np.ndarray, reactions: int, group: int, lag: int) -> int:
    """Return how many powers the wave front holds: what fits the cache, between 1 and 8.

    Power k + 1 of a row needs power k of the rows up to `lag` away, so it follows `lag` rows behind, and reads what
    is still in the cache: 0.30 in place of 0.52 ns a state and power (SIR, Zen 5, one vector; 0.28 for 0.34, four).
    """
    row_bytes = 8 * (1 + reactions + 3 * group) * rows[:, 1].mean()
    return int(np.clip(CACHE_BYTES / (max(lag, 1) * row_bytes), 1, 8))


def _pointer(array: np.ndarray) -> int:
    return array.ctypes.data


@cache
def _compiled(reactions: int) -> Callable[..., None]:
    """Compile the step for a number of distinct reactions; kept for the life of the process."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features().flatten()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=features + ",-prefer-256-bit", opt=3, jit=True
    )
    module = llvm.parse_assembly(_source(reactions))
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    integer, pointer = ctypes.c_int64, ctypes.c_void_p
    kinds = (integer, pointer, pointer, pointer, pointer, integer, integer, pointer, pointer, integer, integer, integer)
    function = ctypes.CFUNCTYPE(None, *kinds)(engine.get_function_address("steps"))
    _ENGINES.append(engine)  # the engine owns the code
    return function


_ENGINES: list = []


def _source(reactions: int) -> str:
    """Emit LLVM IR: loops over groups of vectors, bands of powers, the wave front (row, power), blocks."""
    stride = 2 + 2 * reactions
    loads = "\n".join(
        f"  %o{k}.p = getelementptr i64, ptr %row, i64 {2 + k}\n  %o{k} = load i64, ptr %o{k}.p"
        for k in range(2 * reactions)
    )
    return f"""
define void @steps(i64 %degree, ptr %weights, ptr noalias %a, ptr noalias %b, ptr noalias %v, i64 %count, i64 %box,
                   ptr noalias %c, ptr noalias %rows, i64 %nrows, i64 %lag, i64 %depth) {{
entry:
  br label %groups
groups:
  %g = phi i64 [0, %entry], [%g.next, %group.end]
  %left = sub i64 %count, %g
  %many = icmp sge i64 %left, {GROUP}
  %g.off = mul i64 %g, %box
  br label %bands
bands:
  %k0 = phi i64 [0, %groups], [%k0.next, %band.end]
  %to.go = sub i64 %degree, %k0
  %band.part = icmp slt i64 %to.go, %depth
  %band = select i1 %band.part, i64 %to.go, i64 %depth
  %band.last = sub i64 %band, 1
  %tail = mul i64 %band.last, %lag
  %front.end = add i64 %nrows, %tail
  br label %front
front:
  %tau = phi i64 [0, %bands], [%tau.next, %front.done]
  br label %powers
powers:
  %k = phi i64 [0, %front], [%k.next, %row.done]
  %behind = mul i64 %k, %lag
  %r = sub i64 %tau, %behind
  %r.inside = icmp ult i64 %r, %nrows
  br i1 %r.inside, label %row.begin, label %row.done
row.begin:
  %power = add i64 %k0, %k
  %parity = and i64 %power, 1
  %odd = icmp ne i64 %parity, 0
  %in = select i1 %odd, ptr %b, ptr %a
  %out = select i1 %odd, ptr %a, ptr %b
  %w.p = getelementptr double, ptr %weights, i64 %power
  %w.s = load double, ptr %w.p
  %w.i = insertelement <{LANES} x double> undef, double %w.s, i32 0
  %w = shufflevector <{LANES} x double> %w.i, <{LANES} x double> undef, <{LANES} x i32> zeroinitializer
  %r.o = mul i64 %r, {stride}
  %row = getelementptr i64, ptr %rows, i64 %r.o
  %start = load i64, ptr %row
  %len.p = getelementptr i64, ptr %row, i64 1
  %len = load i64, ptr %len.p
{loads}
  br i1 %many, label %many.loop, label %one.loop
{_block_loop("many", GROUP, reactions)}
{_block_loop("one", 1, reactions)}
row.done:
  %k.next = add i64 %k, 1
  %k.more = icmp slt i64 %k.next, %band
  br i1 %k.more, label %powers, label %front.done
front.done:
  %tau.next = add i64 %tau, 1
  %tau.more = icmp slt i64 %tau.next, %front.end
  br i1 %tau.more, label %front, label %band.end
band.end:
  %k0.next = add i64 %k0, %depth
  %k0.more = icmp slt i64 %k0.next, %degree
  br i1 %k0.more, label %bands, label %group.end
group.end:
  %step = select i1 %many, i64 {GROUP}, i64 1
  %g.next = add i64 %g, %step
  %g.more = icmp slt i64 %g.next, %count
  br i1 %g.more, label %groups, label %done
done:
  ret void
}}
"""


def _block_loop(name: str, group: int, reactions: int) -> str:
    """Emit the loop over blocks of one row, for `group` vectors at once."""
    vector = f"<{LANES} x double>"
    lines = [
        f"{name}.loop:",
        f"  %{name}.i = phi i64 [0, %row.begin], [%{name}.next, %{name}.loop]",
        f"  %{name}.x = add i64 %start, %{name}.i",
        f"  %{name}.d.p = getelementptr double, ptr %c, i64 %{name}.x",
        f"  %{name}.d = load {vector}, ptr %{name}.d.p, align 8",
    ]
    for j in range(reactions):
        lines += [
            f"  %{name}.c{j}.r = mul i64 %box, {1 + j}",
            f"  %{name}.c{j}.s = add i64 %{name}.c{j}.r, %o{reactions + j}",
            f"  %{name}.c{j}.x = add i64 %{name}.c{j}.s, %{name}.x",
            f"  %{name}.c{j}.p = getelementptr double, ptr %c, i64 %{name}.c{j}.x",
            f"  %{name}.c{j} = load {vector}, ptr %{name}.c{j}.p, align 8",
        ]
    for q in range(group):
        p = f"%{name}.{q}"
        lines += [
            f"  {p}.b = mul i64 %box, {q}",
            f"  {p}.g = add i64 {p}.b, %g.off",
            f"  {p}.x = add i64 {p}.g, %{name}.x",
            f"  {p}.v.p = getelementptr double, ptr %v, i64 {p}.x",
            f"  {p}.v = load {vector}, ptr {p}.v.p, align 8",
            f"  {p}.s = fmul contract {vector} {p}.v, %w",
            f"  {p}.u.p = getelementptr double, ptr %in, i64 {p}.x",
            f"  {p}.u = load {vector}, ptr {p}.u.p, align 8",
            f"  {p}.du = fmul contract {vector} {p}.u, %{name}.d",
            f"  {p}.t0 = fadd contract {vector} {p}.s, {p}.du",
        ]
        for j in range(reactions):
            lines += [
                f"  {p}.u{j}.x = add i64 {p}.x, %o{j}",
                f"  {p}.u{j}.p = getelementptr double, ptr %in, i64 {p}.u{j}.x",
                f"  {p}.u{j} = load {vector}, ptr {p}.u{j}.p, align 8",
                f"  {p}.m{j} = fmul contract {vector} {p}.u{j}, %{name}.c{j}",
                f"  {p}.t{j + 1} = fadd contract {vector} {p}.t{j}, {p}.m{j}",
            ]
        lines += [
            f"  {p}.o.p = getelementptr double, ptr %out, i64 {p}.x",
            f"  store {vector} {p}.t{reactions}, ptr {p}.o.p, align 8",
        ]
    lines += [
        f"  %{name}.next = add i64 %{name}.i, {LANES}",
        f"  %{name}.more = icmp slt i64 %{name}.next, %len",
        f"  br i1 %{name}.more, label %{name}.loop, label %row.done",
    ]
    return "\n".join(lines)
