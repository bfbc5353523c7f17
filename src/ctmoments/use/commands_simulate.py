"""`ctmoments simulate`: a design, exact paths, their means and covariances; a table, a file, a picture, a store."""

from __future__ import annotations

import time
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctmoments.errors import InputError
from ctmoments.use.arguments import (
    Parser,
    add_problem,
    add_seed,
    add_targets,
    add_theta,
    add_threads,
    chosen_problem,
    chosen_theta,
    number_list,
    one_of,
    whole,
)
from ctmoments.use.talk import Talk, entries, short

if TYPE_CHECKING:
    import xarray as xr

    from ctmoments.model.problem import Problem

TABLED = 10**7  # covariance entries up to which a finished store is read for its table


def add_simulate(parser: Parser) -> None:
    """Arguments of `simulate`."""
    add_problem(parser)
    add_theta(parser)
    parser.add_argument("--replicates", type=whole(1), default=1000, metavar="M", help="paths at each value (1000)")
    add_seed(parser, "fixes design and paths (0)")
    add_on_failure(parser)
    add_targets(parser)
    store = parser.add_argument_group("campaigns: blocks go into a store as they are finished")
    store.add_argument("--store", type=Path, metavar="FILE", help="an SQLite file; it must not exist, or see --resume")
    store.add_argument("--resume", action="store_true", help="go on with the store, or extend it; or start it")
    store.add_argument("--add-times", type=number_list, metavar="T", help="further output times, by replay")
    store.add_argument("--workers", type=whole(1), metavar="N", help="processes of this machine (dask)")
    store.add_argument("--scheduler", metavar="ADDRESS", help="a dask scheduler: tcp://host:port")
    add_threads(parser)


def add_on_failure(parser: Parser) -> None:
    """What becomes of points where paths fail."""
    parser.add_argument(
        "--on-failure", type=one_of("nan", "drop", "raise"), default="nan", metavar="WHAT",
        help="where paths fail: nan (no moments there, default), drop (the failed), raise",
    )  # fmt: skip


def run_simulate(settings: Namespace, talk: Talk) -> None:
    """Simulate, write, draw, tell."""
    from ctmoments.use.files import check_targets

    problem = chosen_problem(settings)
    check_targets(settings.out, settings.plot)
    if settings.store is not None:
        _run_campaign(settings, problem, talk)
        return
    for name in ("resume", "add_times", "workers", "scheduler"):
        if getattr(settings, name):
            raise InputError(f"--{name.replace('_', '-')} must come with --store FILE.")
    from ctmoments.moments.estimate import simulate_moments
    from ctmoments.use.files import write_results

    theta = chosen_theta(settings, problem)
    begin = time.perf_counter()
    data = simulate_moments(
        problem, theta, settings.replicates, settings.seed, on_failure=settings.on_failure, threads=settings.threads,
        progress=talk.progress,
    )  # fmt: skip
    seconds = time.perf_counter() - begin
    talk.detail(f"kernel: {data.attrs['kernel']}; standard errors of covariances from {data.attrs['cov_se_from']}")
    tell_failures(data, talk)
    write_results(data, settings.out, settings.plot, talk)
    record = summary(data, seconds) | {"out": settings.out, "plot": settings.plot}
    talk.result(screen(problem.name or settings.problem, data, seconds), {"problem": problem.name, **record})


def _run_campaign(settings: Namespace, problem: Problem, talk: Talk) -> None:
    from dataclasses import replace

    from ctmoments.simulate.campaign import Where, run_campaign
    from ctmoments.simulate.status import campaign_status
    from ctmoments.use.files import make_folder

    if settings.add_times:
        problem = replace(problem, times=sorted({*problem.times, *settings.add_times}))
    make_folder(settings.store.absolute().parent)
    theta = campaign_theta(settings, problem)
    run_campaign(
        problem, theta, settings.replicates, settings.seed, store=settings.store, resume=settings.resume,
        add_times=bool(settings.add_times), progress=talk.progress,
        where=Where(threads=settings.threads, workers=settings.workers, scheduler=settings.scheduler),
    )  # fmt: skip
    status = campaign_status(settings.store)
    text = str(status)
    if settings.out or settings.plot or theta.sizes["point"] * len(problem.output_times) ** 2 <= TABLED:
        from ctmoments.moments.estimate import store_moments
        from ctmoments.use.files import write_results
        from ctmoments.use.tables import moments_table

        data = store_moments(settings.store, on_failure=settings.on_failure)
        tell_failures(data, talk)
        write_results(data, settings.out, settings.plot, talk)
        text += f"\n\n{moments_table(data)}"
    talk.result(text, {"problem": problem.name, **status.to_dict(), "out": settings.out, "plot": settings.plot})


def campaign_theta(settings: Namespace, problem: Problem) -> xr.DataArray:
    """The design of a new store; of an old one the stored design, and a further layer where more points are asked."""
    from ctmoments.simulate.campaign import campaign_design
    from ctmoments.simulate.design import sample_design

    drawn = settings.theta is None and settings.csv is None
    if not (settings.resume and settings.store.exists() and drawn):
        return chosen_theta(settings, problem)
    design = campaign_design(settings.store)
    kind = design.attrs.get("design_kind")
    if settings.design not in (None, kind):
        raise InputError(f"--design must be that of the store, {kind!r}, got {settings.design!r}.")
    points = settings.points or design.sizes["point"]
    more = points - design.sizes["point"]
    if more > 0:
        if kind is None:
            raise InputError(
                f"--points must be {len(design)}, got {points}: the values of this store were given, not drawn."
            )
        return sample_design(problem, more, kind, settings.seed, extend=design)
    return design[:points]


def tell_failures(data: xr.Dataset, talk: Talk) -> None:
    """One line if paths failed: how many, where first, why."""
    if data.attrs.get("failed_paths"):
        from ctmoments.moments.estimate import failure_text

        talk.say(f"warning: {failure_text(data['theta'], data['status_count'].values)}")


def summary(data: xr.Dataset, seconds: float) -> dict[str, Any]:
    """The record of a simulated dataset."""
    from ctmoments.use.tables import moments_record

    counts = data["status_count"].sum("point")
    paths = int(data.attrs["paths"])
    return {
        "points": data.sizes["point"],
        "paths": paths,
        "events": int(data.attrs["events"]),
        "seconds": round(seconds, 4),
        "paths_per_second": round(paths / seconds),
        "status": dict(zip(counts["status"].values.tolist(), counts.values.tolist(), strict=True)),
        "kernel": data.attrs["kernel"],
        "seed": data.attrs["seed"],
        **moments_record(data),
    }


def screen(name: str, data: xr.Dataset, seconds: float) -> str:
    """What a person sees of a simulated dataset."""
    from ctmoments.use.tables import moments_table

    record = summary(data, seconds)
    points, paths, events = record["points"], record["paths"], record["events"]
    ends = ", ".join(f"{count:,} {status.replace('_', ' ')}" for status, count in record["status"].items() if count)
    lines = entries(
        {
            "paths": f"{paths:,} ({points:,} x {paths // points:,}) in {seconds:.2f} s, {paths / seconds:,.0f} paths/s",
            "events": f"{events:,}, {short(events / paths)} a path",
            "ended": ends,
        }
    )
    return f"{name}, seed {record['seed']}\n{lines}\n\n{moments_table(data)}"
