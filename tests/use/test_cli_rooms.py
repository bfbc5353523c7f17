"""The verbs that lead into other rooms: exact moments, equations, campaigns, the machine's own check."""

from __future__ import annotations

import json

import numpy as np
import pytest
import xarray as xr

import ctmoments as ctm
from ctmoments.use.cli import main


@pytest.fixture
def run(capsys):
    """Run a command line: code, stdout, stderr."""

    def call(*words) -> tuple[int, str, str]:
        code = main([str(word) for word in words])
        return code, *capsys.readouterr()

    return call


def test_exact_moments_are_those_of_the_library(run):
    words = ["exact", "birth-death", "--points", "2", "--seed", "3", "--quiet"]
    record = json.loads(run(*words, "--json")[1])
    problem = ctm.load_problem("birth-death")
    data = ctm.exact_moments(problem, ctm.sample_design(problem, 2, seed=3))
    assert record["mean"] == data["mean"].values.tolist()
    assert record["error_bound_kind"] == "estimated" and record["mean_bound"] < 1e-5
    code, text, _ = run(*words)
    assert code == 0 and "estimated" in text and " se " not in text


def test_a_job_that_does_not_fit_is_a_failure_in_one_line(run):
    code, out, err = run("exact", "sir", "--theta", "alpha=.5,beta=.002", "--max-states", "1000")
    assert (code, out, err.count("\n")) == (1, "", 1) and "1000" in err.replace(",", "")


def test_equations_say_whether_they_close(run):
    code, text, _ = run("equations", "sir", "--species", "S,I", "--order", "1")
    assert code == 0 and text.splitlines()[0] == "order 1, not closed: E[S*I] would be needed"
    assert "E[I]' = beta*E[S*I] - alpha*E[I]" in text
    assert json.loads(run("equations", "birth-death", "--json")[1])["closed"] is True
    assert "\\" in run("equations", "sir", "--latex")[1]
    assert run("equations", "sir", "--species", "J")[0] == 2


STORED = ["simulate", "birth-death", "--seed", "1", "--quiet"]


def test_a_campaign_from_its_start_to_its_file(run, tmp_path):
    pytest.importorskip("h5py")
    store, out = tmp_path / "new" / "c.sqlite", tmp_path / "x.nc"
    assert run(*STORED, "--points", "3", "--replicates", "20", "--store", store, "--resume")[0] == 0
    code, _, err = run(*STORED, "--points", "3", "--replicates", "20", "--store", store)
    assert code == 2 and "exists already" in err
    assert run(*STORED, "--points", "5", "--replicates", "30", "--store", store, "--resume")[0] == 0
    record = json.loads(run("status", store, "--json")[1])
    assert record["finished"] and record["paths"] == 150
    assert (
        run("verify", store)[:2] == (0, run("verify", store)[1]) and json.loads(run("verify", store, "--json")[1])["ok"]
    )
    assert run("export", store, out)[0] == 0
    assert run("export", store, out)[0] == 2 and run("export", store, out, "--overwrite")[0] == 0
    problem = ctm.load_problem("birth-death")
    theta = ctm.sample_design(problem, 2, seed=1, extend=ctm.sample_design(problem, 3, seed=1))
    with xr.open_dataset(out, engine="h5netcdf") as data:
        np.testing.assert_array_equal(data["cov"], ctm.simulate_moments(problem, theta, 30, seed=1)["cov"])


def test_times_are_added_by_replay(run, tmp_path):
    store = tmp_path / "c.sqlite"
    words = [*STORED, "--points", "2", "--replicates", "20", "--store", store, "--resume"]
    assert run(*words)[0] == 0
    last = ctm.load_problem("birth-death").times[-1]
    code, text, _ = run(*words, "--add-times", last + 1)
    assert code == 0 and f"mean X({last + 1:g})" in text


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--resume"], "--resume must come with --store"),
        (["--workers", "2"], "--workers must come with --store"),
        (["--add-times", "99"], "--add-times must come with --store"),
        (["--store", "s.sqlite", "--workers", "2", "--scheduler", "tcp://a:1"], "scheduler"),
    ],
)
def test_campaign_options_that_do_not_fit(run, words, told, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(*STORED, "--points", "2", *words)
    assert (code, out, err.count("\n")) == (2, "", 1) and told in err


def test_a_store_keeps_its_kind_of_design_and_its_seed(run, tmp_path):
    store = tmp_path / "c.sqlite"
    words = ["simulate", "birth-death", "--points", "2", "--replicates", "5", "--store", store, "--resume"]
    assert run(*words)[0] == 0
    code, _, err = run(*words, "--design", "sobol")
    assert code == 2 and "'lhs'" in err and "'sobol'" in err
    code, _, err = run(*words, "--seed", "7")
    assert code == 2 and "seed" in err and "7" in err


def test_what_is_no_store_is_refused(run, tmp_path):
    path = tmp_path / "x.sqlite"
    assert run("status", path)[0] == 2
    path.write_text("no store at all, but long enough to be looked into" * 10)
    for verb in (["status", path], ["verify", path], ["export", path, tmp_path / "x.nc"]):
        code, out, err = run(*verb)
        assert (code, out, err.count("\n")) == (2, "", 1) and str(path) in err


def test_a_damaged_store_fails_verification(run, tmp_path):
    import sqlite3

    store = tmp_path / "c.sqlite"
    run("simulate", "birth-death", "--points", "2", "--replicates", "5", "--store", store)
    with sqlite3.connect(store) as base:
        table, column = next(
            (name, row[1])
            for (name,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            for row in base.execute(f"PRAGMA table_info({name})").fetchall()
            if "block" in name and row[2].upper() == "BLOB" and "sum" in row[1]
        )
        (data,) = base.execute(f"SELECT {column} FROM {table}").fetchone()
        base.execute(f"UPDATE {table} SET {column} = ?", (data[:-1] + bytes([data[-1] ^ 1]),))
    code, out, _ = run("verify", store)
    assert code == 1 and "WRONG" in out


def test_the_machine_passes_its_own_check(run):
    pytest.importorskip("h5py")
    code, text, _ = run("selftest")
    assert code == 0 and text.count("  ok ") == 3
    record = json.loads(run("selftest", "--json")[1])
    assert record["ok"] and len(record["checks"]) == 3
