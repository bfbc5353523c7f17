"""Which outputs are deterministic: seen at time 0, or combinations that no reaction changes.

In: a problem. Out: a mask (output,). Such outputs get zero variance in every map and are left out in whitening.
"""

from __future__ import annotations

import numpy as np

from ctmoments.model.expressions import Number
from ctmoments.model.problem import Problem


def deterministic_outputs(problem: Problem) -> np.ndarray:
    """Whether each output has no variance whatever the parameters: bool (output,).

    >>> from ctmoments.model.library import load_problem
    >>> bool(deterministic_outputs(load_problem("sir")).any())
    False
    """
    if not isinstance(problem, Problem):  # a callable: nothing is known of it, and its time 0 may be anything
        return np.zeros(len(problem.output_components), bool)
    weights = np.array([component.weights for component in problem.components], np.float64)
    fires = np.array([rate != Number(0.0) for rate in problem.model.rates], bool)
    changes = weights @ problem.model.stoichiometry[:, fires]
    conserved = np.repeat((changes == 0).all(axis=1), len(problem.times))
    return conserved | (problem.output_times == 0)
