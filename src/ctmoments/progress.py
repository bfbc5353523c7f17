"""Progress for whatever can take more than two seconds: a bar with rate and time left, or nothing.

`progress=None` shows a bar on a terminal and in a notebook, and nothing elsewhere; `True` and `False` decide.
Bars go to stderr, appear only once two seconds have passed, and vanish when the work is done.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

PATIENCE = 2.0  # seconds before a bar appears: shorter work needs none


class Report(Protocol):
    """What a worker calls: `report(done)` with the amount of work done so far."""

    def __call__(self, done: float, note: str = "") -> None:
        """Say how much is done."""
        ...


def wants_bar(progress: bool | None) -> bool:
    """Whether a bar is to be shown."""
    if progress is not None:
        return progress
    return sys.stderr.isatty() or "ipykernel" in sys.modules


@contextmanager
def progress_bar(what: str, total: float, unit: str, progress: bool | None, before: float = 0.0) -> Iterator[Report]:
    """A context in which `report(done)` moves a bar of length `total`; `before` was done earlier, at no rate."""
    if not wants_bar(progress):
        yield lambda done, note="": None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
        console=Console(stderr=True, force_terminal=True if progress else None),
        transient=True,
    )
    task = bar.add_task(what, total=total, completed=int(before), rate="", note="")
    start = time.monotonic()

    def report(done: float, note: str = "") -> None:
        elapsed = time.monotonic() - start
        if elapsed < PATIENCE and not bar.live.is_started:
            return
        if not bar.live.is_started:
            bar.start()
        bar.update(task, completed=done, rate=f"{(done - before) / elapsed:,.3g} {unit}/s", note=note)

    try:
        yield report
    finally:
        if bar.live.is_started:
            bar.stop()
