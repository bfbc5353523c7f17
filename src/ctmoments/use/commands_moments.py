"""`ctmoments exact` and `ctmoments equations`: what is known about moments without simulating."""

from __future__ import annotations

from argparse import Namespace

from ctmoments.use.arguments import (
    Parser,
    add_problem,
    add_seed,
    add_targets,
    add_theta,
    add_threads,
    chosen_problem,
    chosen_theta,
    names_list,
    one_of,
    positive,
    whole,
)
from ctmoments.use.talk import Talk, entries


def add_exact(parser: Parser) -> None:
    """Arguments of `exact`."""
    add_problem(parser)
    add_theta(parser)
    add_seed(parser, "fixes the design (0)")
    parser.add_argument("--tolerance", type=positive, metavar="X", help="relative error to aim for (1e-8)")
    parser.add_argument("--max-states", type=whole(1), metavar="N", help="states held at once, at most (2,000,000)")
    add_targets(parser)
    add_threads(parser)


def run_exact(settings: Namespace, talk: Talk) -> None:
    """Solve the master equation at each value."""
    from ctmoments.moments.exact import exact_moments
    from ctmoments.use.files import check_targets, write_results
    from ctmoments.use.tables import moments_record, moments_table

    problem = chosen_problem(settings)
    theta = chosen_theta(settings, problem)
    check_targets(settings.out, settings.plot)
    asked = {name: getattr(settings, name) for name in ("tolerance", "max_states")}
    data = exact_moments(
        problem, theta, threads=settings.threads, progress=talk.progress,
        **{name: value for name, value in asked.items() if value is not None},
    )  # fmt: skip
    write_results(data, settings.out, settings.plot, talk)
    bounds = {name: float(data[name].max()) for name in ("mean_bound", "cov_bound", "lost_mass")}
    states, kind, seconds = int(data["states"].max()), data.attrs["error_bound_kind"], data.attrs["seconds"]
    lines = entries(
        {
            "states": f"{states:,} held at once, at most; {seconds:.2f} s",
            "error": f"mean {bounds['mean_bound']:.2g}, covariance {bounds['cov_bound']:.2g} at most ({kind})",
        }
    )
    record = {
        "problem": problem.name, "points": data.sizes["point"], "seconds": seconds, "states": states,
        "error_bound_kind": kind, **bounds, **moments_record(data), "out": settings.out, "plot": settings.plot,
    }  # fmt: skip
    text = f"{problem.name or settings.problem}, exact moments\n{lines}\n\n{moments_table(data)}"
    talk.result(text, record)


def add_equations(parser: Parser) -> None:
    """Arguments of `equations`."""
    parser.add_argument(
        "problem", metavar="PROBLEM", help="a built-in problem or a file; a model without a space will do"
    )
    parser.add_argument("--order", type=whole(1, 20), default=2, metavar="N", help="of the highest moment (2)")
    parser.add_argument("--species", type=names_list, metavar="A,B", help="of these species only")
    parser.add_argument("--form", type=one_of("raw", "central"), default="raw", metavar="FORM",
                        help="raw (moments, default) or central (means and covariances)")  # fmt: skip
    parser.add_argument("--latex", action="store_true", help="as the body of an align environment")


def run_equations(settings: Namespace, talk: Talk) -> None:
    """Derive the moment equations; say whether they close."""
    from ctmoments.model.library import load_model
    from ctmoments.moments.equations import moment_equations

    equations = moment_equations(load_model(settings.problem), settings.order, species=settings.species)
    if settings.latex:
        text = equations.to_latex(settings.form)
    else:
        missing = ", ".join(equations.missing)
        closed = "closed" if equations.closed else f"not closed: {missing} would be needed"
        text = f"order {equations.order}, {closed}\n\n{equations.to_text(settings.form)}"
    record = {
        "order": equations.order, "closed": equations.closed, "missing": list(equations.missing),
        "equations": equations.to_text(settings.form).splitlines(), "latex": equations.to_latex(settings.form),
    }  # fmt: skip
    talk.result(text, record)
