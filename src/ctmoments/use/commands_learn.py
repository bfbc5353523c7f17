"""`ctmoments learn`: from a budget of paths to a map, in a folder that tells how it came about."""

from __future__ import annotations

import json
import time
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctmoments.use.arguments import Parser, add_threads, one_of, whole
from ctmoments.use.methods import METHODS, read_method
from ctmoments.use.run import BUDGET, check_run, folder_for, leave_run, read_run, run_text, write_run
from ctmoments.use.talk import Talk, entries, short

if TYPE_CHECKING:
    from ctmoments.predict.moment_map import MomentMap

GIVEN = ("budget", "points", "replicates", "labels", "method", "seed", "device")
FLOORED = 0.005  # share of the box from which on raised eigenvalues are told
SAMPLED = 200  # values over the box where the map's own errors are averaged


def add_learn(parser: Parser) -> None:
    """Arguments of `learn`."""
    parser.add_argument(
        "problem", metavar="PROBLEM", help="a built-in problem, a problem file, or the run.toml of a run"
    )
    parser.add_argument(
        "--budget", type=whole(1), metavar="B", help=f"paths in all, those kept aside included ({BUDGET:,})"
    )
    parser.add_argument("--points", type=whole(1), metavar="N", help="parameter values (the method's choice)")
    parser.add_argument("--replicates", type=whole(1), metavar="M", help="paths at each value (the method's choice)")
    parser.add_argument(
        "--labels", type=one_of("simulate", "exact"), metavar="KIND", help="simulate (default) or exact"
    )
    parser.add_argument(
        "--method", metavar="NAME", help=f"auto (default), {', '.join(METHODS)}; spectral:terms=100 sets more"
    )
    parser.add_argument("--seed", type=whole(0, 2**64 - 1), metavar="S", help="fixes everything (0)")
    parser.add_argument("--device", type=one_of("cpu", "cuda"), metavar="NAME", help="where networks train: cpu, cuda")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="default: runs/NAME")
    parser.add_argument("--resume", action="store_true", help="keep a finished run, start one that is not")
    parser.add_argument("--overwrite", action="store_true", help="replace a finished run")
    add_threads(parser)


def run_learn(settings: Namespace, talk: Talk) -> None:
    """Learn, save, draw, tell."""
    given = {name: getattr(settings, name) for name in GIVEN if getattr(settings, name) is not None}
    problem, run = read_run(settings.problem, given)
    if run.budget == BUDGET and "budget" not in given and ((run.points and run.replicates) or run.labels == "exact"):
        run = replace(run, budget=0)  # what was asked for says how many
    method = read_method(run.method)
    folder = settings.out or folder_for(problem.name or Path(settings.problem).stem)
    text = run_text(problem, run)
    if check_run(folder, text, resume=settings.resume, overwrite=settings.overwrite):
        talk.say(f"{folder} is finished; nothing was done")
        record = json.loads((folder / "result.json").read_text(encoding="utf-8"))
        talk.result((folder / "table.txt").read_text(encoding="utf-8").rstrip(), record)
        return
    from ctmoments.learn.maps import learn_map

    begin = time.perf_counter()
    try:
        map_ = learn_map(
            problem, run.budget or None, points=run.points or None, replicates=run.replicates or None,
            labels=run.labels, method=method, seed=run.seed, device=run.device, threads=settings.threads,
            progress=talk.progress,
        )  # fmt: skip
    except BaseException:
        leave_run(folder)
        raise
    record = learned_record(map_, time.perf_counter() - begin) | {"out": folder}
    table = learned_screen(problem.name or settings.problem, map_, record)
    write_run(folder, text, table, record, map_)
    talk.say(f"written to {folder}: map.ctm, map.png, table.txt, result.json, run.toml")
    talk.result(table, record)


def learned_record(map_: MomentMap, seconds: float) -> dict[str, Any]:
    """What is told about a map that was just learned."""
    import numpy as np

    from ctmoments.evaluate.figures_map import own_errors
    from ctmoments.simulate.design import sample_design

    errors = own_errors(map_, sample_design(map_.problem, SAMPLED, kind="uniform", seed=0).values)
    mean_error, cov_error = (float(np.nanmean(part)) if np.isfinite(part).any() else float("nan") for part in errors)
    known = (
        "method",
        "why",
        "paths",
        "training_paths",
        "events",
        "failed_paths",
        "floored_share",
        "seed",
        "validation",
    )
    return {
        "problem": map_.problem.name, **{name: map_.card[name] for name in known if name in map_.card},
        "seconds": round(seconds, 2), "expected_rrmse": mean_error, "expected_rfe": cov_error,
    }  # fmt: skip


def learned_screen(name: str, map_: MomentMap, record: dict[str, Any]) -> str:
    """The table of `learn`."""
    from ctmoments.evaluate.figures_map import diagonal
    from ctmoments.use.tables import moments_table

    lines = {"method": f"{record.get('method', '?')}" + (f": {record['why']}" if record.get("why") else "")}
    if record.get("paths"):
        training, events = record.get("training_paths", record["paths"]), record.get("events")
        lines["budget"] = f"{record['paths']:,} paths, {training:,} of them to learn from" + (
            f"; {events:,} events" if events else ""
        )
    lines["time"] = f"{record['seconds']:.1f} s"
    if record["expected_rrmse"] == record["expected_rrmse"]:
        errors = 100 * record["expected_rrmse"], 100 * record["expected_rfe"]
        lines["error"] = f"mean {short(errors[0], 2)} %, covariance {short(errors[1], 2)} %, by the map's own account"
    held = record.get("validation") or {}
    if "whitened_variance" in held:
        lines["kept aside"] = (
            f"{held['paths']:,} paths, whitened variance {short(held['whitened_variance'])} (1 is right)"
        )
    if record.get("floored_share", 0) >= FLOORED:
        share = 100 * record["floored_share"]
        lines["floored"] = f"an eigenvalue of the covariance was raised in {short(share, 2)} % of the box"
    if "note" in held:
        lines["note"] = held["note"]
    return f"{name}, seed {record.get('seed', 0)}\n{entries(lines)}\n\n{moments_table(map_.predict(diagonal(map_)))}"
