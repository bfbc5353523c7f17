"""What every test may rely on: the reference data if it is there, no display, property tests that repeat."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

os.environ.setdefault("MPLBACKEND", "Agg")

# Routine runs repeat exactly; `make fuzz` looks for new examples.
settings.register_profile("routine", deadline=None, derandomize=True)
settings.register_profile("fuzz", deadline=None, max_examples=2_000)
settings.load_profile("routine")

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The reference data beside the repository (`../shared/data`, or $CTMOMENTS_SHARED); skips where absent."""
    folder = Path(os.environ.get("CTMOMENTS_SHARED", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no reference data at {folder}; CTMOMENTS_SHARED names another folder")
    return folder
