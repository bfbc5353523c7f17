"""Memory does not grow with the replicates."""

from __future__ import annotations

import subprocess
import sys

import pytest
from helpers import child_environment

pytest.importorskip("resource", reason="peak memory needs getrusage")

CODE = """
import resource, sys
import ctmoments as ctm
problem = ctm.load_problem("dimerisation")
theta = ctm.sample_design(problem, points=20, seed=1)
ctm.simulate_moments(problem, theta, int(sys.argv[1]), seed=1, threads=2)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024))
"""


def _peak(replicates: int) -> int:
    command = [sys.executable, "-c", CODE, str(replicates)]
    run = subprocess.run(command, check=True, capture_output=True, text=True, env=child_environment())
    return int(run.stdout)


@pytest.mark.slow
def test_peak_memory_is_flat():
    """20 points, 10^4 and 2·10^5 replicates: paths would take 320 MB more, blocks in flight take none."""
    few, many = _peak(10_000), _peak(200_000)
    assert many < few + 30e6 and many < 600e6
