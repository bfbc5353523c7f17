"""Bad input is refused before anything runs, or ends in a `Status` counted at its point; Ctrl-C ends a job at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from helpers import child_environment, problem_of

import ctmoments as ctm
from ctmoments.errors import CtmomentsError, InputError, ModelError, Status, ThetaError

BOTH = pytest.mark.parametrize("simulate", [ctm.simulate_paths, ctm.simulate_moments])


def _counts(reactions, theta, start=3, times=(1.0, 40.0), **settings):
    problem = problem_of({"X": start}, reactions, "X", times, k=(-9.0, 1e18))
    data = ctm.simulate_moments(problem, np.array(theta)[:, None], 40, seed=1, **settings)
    return {
        name: data["status_count"].sel(status=name).values.tolist()
        for name in data["status"].values.tolist()
        if data["status_count"].sel(status=name).any()
    }


def test_every_failure_is_counted_at_its_own_point():
    assert _counts(["0 -> X : k*(X + 1)"], [0.01, -1.0]) == {"finished": [40, 0], "bad_rate": [0, 40]}
    assert _counts(["0 -> X : sqrt(k)"], [1.0, -1.0, 4.0]) == {"finished": [40, 0, 40], "bad_rate": [0, 40, 0]}
    assert _counts(["0 -> X : 1/k"], [1.0, 0.0]) == {"finished": [40, 0], "bad_rate": [0, 40]}
    assert _counts(["X -> 0 : k"], [0.0, 5.0]) == {"absorbed": [40, 0], "out_of_range": [0, 40]}
    assert _counts(["0 -> X : k"], [0.1, 1e4], max_events=1000) == {"finished": [40, 0], "event_limit": [0, 40]}
    assert _counts(["0 -> X : if(X > 6, k, 1)"], [0.1, 1e17]) == {"finished": [40, 0], "clock_stuck": [0, 40]}


def test_a_status_says_what_to_do():
    for status in Status:
        assert len(status.text) > 20 and status.failed == (status > Status.ABSORBED)


def test_amounts_too_large():
    assert ctm.simulate_paths(problem_of({"X": 2**52}, ["X -> 0 @ 0*k"], "X", [1.0], k=(0, 1)), [0.5], 2).max() == 2**52
    with pytest.raises(ModelError, match="initial amount of 'X'"):
        ctm.simulate_paths(problem_of({"X": 2**52 + 2}, ["X -> 0 @ k"], "X", [1.0], k=(0, 1)), [0.5], 2)
    with pytest.raises(ThetaError, match=r"initial amount of 'X'.*at point 1"):
        problem = problem_of({"X": "k"}, ["X -> 0 : X"], "X", [1.0], k=(0, 1e19))
        ctm.simulate_paths(problem, [[5.0], [1e18]], 2)
    with pytest.raises(InputError, match=r"beyond 2\^63"):
        problem = problem_of({"X": 2**50, "Y": 0}, ["X -> Y : k"], "100000*X + Y", [1.0], k=(0, 1))
        ctm.simulate_paths(problem, [0.5], 2)
    with pytest.raises(ModelError, match="coefficient must be a whole number from 1 to 1000000, got 2000000"):
        ctm.simulate_paths(problem_of({"X": 0}, ["0 -> 2000000 X @ k"], "X", [1.0], k=(0, 1)), [0.5], 2)


@pytest.mark.parametrize("start", [-1, 0.5, float("nan"), float("inf"), "0.5"])
def test_amounts_must_be_whole(start):
    with pytest.raises(ModelError, match="X"):
        ctm.simulate_paths(problem_of({"X": start}, ["X -> 0 @ k"], "X", [1.0], k=(0, 1)), [0.5], 2)


@pytest.mark.parametrize(("times", "message"), [
    ([3.0, 1.0], "`times` must increase, got 1.0 after 3.0"), ([1, 1], "`times` must increase, got 1.0 after 1.0"),
    ([-1.0], "`times` must be finite numbers from 0 on"), ([float("nan")], "finite"), ([float("inf")], "finite"),
    ([], "at least one time"), ("12", "list of numbers"),
])  # fmt: skip
def test_times(times, message):
    with pytest.raises(InputError, match=message):
        problem_of({"X": 0}, ["0 -> X @ k"], "X", times, k=(0, 1))


@BOTH
@pytest.mark.parametrize(("theta", "message"), [
    ([], "got none|shape"), (np.zeros((0, 2)), "at least one point"), ([0.5], "shape"), ([[0.5, 0.002, 1]], "shape"),
    ({"alpha": 0.5}, "'beta' is missing"), ({"alpha": 0.5, "beta": 0.002, "gama": 1}, "unknown parameter 'gama'"),
    ([0.5, float("nan")], "'beta' must be finite"), ([0.5, 0.1], "'beta' must lie in"), (["a", "b"], "real numbers"),
])  # fmt: skip
def test_theta(simulate, theta, message):
    with pytest.raises(ThetaError, match=message):
        simulate(ctm.load_problem("sir"), theta, 3)


@BOTH
@pytest.mark.parametrize(("settings", "message"), [
    (dict(replicates=0), "`replicates` must be a whole number from 1"), (dict(replicates=-3), "got -3"),
    (dict(replicates=2.5), "got 2.5"), (dict(replicates="9"), "got '9'"), (dict(replicates=True), "got True"),
    (dict(seed=-1), "`seed` must be"), (dict(seed=2**64), "`seed` must be"), (dict(seed=0.5), "`seed` must be"),
    (dict(max_events=0), "`max_events` must be"), (dict(max_events=2**33), "`max_events` must be"),
    (dict(threads=0), "`threads` .* whole number from 1, got 0"), (dict(threads=-2), "got -2"),
    (dict(threads="many"), "got 'many'"), (dict(threads=1.5), "got 1.5"), (dict(threads=[2]), r"got \[2\]"),
])  # fmt: skip
def test_settings(simulate, settings, message):
    with pytest.raises(InputError, match=message):
        simulate(ctm.load_problem("sir"), [0.5, 0.002], **({"replicates": 3} | settings))


def test_settings_of_one_function():
    sir, theta = ctm.load_problem("sir"), [0.5, 0.002]
    with pytest.raises(InputError, match="`first_replicate` must be a whole number from 0"):
        ctm.simulate_paths(sir, theta, 3, first_replicate=-1)
    for block_paths in (0, 2.5, "all"):
        with pytest.raises(InputError, match="`block_paths` must be a whole number from 1"):
            ctm.simulate_moments(sir, theta, 3, block_paths=block_paths)
    with pytest.raises(InputError, match="`device` must be 'cpu' or 'cuda', got 'tpu'"):
        ctm.simulate_moments(sir, theta, 3, device="tpu")
    with pytest.warns(UserWarning, match="stays on the CPU"):
        ctm.simulate_moments(sir, theta, 3, device="cuda")
    with pytest.raises(InputError, match="`on_failure` must be one of nan, drop, raise, got 'ignore'"):
        ctm.simulate_moments(sir, theta, 3, on_failure="ignore")


@pytest.mark.parametrize("value", ["0", "-1", "two", "1.5"])
def test_the_environment_names_threads(monkeypatch, value):
    monkeypatch.setenv("CTMOMENTS_THREADS", value)
    with pytest.raises(InputError, match=f"CTMOMENTS_THREADS.*got '{value}'"):
        ctm.simulate_moments(ctm.load_problem("sir"), [0.5, 0.002], 3)
    monkeypatch.setenv("CTMOMENTS_THREADS", "")
    ctm.simulate_moments(ctm.load_problem("sir"), [0.5, 0.002], 3)


def test_every_error_is_ours():
    assert issubclass(ThetaError, InputError) and issubclass(InputError, (CtmomentsError, ValueError))


LONG_JOBS = {
    "paths of a block": ("ctm.load_problem('sir')", "[[0.55, 0.00275]]*50", 10**7, "simulate_moments"),
    "one endless path": (
        "ctm.Problem(ctm.Model({'X': 5}, ['k'], ['X -> 2 X @ k', '2 X -> X @ k']), ctm.Space(k=(0, 9)), 'X', [1e9])",
        "[[5.0]]", 3, "simulate_paths"),
}  # fmt: skip


@pytest.mark.skipif(os.name == "nt", reason="SIGINT by os.kill")
@pytest.mark.parametrize("name", LONG_JOBS)
def test_ctrl_c_ends_within_a_second(name):
    problem, theta, replicates, function = LONG_JOBS[name]
    code = f"""
import ctmoments as ctm, sys, time
problem = {problem}
ctm.simulate_moments(problem, [list(v) for v in {theta}][:1], 1, max_events=5, on_failure='drop')  # compiled
print('running', flush=True)
try:
    ctm.{function}(problem, {theta}, {replicates})
except KeyboardInterrupt:
    print(time.monotonic(), flush=True)
    sys.exit(7)
"""
    command, pipe = [sys.executable, "-c", code], subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, env=child_environment()) as process:
        try:
            assert process.stdout.readline() == b"running\n"
            time.sleep(0.8)
            assert process.poll() is None, "the job must be long enough to be interrupted"
            begin = time.monotonic()
            process.send_signal(signal.SIGINT)
            ended = float(process.stdout.readline())
            assert process.wait(timeout=20) == 7 and process.stderr.read() == b""
            assert ended - begin < 1.0  # 4 ms on a busy machine
        finally:
            process.kill()
