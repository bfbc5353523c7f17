"""The sparse kernel against the direct one: same streams, same rules, hence the same paths."""

from itertools import pairwise

import numpy as np
import pytest

import ctmoments as ctm
from ctmoments.simulate import lanes, network
from ctmoments.simulate.graph import FAN, build_graph


def chain(species: int, start: int = 20) -> ctm.Problem:
    names = [f"X{i}" for i in range(species)]
    forward = [f"{a} -> {b} : k*{a}" for a, b in pairwise(names)]
    back = [f"{b} -> {a} : 0.5*k*{b}" for a, b in pairwise(names)]
    model = ctm.Model(dict.fromkeys(names, start), ["k"], forward + back)
    return ctm.Problem(model, ctm.Space(k=(0.5, 1.5)), observe=[names[0], names[-1]], times=[0.5, 1, 2])


def mixed() -> ctm.Problem:
    """Several shapes of rates, constants, a hub, a reaction of large stoichiometry, an absorbing state."""
    reactions = [
        "A + B -> C : k*A*B/100",
        "C -> A + B : 2*C",
        "2 A -> D @ k/50",
        "D -> 2 A : if(D > 3, 1.5*D, D)",
        "B -> 0 : 0.3*B",
        "5 C -> 0 : if(C >= 5, hill(C, 10, 2), 0)",
        "C -> D : min(C, 2)*exp(-D/50)",
    ]
    model = ctm.Model({"A": 60, "B": 40, "C": 0, "D": 5}, ["k"], reactions)
    return ctm.Problem(model, ctm.Space(k=(0.5, 2)), observe=["A", "C + D"], times=[0.3, 1, 4])


def both_kernels(monkeypatch, problem, **settings):
    """Paths by the direct and by the sparse kernel."""
    results = []
    for threshold in (10**9, 0):
        monkeypatch.setattr(network, "SPARSE_FROM", threshold)
        lanes.lower.cache_clear()
        lanes._compiled.cache_clear()
        results.append(ctm.simulate_paths(problem, [[0.7], [1.3]], **settings))
    lanes.lower.cache_clear()
    lanes._compiled.cache_clear()
    return results


@pytest.mark.parametrize("problem", [chain(15), chain(2), mixed()], ids=["chain", "pair", "mixed"])
def test_sparse_paths_are_the_direct_paths(monkeypatch, problem):
    direct, sparse = both_kernels(monkeypatch, problem, replicates=200, seed=3)
    # thresholds round differently in a tree of sums: one tie in about 10^13 events
    np.testing.assert_array_equal(direct.values, sparse.values)
    np.testing.assert_array_equal(direct["status"].values, sparse["status"].values)
    assert direct.attrs["events"] == sparse.attrs["events"]


def test_failures_are_the_same(monkeypatch):
    model = ctm.Model({"X": 3}, ["k"], ["X -> 0 : k", "0 -> X : 0.1"])
    problem = ctm.Problem(model, ctm.Space(k=(0.5, 2)), observe="X", times=[1, 10, 100])
    direct, sparse = both_kernels(monkeypatch, problem, replicates=50, seed=1)
    assert set(np.unique(direct["status"])) >= {3}
    np.testing.assert_array_equal(direct["status"].values, sparse["status"].values)


def test_a_large_network_is_sparse_and_conserves_its_total():
    names = [f"X{i}" for i in range(120)]
    whole = chain(120)
    problem = ctm.Problem(
        whole.model, whole.space, observe=[" + ".join(names[:60]), " + ".join(names[60:]), "X5"], times=[1, 3]
    )
    assert network.lower(problem).sparse
    paths = ctm.simulate_paths(problem, [1.0], replicates=20, seed=1)
    assert (paths.values[..., :2] + paths.values[..., 2:4] == 120 * 20).all()
    assert paths.values[..., 4:].std() > 1


def test_constants_alone_do_not_make_shapes():
    names = [f"X{i}" for i in range(40)]
    model = ctm.Model(dict.fromkeys(names, 5), ["k"], [f"{x} -> 0 : k*{x}*({x} + {i})" for i, x in enumerate(names)])
    graph = build_graph(network.lower(ctm.Problem(model, ctm.Space(k=(1, 2)), observe="X0", times=[1])))
    assert len(graph.shapes) == 2  # X0 + 0 is X0
    assert all(size % FAN == 0 for size in graph.levels)
