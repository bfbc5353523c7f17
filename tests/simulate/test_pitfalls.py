"""One test for each line of "Stochastic simulation" in PITFALLS.md that applies: each kills that mutant.

Statistical ones state a bound on |z| of 6.5 (false alarm below 1e-10 each) and an error that is many times larger.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers import fingerprint, problem_of, statuses

import ctmoments as ctm
from ctmoments.errors import InputError, Status
from ctmoments.simulate import lanes
from ctmoments.simulate.lanes import Lockstep, Switch, prepare, run_block
from ctmoments.simulate.streams import Purpose, path_state
from ctmoments.simulate.sums import Ranges

Z = 6.5


def _mean_z(paths, exact: np.ndarray, variance: np.ndarray) -> float:
    values = paths.values[0]
    return float(np.abs((values.mean(axis=0) - exact) / np.sqrt(variance / len(values))).max())


def _poisson(times, rate=1.0) -> ctm.Problem:
    return problem_of({"X": 0}, ["0 -> X : k"], "X", times, k=(0, 1e6)), [rate]


def test_value_after_the_jump_saved_at_a_sample_time():
    """It would add 1 to every mean: 89 standard errors at kt = 2.5."""
    problem, theta = _poisson([0.5, 1.0, 2.5])
    paths = ctm.simulate_paths(problem, theta, 20_000, seed=1)
    exact = np.array([0.5, 1.0, 2.5])
    assert _mean_z(paths, exact, exact) < Z


def test_several_jumps_between_two_outputs_lost():
    """A hundred jumps between outputs: all must count."""
    problem, theta = _poisson([1.0, 2.0], 100.0)
    paths = ctm.simulate_paths(problem, theta, 5000, seed=2)
    assert _mean_z(paths, np.array([100.0, 200.0]), np.array([100.0, 200.0])) < Z


def test_several_outputs_between_two_jumps_filled():
    """Dense times: each output keeps the state, none is skipped or zero; steps are those of one path."""
    problem = problem_of({"X": 7}, ["X -> 0 : k*X", "0 -> X : k"], "X", np.arange(0, 5, 0.01), k=(0, 9))
    values = ctm.simulate_paths(problem, [0.3], 50, seed=3).values[0]
    assert (values[:, 0] == 7).all()
    assert (np.abs(np.diff(values, axis=1)) <= 2).all() and (np.diff(values, axis=1) == 0).mean() > 0.9


@pytest.mark.parametrize("last", [50.0, 1e300])
def test_last_output_time_filled(last):
    """Long after the last jump: absorbed at 3, not 0."""
    problem = problem_of({"X": 1}, ["0 -> X : k*(3 - X)"], "X", [1.0, last / 2, last], k=(0, 9))
    paths = ctm.simulate_paths(problem, [5.0], 100, seed=4)
    assert (paths.values[0, :, 1:] == 3).all() and set(statuses(paths)) == {Status.ABSORBED}


def test_one_waiting_time_for_each_step_whatever_the_output_grid():
    """Drawing anew at an output time would be as random, but another path: adding times changes nothing."""
    problem, theta = _poisson([4.0], 3.0)
    few = ctm.simulate_paths(problem, theta, 300, seed=5)
    many = ctm.simulate_paths(replace(problem, times=np.linspace(0.1, 4.0, 40)), theta, 300, seed=5)
    np.testing.assert_array_equal(few.values[..., -1], many.values[..., -1])
    assert few.attrs["events"] == many.attrs["events"]


def test_clock_reset_between_paths():
    """Far more paths than lanes, in one lane: the mean of late paths is that of the first."""
    problem, theta = _poisson([2.0], 2.0)
    paths = ctm.simulate_paths(problem, theta, 8000, seed=6, lockstep=Lockstep(1, 1), threads=1)
    for part in (slice(0, 4000), slice(4000, 8000)):
        assert _mean_z(paths[:, part], np.array([4.0]), np.array([4.0])) < Z


def test_clock_goes_flat_without_a_word():
    """Events 1e-18 apart at t near 1 cannot move a float64 clock: the path says so instead of running for ever."""
    problem = problem_of({"Y": 1, "X": 0}, ["Y -> 0 : Y", "0 -> X : if(Y < 1, k, 0)"], "X", [100.0], k=(0, 1e20))
    paths = ctm.simulate_paths(problem, [1e18], 20, seed=7, max_events=10**6)
    assert set(statuses(paths)) == {Status.CLOCK_STUCK} and np.isnan(paths.values).all()
    calm = ctm.simulate_paths(problem, [1e3], 20, seed=7)  # 1e5 is far from stuck
    assert set(statuses(calm)) == {Status.FINISHED}


def test_float64_clock_keeps_time():
    """Steps of 5e-5 at t up to 750: a float32 clock (last place 6e-5) is wrong by tens of percent; here 0.1 %."""
    problem, theta = _poisson([750.0], 2e4)
    prepared = prepare(problem, ctm.as_theta(problem, theta), 8, Purpose.PATHS)
    ranges = Ranges(np.array([0]), np.array([0]), np.array([8]))
    values = run_block(prepared, ranges, Switch(), Lockstep(lanes.vector_width(), 1)).outputs[:, 0]
    assert abs(values.mean() - 1.5e7) / np.sqrt(1.5e7 / 8) < Z


@pytest.mark.parametrize("fillers", [0, 100])
def test_rate_follows_a_species_that_is_not_a_reactant(fillers):
    """Y only enters X's rate: in either kernel the rate must change when Y does. Y decays before X is likely made."""
    reactions = ["Y -> 0 : 2*Y", "0 -> X : 3*Y^1"] + [f"0 -> F{k} : 0.001*k" for k in range(fillers)]
    species = {"Y": 10, "X": 0} | {f"F{k}": 0 for k in range(fillers)}
    problem = problem_of(species, reactions, "X", [0.4, 8.0], k=(0, 9))
    paths = ctm.simulate_paths(problem, [1.0], 4000, seed=9)
    mean = 10 * 1.5 * (1 - np.exp(-2 * np.array([0.4, 8.0])))
    q = 1.5 * (1 - np.exp(-2 * np.array([0.4, 8.0])))
    assert _mean_z(paths, mean, 10 * (q + 3 * q)) < Z  # variance bounded from above: a stuck rate is off by 30 %
    assert abs(paths.values[0, :, 1].mean() - 15) < 1


