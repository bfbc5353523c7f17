"""SIGKILL at any moment and just after every kind of write: the hash after resume is that of an undisturbed run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the killer forks")


@pytest.mark.parametrize("wanted", [12, pytest.param(200, marks=pytest.mark.slow)])
def test_kills(wanted, tmp_path, root):
    environment = {**os.environ, "PYTHONPATH": str(root / "src"), "OPENBLAS_NUM_THREADS": "1"}
    program = Path(__file__).with_name("store_kills.py")
    answer = subprocess.run(
        [sys.executable, program, tmp_path, str(wanted), "7"], env=environment, capture_output=True, text=True
    )
    assert answer.returncode == 0, answer.stderr
    found = json.loads(answer.stdout)
    print(found)
    assert found["kills"] >= wanted and found["wrong"] == []
    # one thread: what it ran, and what waited to be written, are started again
    assert 0 <= found["started"] - found["blocks"] <= 2 * found["kills"]
