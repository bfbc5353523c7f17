"""`ctmoments simulate`: a design, exact paths, their means and covariances; a table, a file, a picture."""

from __future__ import annotations

import time
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctmoments.use.arguments import (
    Parser,
    add_problem,
    add_theta,
    add_threads,
    chosen_problem,
    chosen_theta,
    file_named,
    one_of,
    whole,
)
from ctmoments.use.files import make_folder
from ctmoments.use.talk import Talk, entries, short, table

if TYPE_CHECKING:
    import xarray as xr

ROWS = 12  # points in the printed table
COMPONENTS = 3  # components in the printed table


def add_simulate(parser: Parser) -> None:
    """Arguments of `simulate`."""
    add_problem(parser)
    add_theta(parser)
    parser.add_argument("--replicates", type=whole(1), default=1000, metavar="M", help="paths at each value (1000)")
    parser.add_argument("--seed", type=whole(0, 2**64 - 1), default=0, metavar="S", help="fixes design and paths (0)")
    parser.add_argument("--on-failure", type=one_of("nan", "drop", "raise"), default="nan", metavar="WHAT",
                        help="where paths fail: nan (no moments there, default), drop (the failed), raise")  # fmt: skip
    parser.add_argument("--out", type=file_named(".nc", ".zarr"), metavar="FILE", help="write the dataset: .nc, .zarr")
    parser.add_argument("--plot", type=file_named(".png", ".svg", ".pdf"), metavar="FILE",
                        help="draw mean and covariance at the first values: .png, .svg, .pdf")  # fmt: skip
    add_threads(parser)


def run_simulate(settings: Namespace, talk: Talk) -> None:
    """Simulate, write, draw, tell."""
    from ctmoments.moments.estimate import simulate_moments

    problem = chosen_problem(settings)
    theta = chosen_theta(settings, problem)
    check_targets(settings.out, settings.plot)
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


def tell_failures(data: xr.Dataset, talk: Talk) -> None:
    """One line if paths failed: how many, where first, why."""
    if data.attrs.get("failed_paths"):
        from ctmoments.moments.estimate import failure_text

        talk.say(f"warning: {failure_text(data['theta'], data['status_count'].values)}")


def check_targets(*paths: Path | None) -> None:
    """Refuse, before anything runs, a file that could not be written afterwards; missing folders are made."""
    for path in paths:
        if path is not None:
            make_folder(path.absolute().parent)


def write_results(data: xr.Dataset, out: Path | None, plot: Path | None, talk: Talk) -> None:
    """The dataset and its picture, where asked for."""
    from ctmoments.use.files import save_picture, write_dataset

    if out is not None:
        write_dataset(data, out)
        talk.say(f"numbers: {out}")
    if plot is not None:
        from ctmoments.evaluate.figures import plot_moments

        save_picture(plot, lambda figure: plot_moments(data, figure=figure))
        talk.say(f"picture: {plot}")


def summary(data: xr.Dataset, seconds: float) -> dict[str, Any]:
    """The record of a simulated dataset."""
    import numpy as np

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
        "component": data["component"].values,
        "time": data["time"].values,
        "theta": {str(name): data["theta"].sel(parameter=name).values for name in data["parameter"].values},
        "mean": data["mean"].values,
        "mean_se": data["mean_se"].values,
        "sd": np.sqrt(np.diagonal(data["cov"].values, axis1=1, axis2=2)),
    }


def screen(name: str, data: xr.Dataset, seconds: float) -> str:
    """What a person sees of a simulated dataset."""
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


def moments_table(data: xr.Dataset) -> str:
    """Mean, its standard error and the standard deviation at the last time, point by point."""
    import numpy as np

    components = list(dict.fromkeys(data["component"].values.tolist()))
    times = data["time"].values
    last = [np.flatnonzero(data["component"].values == component)[-1] for component in components[:COMPONENTS]]
    header = [*map(str, data["parameter"].values)]
    for component, output in zip(components, last, strict=False):
        header += [f"mean {component}({short(float(times[output]))})", "se", "sd"]
    rows = []
    for point in range(min(ROWS, data.sizes["point"])):
        row = [short(value, 6) for value in data["theta"].values[point].tolist()]
        for output in last:
            mean, error, variance = (data[name].values[point, ..., output] for name in ("mean", "mean_se", "cov"))
            row += [short(float(mean)), short(float(error)), short(float(np.sqrt(variance[output])))]
        rows.append(row)
    lines = table(header, rows)
    more = data.sizes["point"] - ROWS
    left = [f"{more} more points"] if more > 0 else []
    left += [f"{len(components) - COMPONENTS} more components"] if len(components) > COMPONENTS else []
    return lines + (f"\n  ... and {' and '.join(left)}" if left else "")
