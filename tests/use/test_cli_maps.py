"""The verbs around maps: learn into a folder, predict, score, whiten."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import xarray as xr
from helpers import child_environment

import ctmoments as ctm
from ctmoments.use.cli import main
from ctmoments.use.methods import METHODS, read_method
from ctmoments.use.run import FILES, STORE, Settings, read_run, run_text

BUDGET = 1500


@pytest.fixture
def run(capsys):
    """Run a command line: code, stdout, stderr."""

    def call(*words) -> tuple[int, str, str]:
        code = main([str(word) for word in words])
        return code, *capsys.readouterr()

    return call


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A finished run of the birth-death process."""
    folder = tmp_path_factory.mktemp("runs") / "bd"
    words = ["learn", "birth-death", "--budget", str(BUDGET), "--seed", "1", "--out", str(folder), "--quiet"]
    assert main(words) == 0
    return folder


def test_a_run_folder_tells_everything(run, folder):
    assert sorted(path.name for path in folder.iterdir()) == sorted([*FILES, STORE, f"{STORE}.lock"])
    map_ = ctm.load_map(folder / "map.ctm")
    expected = ctm.learn_map(ctm.load_problem("birth-death"), budget=BUDGET, seed=1)
    theta = ctm.sample_design(map_.problem, 5, seed=2)
    np.testing.assert_array_equal(map_.mean(theta), expected.mean(theta))
    problem, settings = read_run(str(folder / "run.toml"), {})
    assert problem == ctm.load_problem("birth-death")
    assert (settings.budget, settings.seed, settings.method) == (BUDGET, 1, "auto")
    record = json.loads((folder / "result.json").read_text())
    assert record["paths"] == BUDGET and 0 < record["expected_rrmse"] < 0.5
    assert "by the map's own account" in (folder / "table.txt").read_text()
    assert (folder / "map.png").read_bytes()[1:4] == b"PNG"


def test_a_finished_run_is_kept_or_replaced_but_never_by_accident(run, folder):
    words = ["learn", "birth-death", "--budget", str(BUDGET), "--seed", "1", "--out", folder]
    before = (folder / "map.ctm").stat().st_mtime_ns
    code, out, err = run(*words)
    assert (code, out, err.count("\n")) == (2, "", 1) and "--resume" in err and "--overwrite" in err
    code, out, err = run(*words, "--resume")
    assert code == 0 and out == (folder / "table.txt").read_text() and "nothing was done" in err
    code, _, err = run("learn", "birth-death", "--budget", str(2 * BUDGET), "--seed", "1", "--out", folder, "--resume")
    assert code == 2 and f"budget = {BUDGET}" in err and f"budget = {2 * BUDGET}" in err
    assert (folder / "map.ctm").stat().st_mtime_ns == before


def test_a_run_file_is_run_again_with_other_settings(run, folder, tmp_path):
    words = ["learn", folder / "run.toml", "--seed", "2", "--out", tmp_path / "new", "--json", "--quiet"]
    code, out, _ = run(*words)
    record = json.loads(out)
    assert code == 0 and record["paths"] == BUDGET and record["seed"] == 2
    assert read_run(str(tmp_path / "new" / "run.toml"), {})[1] == Settings(budget=BUDGET, seed=2)


