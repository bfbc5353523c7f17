"""The mean and the covariance of a continuous-time Markov chain, at every parameter value.

The folders are the flow; a package imports only from those to its left and from the root modules:

    model → simulate → moments → predict → learn → evaluate → use
"""

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ctmoments.evaluate.figures import plot_moments
    from ctmoments.evaluate.figures_map import plot_errors
    from ctmoments.learn.maps import fit_map, learn_map
    from ctmoments.learn.momentnet import MomentNet
    from ctmoments.learn.paper import PaperMLP
    from ctmoments.learn.spectral import Spectral
    from ctmoments.model.library import list_problems, load_model, load_problem
    from ctmoments.model.model import Model
    from ctmoments.model.problem import Problem
    from ctmoments.model.space import Integer, Linear, Log, Space
    from ctmoments.model.theta import as_theta
    from ctmoments.moments.equations import moment_equations
    from ctmoments.moments.estimate import simulate_moments
    from ctmoments.moments.exact import exact_moments
    from ctmoments.moments.exact_distribution import exact_distribution
    from ctmoments.moments.metrics import score_map
    from ctmoments.moments.noise import approximate_moments
    from ctmoments.moments.whiten import whiten
    from ctmoments.predict.mapfile import load_map
    from ctmoments.predict.moment_map import MomentMap
    from ctmoments.simulate.design import sample_design
    from ctmoments.simulate.paths import simulate_paths

__version__ = "0.1.0"

_HOME = {
    "Integer": "model.space",
    "Linear": "model.space",
    "Log": "model.space",
    "Model": "model.model",
    "MomentMap": "predict.moment_map",
    "MomentNet": "learn.momentnet",
    "PaperMLP": "learn.paper",
    "Problem": "model.problem",
    "Space": "model.space",
    "Spectral": "learn.spectral",
    "approximate_moments": "moments.noise",
    "as_theta": "model.theta",
    "exact_distribution": "moments.exact_distribution",
    "exact_moments": "moments.exact",
    "fit_map": "learn.maps",
    "learn_map": "learn.maps",
    "list_problems": "model.library",
    "load_map": "predict.mapfile",
    "load_model": "model.library",
    "load_problem": "model.library",
    "moment_equations": "moments.equations",
    "plot_errors": "evaluate.figures_map",
    "plot_moments": "evaluate.figures",
    "sample_design": "simulate.design",
    "score_map": "moments.metrics",
    "simulate_moments": "moments.estimate",
    "simulate_paths": "simulate.paths",
    "whiten": "moments.whiten",
}

__all__ = [
    "Integer",
    "Linear",
    "Log",
    "Model",
    "MomentMap",
    "MomentNet",
    "PaperMLP",
    "Problem",
    "Space",
    "Spectral",
    "approximate_moments",
    "as_theta",
    "exact_distribution",
    "exact_moments",
    "fit_map",
    "learn_map",
    "list_problems",
    "load_map",
    "load_model",
    "load_problem",
    "moment_equations",
    "plot_errors",
    "plot_moments",
    "sample_design",
    "score_map",
    "simulate_moments",
    "simulate_paths",
    "whiten",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'ctmoments' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"ctmoments.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


# The command loads what its verb needs, so that `ctmoments --help` answers at once. Everybody else pays here for models
# and simulation, where it is expected and not in the first result; the rest (exact moments, linear noise with
# scipy.integrate, maps, pictures: 15 % more time to import) comes with its first use.
if Path(sys.argv[0] if sys.argv else "").stem not in ("ctmoments", "-m"):
    for _name, _place in _HOME.items():
        if _place.startswith(("model.", "simulate.")) or _name == "simulate_moments":
            __getattr__(_name)