def test_two_of_a_kind_react():
    """X + X is 2 X, ordered pairs, falling factorial; a verbatim x*x is another law, and fires at 1."""

    def at_end(*reactions):
        problem = problem_of({"X": 9, "Y": 0}, reactions, ["X", "Y"], [0.05, 1e6], k=(0, 9))
        return ctm.simulate_paths(problem, [1.0], 500, seed=10)

    shorthand, twice, by_hand = at_end("2 X -> Y @ k"), at_end("X + X -> Y @ k"), at_end("2 X -> Y : k*X*(X - 1)")
    assert fingerprint(shorthand.values) == fingerprint(twice.values) == fingerprint(by_hand.values)
    assert (shorthand.values[0, :, [1, 3]].T == [1, 4]).all()
    wrong = at_end("2 X -> Y : k*X*X")
    assert set(statuses(wrong)) == {Status.OUT_OF_RANGE}


def test_zero_order_loss_below_zero():
    problem = problem_of({"X": 2}, ["X -> 0 : k"], "X", [0.1, 50.0], k=(0, 9))
    paths = ctm.simulate_paths(problem, [1.0], 100, seed=11)
    assert set(statuses(paths)) == {Status.OUT_OF_RANGE} and np.isnan(paths.values).all()
    guarded = problem_of({"X": 2}, ["X -> 0 : if(X > 0, k, 0)"], "X", [0.1, 50.0], k=(0, 9))
    paths = ctm.simulate_paths(guarded, [1.0], 100, seed=11)
    assert set(statuses(paths)) == {Status.ABSORBED} and (paths.values[..., 1] == 0).all()


def test_non_integer_starts_refused():
    problem = problem_of({"X": "10*k"}, ["X -> 0 : X"], "X", [1.0], k=(0, 9))
    with pytest.raises(InputError, match=r"initial amount of 'X'"):
        ctm.simulate_paths(problem, [0.55], 3)
    assert (ctm.simulate_paths(replace(problem, times=[0.0]), [0.5], 3).values == 5).all()


def test_populations_beyond_32_bits():
    start = 2**31 - 2
    problem = problem_of({"X": start, "Y": 2**33}, ["0 -> X @ k", "Y -> 0 : k"], ["X", "3*Y"], [0.0, 5.0], k=(0, 9))
    values = ctm.simulate_paths(problem, [9.0], 50, seed=12).values[0]
    assert (values[:, 0] == start).all() and (values[:, 2] == 3 * 2**33).all()
    assert (values[:, 1] > start + 5).all() and (values[:, 1] < start + 200).all()
    assert (values[:, 3] < 3 * 2**33).all() and (values[:, 3] > 3 * (2**33 - 200)).all()


@pytest.mark.parametrize("reactions", [
    ["0 -> X : k", "0 -> 1000 X : 0*k + z"], ["0 -> 1000 X : z", "0 -> X : k"],
    ["0 -> X : k/3", "0 -> 1000 X : z", "0 -> X : k/3", "0 -> X : k/3", "0 -> 1000 X : z"],
])  # fmt: skip
def test_a_channel_of_rate_0_never_fires_and_every_step_fires_one(reactions):
    """2 million events: selection neither falls through (time moves, nothing fires) nor ends in a dead channel."""
    problem = problem_of({"X": 0}, reactions, "X", [100.0], k=(0, 1e5), z=(0, 1))
    paths = ctm.simulate_paths(problem, [333.3, 0.0], 64, seed=13)
    assert paths.values.sum() == paths.attrs["events"] > 2e6


