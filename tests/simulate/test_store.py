"""Campaigns in a store: the same numbers as in memory, resumed, extended; what differs is refused with both values."""

from __future__ import annotations

import json
import sqlite3

import numpy as np
import pytest

import ctmoments as ctm
from ctmoments.errors import FileError, InputError
from ctmoments.moments.estimate import simulate_moments, store_moments
from ctmoments.simulate import campaign
from ctmoments.simulate.design import sample_design
from ctmoments.simulate.merge import store_hash
from ctmoments.simulate.store import Store

SIR = ctm.load_problem("sir")
DESIGN = sample_design(SIR, 9, seed=3)


def simulate(store, theta=DESIGN, replicates=21, problem=SIR, **settings):
    return simulate_moments(problem, theta, replicates, **({"seed": 5, "store": store, "block_paths": 60} | settings))


def in_memory(theta=DESIGN, replicates=21, problem=SIR):
    return simulate_moments(problem, theta, replicates, seed=5)


def blocks_of(store):
    with Store(store) as held:
        return held.blocks(held.edition)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "campaign.sqlite"


@pytest.mark.parametrize("replicates", [1, 3, 21, 700])
def test_a_store_gives_the_numbers_of_memory(path, replicates):
    theta = DESIGN[:4]
    assert simulate(path, theta, replicates, block_paths=130).identical(in_memory(theta, replicates))
    assert store_moments(path).identical(in_memory(theta, replicates))


def test_one_hash_for_any_cut_and_number_of_threads(tmp_path):
    hashes = set()
    for block_paths in (1, 10, 100, None):
        for threads in (1, 3):
            path = tmp_path / f"{block_paths}-{threads}.sqlite"
            simulate(path, block_paths=block_paths, threads=threads)
            hashes.add(store_hash(path))
    assert len(hashes) == 1
    simulate(tmp_path / "other.sqlite", seed=6)
    assert store_hash(tmp_path / "other.sqlite") not in hashes


def test_resume_does_what_is_missing_and_nothing_else(path, monkeypatch):
    simulate(path)
    whole = store_hash(path)
    kept = blocks_of(path)
    with sqlite3.connect(path) as raw:
        raw.execute("DELETE FROM blocks WHERE block IN (2, 3)")
    raw.close()
    with pytest.raises(FileError, match=r"must be finished: .* of 189 paths are missing. Run it with resume."):
        store_moments(path)
    done = []
    monkeypatch.setattr(campaign, "run_task", lambda job, task, switch: done.append(task) or run(job, task, switch))
    simulate(path, resume=True)
    assert sorted(done) == sorted(block.task for block in kept if block.number in (2, 3))
    assert store_hash(path) == whole
    simulate(path, resume=True)  # finished: a success that does nothing
    assert len(done) == 2


run = campaign.run_task


def test_without_resume_an_existing_store_is_refused(path):
    simulate(path, resume=True)  # a missing one is started
    before = path.read_bytes()
    with pytest.raises(FileError, match="exists already; resume it, or name another store"):
        simulate(path)
    assert path.read_bytes() == before


def test_more_points_and_more_replicates(path):
    """Through every state of an extension, the numbers are those of one go."""
    simulate(path, DESIGN, 1)
    more = sample_design(SIR, 4, seed=3, extend=DESIGN)
    for theta, replicates in ((DESIGN, 3), (more, 3), (more, 12), (more, 16), (more, 21)):
        assert simulate(path, theta, replicates, resume=True).identical(in_memory(theta, replicates))
    simulate(path.with_name("at_once.sqlite"), more, 21)
    assert store_hash(path) == store_hash(path.with_name("at_once.sqlite"))
    with Store(path) as held:
        assert json.loads(held.meta("design")["design_layers"]) == [9, 4]
        assert campaign.stored_design(held).identical(more)


def test_added_times_by_replay(path):
    simulate(path)
    times = (0.5, *SIR.times[:6], 6.25, *SIR.times[6:])
    later = ctm.Problem(SIR.model, SIR.space, observe="I", times=times)
    with pytest.raises(FileError, match=r"holds times = \[1.0, .*asked was \[0.5, 1.0, .* Allow added times"):
        simulate(path, problem=later, resume=True)
    with pytest.raises(FileError, match="All that it holds must be among them"):
        fewer = ctm.Problem(SIR.model, SIR.space, observe="I", times=(0.5, 1.0))
        simulate(path, problem=fewer, resume=True, add_times=True)
    data = simulate(path, problem=later, resume=True, add_times=True)
    assert data.identical(in_memory(problem=later))
    with Store(path) as held:
        assert [times for _, _, times in held.editions()] == [later.times]
    assert simulate(path, problem=later, resume=True).identical(data)