def test_the_default_folder_and_an_interrupted_run(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["learn", "birth-death", "--budget", "500", "--quiet"]
    assert run(*words)[0] == 0
    (tmp_path / "runs" / "birth-death" / "map.ctm").unlink()
    assert run(*words, "--resume")[0] == 0 and run(*words, "--overwrite")[0] == 0
    assert ctm.load_map("runs/birth-death/map.ctm").outputs == 10


def test_an_overwriting_run_that_fails_leaves_the_old_one(run, folder):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert run("learn", "birth-death", "--budget", "3", "--out", folder, "--overwrite")[0] == 2
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_killed_run_goes_on_to_the_same_map(folder, tmp_path):
    """Killed once blocks are in its store, before the map: the paths are kept, and the end is that of a calm run."""
    out = tmp_path / "killed"
    words = ["learn", "birth-death", "--budget", str(BUDGET), "--seed", "1", "--out", str(out), "--quiet"]
    code = (
        "import os, sys; import ctmoments.learn.budget as budget; from ctmoments.use.cli import main\n"
        "budget.fit_spectral = lambda *_: os.kill(os.getpid(), 9)\n"
        f"main({words!r})"
    )
    assert subprocess.run([sys.executable, "-c", code], env=child_environment()).returncode == -9
    assert sorted(path.name for path in out.iterdir()) == [STORE, f"{STORE}.lock", "run.toml"]
    before = (out / STORE).read_bytes()
    assert main([*words[:3], "1600", *words[4:]]) == 2  # another run is refused
    assert main(words) == 0
    assert (out / STORE).read_bytes() == before  # nothing was simulated again
    done, expected = ctm.load_map(out / "map.ctm"), ctm.load_map(folder / "map.ctm")
    theta = ctm.sample_design(done.problem, 5, seed=2)
    np.testing.assert_array_equal(done.covariance(theta), expected.covariance(theta))


def test_a_target_moves_a_finished_run_on(run, tmp_path):
    words = ["learn", "birth-death", "--target-error", "0.05", "--seed", "1", "--method", "spectral:terms=30"]
    words += ["--out", tmp_path / "t", "--json", "--quiet"]
    first = json.loads(run(*words)[1])
    assert first["expected_rrmse"] <= 0.05
    again = run(*words, "--resume")
    assert again[0] == 0 and json.loads(again[1]) == first
    words[3] = "0.02"
    assert run(*words)[0] == 2
    code, out, err = run(*words, "--resume")
    assert code == 0, err
    second = json.loads(out)
    assert second["expected_rrmse"] <= 0.02 and second["paths"] > 2 * first["paths"]
    code, _, err = run("learn", "birth-death", "--target-error", "much", "--out", tmp_path / "x")
    assert code == 2 and "share such as 0.01" in err and not (tmp_path / "x").exists()


def test_exact_labels_need_no_budget(run, tmp_path):
    code, out, err = run(
        "learn", "birth-death", "--labels", "exact", "--points", "40", "--out", tmp_path / "x", "--json"
    )
    assert (code, json.loads(out)["paths"]) == (0, 0), err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--method", "spectrum"], "'spectral'"),
        (["--method", "spectral:term=3"], "'terms'"),
        (["--method", "spectral:terms=many"], "'many'"),
        (["--method", "spectral:terms=0"], "`terms`"),
        (["--method", "auto:terms=3"], "alone"),
        (["--labels", "exakt"], "'exact'"),
        (["--budget", "3"], "budget"),
        (["--points", "1"], "points"),
    ],
)
def test_settings_that_do_not_fit(run, words, told, tmp_path):
    code, out, err = run("learn", "birth-death", "--out", tmp_path / "x", *words)
    assert (code, out, err.count("\n")) == (2, "", 1) and told in err
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("budgit = 3", "'budget'"),
        ('budget = "3"', "a whole number"),
        ("seed = -1", "at least 0"),
        ("seed = true", "seed"),
    ],
)
def test_a_run_file_is_checked(run, tmp_path, line, told):
    path = tmp_path / "run.toml"
    path.write_text(f"{ctm.load_problem('birth-death').to_toml()}\n[run]\n{line}\n")
    code, _, err = run("learn", path, "--out", tmp_path / "x")
    assert code == 2 and told in err and "[run]" in err


def test_a_run_file_reads_as_it_was_written(tmp_path):
    settings = Settings(
        budget=7,
        points=3,
        replicates=2,
        labels="exact",
        method="spectral:terms=3",
        seed=2**63,
        device="cpu",
        target_error="0.01,0.1",
        max_budget=9,
    )
    path = tmp_path / "run.toml"
    path.write_text(run_text(ctm.load_problem("sir"), settings))
    assert read_run(str(path), {}) == (ctm.load_problem("sir"), settings)
    assert read_run(str(path), {"seed": 1})[1].seed == 1
    assert read_run("sir", {})[1] == Settings()


def test_methods_have_names():
    assert read_method("auto") is None and read_method("Spectral:terms=7").terms == 7
    for name in METHODS:
        assert type(read_method(name)).__name__ == METHODS[name][1]
    assert read_method("momentnet:hidden=32x16,noise=false,learning_rate=3e-3").hidden == (32, 16)


