"""Kernels are built by one thread at a time: llvmlite's IR builder fills shared tables (a KeyError now and then)."""

import time
from concurrent.futures import ThreadPoolExecutor

from ctmoments.simulate.engine import built_once


def test_one_thread_builds_and_each_thing_once():
    inside, most, made = [], [], []

    @built_once(maxsize=8)
    def outer(what):
        return inner(what)  # building may ask for building

    @built_once(maxsize=8)
    def inner(what):
        inside.append(what)
        most.append(len(inside))
        time.sleep(0.01)
        made.append(what)
        inside.remove(what)
        return what

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(outer, [k % 4 for k in range(32)]))
    assert results == [k % 4 for k in range(32)]
    assert max(most) == 1
    assert sorted(made) == [0, 1, 2, 3]
