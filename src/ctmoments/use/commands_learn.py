"""`ctmoments learn`: from a budget of paths to a map, in a folder that tells how it came about."""

from __future__ import annotations

import json
import time
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctmoments.errors import InputError
from ctmoments.use.arguments import Parser, add_threads, one_of, whole
from ctmoments.use.methods import METHODS, read_method
from ctmoments.use.run import BUDGET, begin_run, folder_for, leave_run, read_run, run_text, write_run
from ctmoments.use.run import Settings as RunSettings
from ctmoments.use.talk import Talk, entries, short

if TYPE_CHECKING:
    from ctmoments.model.problem import Problem
    from ctmoments.predict.moment_map import MomentMap

GIVEN = ("budget", "points", "replicates", "labels", "method", "seed", "device", "target_error", "max_budget")
FLOORED = 0.005  # share of the box from which on raised eigenvalues are told


def add_learn(parser: Parser) -> None:
    """Arguments of `learn`."""
    parser.add_argument(
        "problem", metavar="PROBLEM", help="a built-in problem, a problem file, or the run.toml of a run"
    )
    parser.add_argument(
        "--budget", type=whole(1), metavar="B", help=f"paths in all, those kept aside included ({BUDGET:,})"
    )
    parser.add_argument(
        "--target-error", metavar="E", help="grow the budget until the map tells this error of the mean: 0.01; or "
        "0.01,0.1 for mean and covariance"
    )  # fmt: skip
    parser.add_argument("--max-budget", type=whole(1), metavar="B", help="paths to grow to at most (10 million)")
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
    said = (run.points and run.replicates) or run.labels == "exact" or run.target_error
    if run.budget == BUDGET and "budget" not in given and said:
        run = replace(run, budget=0)  # what was asked for says how many
    method = read_method(run.method)
    folder = settings.out or folder_for(problem.name or Path(settings.problem).stem)
    text = run_text(problem, run)
    target = read_target_text(run.target_error)
    store = begin_run(folder, text, resume=settings.resume, overwrite=settings.overwrite)
    if store is None:
        talk.say(f"{folder} is finished; nothing was done")
        record = json.loads((folder / "result.json").read_text(encoding="utf-8"))
        talk.result((folder / "table.txt").read_text(encoding="utf-8").rstrip(), record)
        return
    from ctmoments.learn.maps import learn_map

    begin = time.perf_counter()
    if not keeps_store(problem, run, method):
        store = None
    elif store.exists():
        talk.say(f"going on from {store}")
    try:
        map_ = learn_map(
            problem, run.budget or None, points=run.points or None, replicates=run.replicates or None,
            target_error=target, max_budget=run.max_budget or None, labels=run.labels, method=method, seed=run.seed,
            device=run.device, store=store, threads=settings.threads, progress=talk.progress,
        )  # fmt: skip
    except BaseException:
        leave_run(folder)
        raise
    record = learned_record(map_, time.perf_counter() - begin) | {"out": folder}
    table = learned_screen(problem.name or settings.problem, map_, record)
    write_run(folder, text, table, record, map_)
    talk.say(f"written to {folder}: map.ctm, map.png, table.txt, result.json, run.toml")
    talk.result(table, record)


def read_target_text(text: str) -> tuple[float, ...] | None:
    """`0.01` or `0.01,0.1` as numbers; what they must be is said by `learn_map`."""
    if not text:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"--target-error must be a share such as 0.01, or two like 0.01,0.1, got {text!r}.") from None


def keeps_store(problem: Problem, run: RunSettings, method: Any) -> bool:
    """Whether the paths of this run are a campaign: those of a closed form that lays its design out by itself."""
    from ctmoments.learn.maps import choose_method
    from ctmoments.learn.spectral import Spectral

    if run.labels != "simulate" or run.points or run.replicates:
        return False
    return isinstance(method or choose_method(problem, run.budget or None)[0], Spectral)


def learned_record(map_: MomentMap, seconds: float) -> dict[str, Any]:
    """What is told about a map that was just learned."""
    from ctmoments.predict.account import expected_errors

    mean_error, cov_error = expected_errors(map_)
    known = (
        "method",
        "why",
        "paths",
        "training_paths",
        "events",
        "failed_paths",
        "floored_share",
        "seed",
        "rounds",
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
    if len(record.get("rounds") or []) > 1:
        lines["grown"] = ", ".join(f"{each['paths']:,}" for each in record["rounds"]) + " paths, to reach the target"
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
