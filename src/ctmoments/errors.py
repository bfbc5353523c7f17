"""What can go wrong, and how it is said.

    CtmomentsError
    ├── InputError (also ValueError)   what came does not fit; nothing has run
    │   ├── ModelError                 a model, expression, space or problem
    │   ├── ThetaError                 parameter values
    │   └── FileError                  a file, store or map that cannot be used as asked
    ├── SimulationError                paths failed and the caller asked to be told (on_failure="raise")
    └── SizeError                      the job does not fit; the message estimates what it would take

An input error is one line: the place, what must hold, what came, what to do.
`Status` is how a path ends. Kernels return a status and never raise.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from enum import IntEnum


class CtmomentsError(Exception):
    """Base of every error that ctmoments raises on purpose."""


class InputError(CtmomentsError, ValueError):
    """What came does not fit; nothing has run."""


class ModelError(InputError):
    """A model, expression, space or problem that cannot be used."""


class ThetaError(InputError):
    """Parameter values that cannot be used."""


class FileError(InputError):
    """A file that is missing, damaged, foreign, or holds something else than was asked for."""


class SimulationError(CtmomentsError):
    """Paths failed, and the caller asked to be told."""


class SizeError(CtmomentsError):
    """The job does not fit; the message says what it would take."""


class Status(IntEnum):
    """How a path ends. The text says what happened and what to do."""

    FINISHED = 0
    ABSORBED = 1
    BAD_RATE = 2
    OUT_OF_RANGE = 3
    CLOCK_STUCK = 4
    EVENT_LIMIT = 5
    CALL_FAILED = 6

    @property
    def text(self) -> str:
        return _STATUS_TEXT[self]

    @property
    def failed(self) -> bool:
        return self > Status.ABSORBED


_STATUS_TEXT = {
    Status.FINISHED: "reached the last output time",
    Status.ABSORBED: "no reaction can fire any more; the state is constant from there",
    Status.BAD_RATE: "a rate was negative or not finite; check the rate expressions at this parameter value",
    Status.OUT_OF_RANGE: (
        "an amount fell below zero or passed 2^53; a rate must vanish where its reaction lacks reactants"
    ),
    Status.CLOCK_STUCK: "events follow so fast that the clock cannot resolve them; rescale time or rates",
    Status.EVENT_LIMIT: "more events than `max_events`; raise it, or shorten the times",
    Status.CALL_FAILED: (
        "the Python simulator raised an error, or gave a wrong shape or a value that is not finite; see the traceback"
    ),
}


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint that names the nearest known name, or all of them where none is near."""
    known = sorted(map(str, known))
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    if close:
        return f"Did you mean {close[0]!r}?"
    return f"Known: {', '.join(known)}." if known else "None are known here."