@pytest.mark.parametrize("method", ["paper:hidden=8x8,epochs=3", "momentnet:members=2,hidden=8,steps=20"])
def test_trained_methods_learn_from_the_command(run, tmp_path, method):
    words = [
        "learn",
        "birth-death",
        "--budget",
        "600",
        "--method",
        method,
        "--out",
        tmp_path / "x",
        "--quiet",
        "--json",
    ]
    code, out, err = run(*words)
    assert code == 0, err
    record = json.loads(out)
    assert record["method"] == METHODS[method.split(":")[0]][1] and record["paths"] <= 600
    assert run("predict", tmp_path / "x", "birth=10", "death=0.5")[0] == 0


def test_predict_one_value_and_many(run, folder, tmp_path):
    code, text, err = run("predict", folder, "birth=10", "death=0.5")
    assert (code, err) == (0, "") and text.splitlines()[0] == "birth = 10, death = 0.5"
    table = tmp_path / "values.csv"
    table.write_text("death,birth\n0.5,10\n0.4,12\n")
    record = json.loads(run("predict", folder / "map.ctm", "--csv", table, "--json")[1])
    map_ = ctm.load_map(folder / "map.ctm")
    expected = map_.predict({"birth": [10, 12], "death": [0.5, 0.4]})
    assert record["mean"] == expected["mean"].values.tolist() and record["cov"] == expected["cov"].values.tolist()
    assert record["in_domain"] == [True, True]


def test_predict_outside_the_box(run, folder):
    code, _, err = run("predict", folder, "birth=1e6", "death=0.5")
    assert code == 0 and err.startswith("warning: ") and err.count("\n") == 1 and "outside" in err
    code, out, err = run("predict", folder, "birth=1e6", "death=0.5", "--on-outside", "raise")
    assert (code, out, err.count("\n")) == (2, "", 1)


@pytest.mark.parametrize(
    ("words", "told"),
    [([], "a value"), (["birth=1"], "'death'"), (["birth=1", "birth=2", "death=.5"], "once")],
)
def test_predict_refuses(run, folder, words, told):
    code, out, err = run("predict", folder, *words)
    assert (code, out, err.count("\n")) == (2, "", 1) and told in err


def test_scores_are_those_of_the_library(run, folder, tmp_path):
    pytest.importorskip("h5py")
    words = ["score", folder, "--points", "8", "--json", "--quiet"]
    record = json.loads(run(*words, "--replicates", "500", "--plot", tmp_path / "x.png")[1])
    assert record["points"] == 8 and 0 < record["rrmse_mean"] < 0.5 and record["reference_rrmse_noise"] > 0
    exact = json.loads(run(*words, "--exact")[1])
    assert exact["reference"] == "exact" and exact["reference_rrmse_noise"] == 0
    reference = tmp_path / "r.nc"
    assert run("exact", "birth-death", "--points", "4", "--out", reference)[0] == 0
    with xr.open_dataset(reference, engine="h5netcdf") as data:
        score = ctm.score_map(ctm.load_map(folder / "map.ctm"), data.load())
    record = json.loads(run("score", folder, "--reference", reference, "--json")[1])
    assert record["rfe_mean"] == score.attrs["rfe_mean"]
    assert run("score", folder, "--reference", reference, "--exact")[0] == 2


def test_whitening_takes_correlation_away(run, folder, tmp_path):
    words = ["whiten", folder, "--points", "20", "--replicates", "50", "--quiet", "--plot", tmp_path / "w.png"]
    record = json.loads(run(*words, "--json")[1])
    assert record["correlation_after"] < 0.3 < record["correlation_before"]
    assert 0.7 < record["variance"] < 1.4 and (tmp_path / "w.png").exists()


def test_a_file_that_is_no_map(run, tmp_path):
    path = tmp_path / "x.ctm"
    path.write_bytes(b"nothing of the kind")
    for verb in (["predict", path, "a=1"], ["score", path], ["whiten", path], ["info", path]):
        code, out, err = run(*verb)
        assert (code, out, err.count("\n")) == (2, "", 1) and str(path) in err


def test_info_tells_how_a_map_was_made(run, folder):
    code, text, _ = run("info", folder / "map.ctm")
    assert code == 0 and "Spectral" in text