def test_replay_that_gives_other_numbers_is_refused(path):
    simulate(path, block_paths=1000)
    with Store(path, write=True) as held:
        block = held.read_block(1)
        sums = bytearray(block.sums)
        sums[40] ^= 1
        wrong = type(block)(block.task, bytes(sums), block.statuses, 0, block.events, "", 1.0)
        with held.transaction():
            held.drop_block(1)
            held.add_block(0, wrong, wrong.checksum(0))
    later = ctm.Problem(SIR.model, SIR.space, observe="I", times=(*SIR.times, 14))
    with pytest.raises(FileError, match="replaying row 0 gave other numbers than those stored"):
        simulate(path, problem=later, resume=True, add_times=True)


def variant(**changes):
    text = SIR.to_toml()
    for old, new in changes.values():
        assert old in text
        text = text.replace(old, new)
    from ctmoments.model.toml import problem_from_toml

    return problem_from_toml(text)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"seed": 6}, "holds seed = 5, asked was 6"),
        ({"max_events": 99}, "holds max_events = 1000000000, asked was 99"),
        ({"purpose": ctm.simulate.streams.Purpose.PILOT_PATHS}, "holds purpose = 'paths', asked was 'pilot_paths'"),
        ({"problem": variant(a=("beta*S*I", "beta*I*S"))}, r"holds model.reactions\[0\] = .*S\*I', asked was .*I\*S'"),
        ({"problem": variant(a=("I = 3", "I = 4"))}, "holds model.species.I = 3, asked was 4"),
        ({"problem": variant(a=("[0.1, 0.9]", "[0.1, 0.95]"))}, r"holds space.alpha\[1\] = 0.9, asked was 0.95"),
        ({"problem": variant(a=('["I"]', '["S"]'))}, r"holds outputs\[0\] = 'I', asked was 'S'"),
        ({"replicates": 20}, "holds replicates = 21, asked was 20"),
        ({"theta": DESIGN[:3]}, "holds 9 points, asked were 3"),
        ({"theta": sample_design(SIR, 9, seed=4)}, r"holds point 0 = \[.*\], asked was point 0 = \["),
        ({"theta": DESIGN.assign_coords(point=range(1, 10))}, "holds point 0 = .*, asked was point 1 = "),
    ],
)
def test_a_store_of_something_else_is_refused_with_both_values(path, settings, match):
    simulate(path)
    before = path.read_bytes()
    with pytest.raises(FileError, match=match):
        simulate(path, resume=True, **settings)
    assert path.read_bytes() == before


def test_names_and_descriptions_are_no_difference(path):
    simulate(path)
    simulate(path, resume=True, problem=ctm.Problem(SIR.model, SIR.space, "I", SIR.times, name="mine"))


def test_arithmetic_of_another_machine_is_refused_where_results_may_depend_on_it(path, monkeypatch):
    problem = ctm.Problem(
        ctm.Model({"X": 9}, ["k"], ["X -> 0 : exp(k)*X"]), ctm.Space(k=(0, 1)), observe="X", times=[1]
    )
    theta = sample_design(problem, 2)
    simulate(path, theta, problem=problem)
    monkeypatch.setattr(np, "exp", lambda x: np.nextafter(np.e**x, 9))
    with pytest.raises(FileError, match=r"holds arithmetic = 'exp, log and power of .*', asked was 'exp, log and"):
        simulate(path, theta, problem=problem, resume=True)
    monkeypatch.undo()
    simulate(path.with_name("sir.sqlite"))
    with Store(path.with_name("sir.sqlite")) as held:
        assert held.meta("identity")["arithmetic"] == "the same on every machine"


def test_failed_points_are_recorded_and_the_rest_goes_on(path):
    model = ctm.Model({"X": 3}, ["k"], ["0 -> X : k - X"])  # negative once X passes k
    problem = ctm.Problem(model, ctm.Space(k=(1, 1000)), observe="X", times=[1])
    data = simulate(path, [[900.0], [5.5]], 10, problem=problem)
    assert data["status_count"].sel(status="bad_rate").values.tolist()[0] == 0
    assert data["status_count"].sel(status="bad_rate").values.tolist()[1] > 0
    assert np.isfinite(data["mean"].values[0]).all() and np.isnan(data["mean"].values[1]).all()
    assert data.identical(simulate_moments(problem, [[900.0], [5.5]], 10, seed=5))


def test_campaign_settings_need_a_store():
    for name, value in (("resume", True), ("workers", 2), ("scheduler", "tcp://x:1"), ("add_times", True)):
        with pytest.raises(InputError, match=f"`{name}` needs a `store`, got"):
            simulate_moments(SIR, DESIGN, 2, **{name: value})
    with pytest.raises(InputError, match="`workers` and `scheduler` must not both be given"):
        simulate_moments(SIR, DESIGN, 2, store="x", workers=2, scheduler="tcp://x:1")
    with pytest.raises(InputError, match="`block_paths` must be a whole number from 1"):
        simulate_moments(SIR, DESIGN, 2, store="x", block_paths=0)
