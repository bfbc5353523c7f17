"""`ctmoments predict`, `score` and `whiten`: what a map says, how far it is from the truth, what it is good for."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctmoments.errors import InputError
from ctmoments.use.arguments import (
    Parser,
    add_seed,
    add_targets,
    add_threads,
    assignments,
    file_named,
    one_of,
    read_columns,
    whole,
)
from ctmoments.use.talk import Talk, entries, short, table

if TYPE_CHECKING:
    import xarray as xr

    from ctmoments.model.problem import Problem


def _add_map(parser: Parser) -> None:
    parser.add_argument("map", metavar="MAP", help="a map file, or the folder of a run")


def _load(settings: Namespace):
    from ctmoments.predict.mapfile import load_map

    path = Path(settings.map)
    return load_map(path / "map.ctm" if path.is_dir() else path)


def add_predict(parser: Parser) -> None:
    """Arguments of `predict`."""
    _add_map(parser)
    parser.add_argument(
        "values", nargs="*", type=assignments, metavar="NAME=VALUE", help="one value: alpha=.5 beta=.002"
    )
    parser.add_argument("--csv", type=file_named(".csv"), metavar="FILE", help="values: a column for each parameter")
    parser.add_argument("--on-outside", type=one_of("warn", "raise", "nan"), default="warn", metavar="WHAT",
                        help="values outside the box: warn (default), raise, nan")  # fmt: skip
    add_targets(parser)


def run_predict(settings: Namespace, talk: Talk) -> None:
    """Tell mean and covariance at values."""
    from ctmoments.use.files import check_targets, write_results
    from ctmoments.use.tables import moments_record, moments_table

    map_ = _load(settings)
    check_targets(settings.out, settings.plot)
    data = map_.predict(_values(settings), on_outside=settings.on_outside)
    write_results(data, settings.out, settings.plot, talk)
    text = one_value(data) if data.sizes["point"] == 1 else moments_table(data)
    record = moments_record(data) | {"cov": data["cov"].values, "in_domain": data["in_domain"].values}
    talk.result(text, {"problem": map_.problem.name, **record, "out": settings.out, "plot": settings.plot})


def _values(settings: Namespace) -> dict[str, Any]:
    if settings.values and settings.csv:
        raise InputError("--csv must come without values on the command line.")
    if settings.csv:
        return read_columns(settings.csv)
    if not settings.values:
        raise InputError("a value must be given, like alpha=.5 beta=.002, or --csv FILE.")
    merged: dict[str, Any] = {}
    for part in settings.values:
        for name, value in part.items():
            if name in merged:
                raise InputError(f"{name} must be given once, got {merged[name]!r} and {value!r}.")
            merged[name] = value
    return merged


def one_value(data: xr.Dataset) -> str:
    """Mean, its error and the standard deviation of every output at one value."""
    import numpy as np

    one = data.isel(point=0)
    pairs = zip(data["parameter"].values, one["theta"].values.tolist(), strict=True)
    title = ", ".join(f"{name} = {short(value, 6)}" for name, value in pairs)
    sd = np.sqrt(np.diagonal(one["cov"].values))
    columns = (one["component"].values, one["time"].values, one["mean"].values, one["mean_se"].values, sd)
    rows = [
        [str(component), *(short(float(number)) for number in numbers)]
        for component, *numbers in zip(*columns, strict=True)
    ]
    return f"{title}\n{table(['output', 'time', 'mean', 'se', 'sd'], rows)}"


def add_score(parser: Parser) -> None:
    """Arguments of `score`."""
    _add_map(parser)
    parser.add_argument("--reference", type=file_named(".nc", ".zarr"), metavar="FILE", help="moments to compare with")
    parser.add_argument("--exact", action="store_true", help="compare with exact moments at fresh values")
    parser.add_argument("--points", type=whole(1), metavar="N", help="fresh values (100; 5 with --exact)")
    parser.add_argument("--replicates", type=whole(2), default=10_000, metavar="M", help="fresh paths at each (10,000)")
    add_seed(parser, "fixes the fresh values and paths (0)")
    parser.add_argument("--plot", type=file_named(".png", ".svg", ".pdf"), metavar="FILE", help="draw the errors")
    add_threads(parser)


def run_score(settings: Namespace, talk: Talk) -> None:
    """Compare with a file, with exact moments, or with fresh paths."""
    from ctmoments.evaluate.figures_map import plot_errors
    from ctmoments.moments.metrics import SUMMARIES, score_map
    from ctmoments.use.files import check_targets, save_picture

    map_ = _load(settings)
    check_targets(settings.plot)
    score = score_map(map_, reference_of(settings, map_.problem, talk))
    if settings.plot is not None:
        save_picture(settings.plot, lambda figure: plot_errors(score, figure=figure))
        talk.say(f"picture: {settings.plot}")
    attrs = score.attrs
    rows = [[what, *(f"{100 * attrs[f'{name}_{key}']:.3g}" for key in SUMMARIES)]
            for what, name in (("mean (RRMSE)", "rrmse"), ("covariance (RFE)", "rfe"))]  # fmt: skip
    lines = table(["error in %", *(key.replace("_", " ") for key in SUMMARIES)], rows)
    notes = {"reference": f"{attrs['reference']} moments at {attrs['points']:,} values"}
    if attrs["points_left_out"]:
        notes["left out"] = f"{attrs['points_left_out']:,} values without moments"
    if attrs["reference_rrmse_noise"]:
        noise = [100 * attrs[f"reference_{name}_noise"] for name in ("rrmse", "rfe")]
        notes["its noise"] = f"mean {short(noise[0], 2)} %, covariance {short(noise[1], 2)} %"
    if "mean_coverage_90" in attrs:
        shares = (f"{what} {100 * attrs[key]:.0f} %" for what, key in
                  (("mean", "mean_coverage_90"), ("covariance", "cov_coverage_90")) if key in attrs)  # fmt: skip
        notes["coverage"] = f"of 90 % intervals: {', '.join(shares)}"
    summary = {key: value for key, value in attrs.items() if not isinstance(value, str) or key == "reference"}
    talk.result(f"{lines}\n\n{entries(notes)}", {"problem": map_.problem.name, **summary, "plot": settings.plot})


def reference_of(settings: Namespace, problem: Problem, talk: Talk) -> xr.Dataset:
    """What a map is compared with."""
    from ctmoments.simulate.design import sample_design
    from ctmoments.simulate.streams import Purpose

    if settings.reference is not None:
        from ctmoments.use.files import read_dataset

        if settings.exact or settings.points:
            raise InputError("--reference must come without --exact and --points.")
        return read_dataset(settings.reference)
    points = settings.points or (5 if settings.exact else 100)
    theta = sample_design(problem, points, seed=settings.seed, purpose=Purpose.REFERENCE_DESIGN)
    if settings.exact:
        from ctmoments.moments.exact import exact_moments

        return exact_moments(problem, theta, threads=settings.threads, progress=talk.progress)
    from ctmoments.moments.estimate import simulate_moments

    return simulate_moments(
        problem, theta, settings.replicates, settings.seed, purpose=Purpose.REFERENCE_PATHS, threads=settings.threads,
        progress=talk.progress,
    )  # fmt: skip


def add_whiten(parser: Parser) -> None:
    """Arguments of `whiten`."""
    _add_map(parser)
    parser.add_argument("--points", type=whole(1), default=100, metavar="N", help="fresh values (100)")
    parser.add_argument("--replicates", type=whole(1), default=100, metavar="M", help="fresh paths at each (100)")
    add_seed(parser, "fixes the fresh values and paths (0)")
    parser.add_argument("--kind", type=one_of("symmetric", "cholesky"), default="symmetric", metavar="KIND",
                        help="symmetric (inverse square root, default) or cholesky")  # fmt: skip
    parser.add_argument("--plot", type=file_named(".png", ".svg", ".pdf"), metavar="FILE",
                        help="draw the correlation before and after")  # fmt: skip
    add_threads(parser)


def run_whiten(settings: Namespace, talk: Talk) -> None:
    """Whiten fresh paths with the map, and tell what correlation is left."""
    from ctmoments.moments.whiten import correlation, whiten
    from ctmoments.simulate.design import sample_design
    from ctmoments.simulate.paths import simulate_paths
    from ctmoments.simulate.streams import Purpose
    from ctmoments.use.files import check_targets, save_picture

    map_ = _load(settings)
    check_targets(settings.plot)
    theta = sample_design(map_.problem, settings.points, seed=settings.seed, purpose=Purpose.REFERENCE_DESIGN)
    paths = simulate_paths(
        map_.problem, theta, settings.replicates, settings.seed, purpose=Purpose.REFERENCE_PATHS,
        threads=settings.threads, progress=talk.progress,
    )  # fmt: skip
    moments = map_.predict(theta)
    z = whiten(paths, moments, settings.kind)
    variance = float((z**2).mean())
    if settings.plot is not None:
        from ctmoments.evaluate.figures_map import plot_whitening

        before = correlation((paths - moments["mean"]).values[:, :, ~map_.deterministic])
        save_picture(settings.plot, lambda figure: plot_whitening(before, z, figure=figure))
        talk.say(f"picture: {settings.plot}")
    before_after = [short(z.attrs[f"correlation_{when}"], 3) for when in ("before", "after")]
    lines = {
        "paths": f"{paths.sizes['point'] * paths.sizes['replicate']:,} fresh ones at {paths.sizes['point']:,} values",
        "largest correlation": f"{before_after[0]} before, {before_after[1]} after",
        "variance after": f"{short(variance, 3)} (1 is right)",
    }
    record = {name: z.attrs[name] for name in ("kind", "correlation_before", "correlation_after", "outputs_left_out")}
    talk.result(
        entries(lines, indent=""), {"problem": map_.problem.name, **record, "variance": variance, "plot": settings.plot}
    )
