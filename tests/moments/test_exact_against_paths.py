"""Exact distributions against simulated paths, where they have two modes."""

import numpy as np
import pytest
from scipy.stats import chi2

from ctmoments.model.library import load_problem
from ctmoments.moments.exact_distribution import exact_distribution
from ctmoments.simulate.paths import simulate_paths


def chi_square(counts, probability, paths):
    """The p-value of Pearson's statistic over neighbouring values joined until 20 paths are expected in each."""
    expected = paths * probability
    groups = np.minimum(np.cumsum(expected) // 20, (expected.sum() - 20) // 20).astype(int)
    groups = np.unique(groups, return_inverse=True)[1]
    observed, expected = np.bincount(groups, counts), np.bincount(groups, expected)
    statistic = ((observed - expected) ** 2 / expected).sum()
    return chi2.sf(statistic, len(expected) - 1)


@pytest.mark.slow
@pytest.mark.parametrize("name, theta", [("schlogl", [50.0, 3.5]), ("toggle-switch", [30.0, 32.0, 8.0])])
def test_two_modes_agree_with_a_million_paths(name, theta):
    """False alarm 1e-6 for each of the outputs tested; a hundredth of the mass in the wrong mode would show for sure.

    (It moves the statistic of about 150 groups by some thousands; its standard deviation is 17.)
    """
    problem, paths = load_problem(name), 1_000_000
    found = exact_distribution(problem, theta)
    sampled = simulate_paths(problem, theta, paths, seed=11).values[0].T
    value = found["value"].values
    for output in {len(problem.times) - 1, len(problem.output_times) - 1}:
        probability = found["probability"].values[0, output]
        inside = np.isin(sampled[output], value)
        assert (~inside).sum() <= 3  # values that the solver let go: less than 1e-10 of all
        counts = np.bincount(np.searchsorted(value, sampled[output, inside]), minlength=len(value))
        assert chi_square(counts, probability, paths) > 1e-6
        peaks = probability[1:-1][(probability[1:-1] > probability[:-2]) & (probability[1:-1] > probability[2:])]
        assert len(peaks[peaks > 1e-3]) >= 2