def test_rare_channels_fire_at_their_rate():
    """A channel of 1e-6 of the total, 1e8 events: 100 expected, Poisson; within 6.5 standard deviations."""
    problem = problem_of({"Q": 1, "R": 0}, ["Q -> Q : k*Q", "0 -> R : 1e-6*k"], "R", [1.0], k=(0, 1e9))
    paths = ctm.simulate_paths(problem, [1e6], 100, seed=14)
    assert abs(paths.values.sum() - 100) < 65


def test_absorbing_states_end_a_path():
    """No rate left: the state stays, no NaN, no endless loop, counted as a normal end."""
    problem = problem_of({"X": 5}, ["X -> 0 : k*X"], "X", [1.0, 1e3, 1e9], k=(0, 9))
    data = ctm.simulate_moments(problem, [[2.0], [0.0]], 200, seed=15)
    assert data["status_count"].sel(status="absorbed").values.tolist() == [200, 200]
    np.testing.assert_array_equal(data["mean"].values[:, 1:], [[0, 0], [5, 5]])
    np.testing.assert_array_equal(data["cov"].values[:, 1:, 1:], 0)


def test_no_two_paths_share_a_stream():
    """Points with equal parameters, replicates, seeds next to each other, purposes: all different paths."""
    problem, _ = _poisson(np.arange(1.0, 9.0))
    theta, seen = np.full((4, 1), 40.0), []
    for seed in (0, 1, 2, 2**63):
        seen.append(ctm.simulate_paths(problem, theta, 50, seed=seed).values.reshape(-1, 8))
    seen.append(ctm.simulate_paths(problem, theta, 50, seed=0, purpose=Purpose.PILOT_PATHS).values.reshape(-1, 8))
    paths = np.concatenate(seen)
    assert len(np.unique(paths, axis=0)) == len(paths) == 1000


def test_points_are_independent_though_one_seed_serves_all():
    """`base + i` seeds repeated at each point would correlate means over points: 4,000 points, |r| < 6.5/sqrt(4000)."""
    problem, _ = _poisson([1.0])
    means = ctm.simulate_moments(problem, np.full((8000, 1), 30.0), 4, seed=16)["mean"].values[:, 0].reshape(2, -1)
    assert abs(np.corrcoef(means)[0, 1]) < Z / np.sqrt(4000)
    assert abs(np.corrcoef(means.ravel()[:-1], means.ravel()[1:])[0, 1]) < Z / np.sqrt(7999)


def test_a_stream_is_its_address():
    """Not the clock, the process or the thread: the first jump is what `streams` says it is."""
    problem, theta = _poisson([1e-3], 1e-6)
    assert path_state(3, Purpose.PATHS, 2, 1).tolist() == path_state(3, Purpose.PATHS, 2, 1).tolist()
    first = ctm.simulate_paths(problem, theta, 20, seed=3, threads=1)
    again = ctm.simulate_paths(problem, theta, 20, seed=3, threads=3)
    assert fingerprint(first.values) == fingerprint(again.values)


def test_no_race_in_parallel_sums():
    """Three threads, small blocks of one point, ten times over: always the bits of one thread."""
    problem, theta = ctm.load_problem("dimerisation"), [[0.001, 0.1]]
    one = ctm.simulate_moments(problem, theta, 4000, seed=17, threads=1)
    for _ in range(10):
        many = ctm.simulate_moments(problem, theta, 4000, seed=17, threads=3, block_paths=64)
        assert fingerprint(many["mean"].values, many["cov"].values, many["cov_se"].values) == fingerprint(
            one["mean"].values, one["cov"].values, one["cov_se"].values
        )


BAD_RATES = ("sqrt(2 - X)", "log(3 - X)/(X - 2)^0 - 9*(X > 1)", "1/(3 - X)", "exp(800*X)", "1.5 - X")


@pytest.mark.parametrize("rate", BAD_RATES)
@pytest.mark.parametrize("order", [1, -1])  # a NaN behind a sound rate does not show in their minimum
def test_bad_rates_are_seen_and_not_run_with(rate, order):
    """NaN, negative and infinite rates, reached after a few events; no flag of the compiler deletes the guard."""
    reactions = [f"0 -> X : k*({rate})", "0 -> X : 0.01*k"][::order]
    problem = problem_of({"X": 0}, reactions, "X", [0.0, 1e5], k=(0, 9))
    paths = ctm.simulate_paths(problem, [1.0], 64, seed=18, max_events=10**5)
    assert set(statuses(paths)) == {Status.BAD_RATE} and np.isnan(paths.values).all()
    assert paths.attrs["events"] <= 64 * 4
