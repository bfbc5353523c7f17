"""What a driver and a path kernel agree on: the context, how outputs lie in memory, and two bounds."""

from __future__ import annotations

from enum import IntEnum

CLOCK_LIMIT = 2.0**45  # total rate x time beyond which a mean step is below 128 units in the clock's last place
LOOK_EVERY = 4096  # turns between looks at the stop flag and the event counts: about 0.2 ms


class Cell(IntEnum):
    """The context that a driver hands to a kernel: addresses and numbers, 64 bits each."""

    LANES = 0  # scratch memory for lane state
    PATHS = 1  # number of paths
    ROW = 2  # path -> row of parameter values, int64
    REPLICATE = 3  # path -> replicate, uint64
    KEYS = 4  # row -> two uint64: the address absorbed up to the point
    COLUMNS = 5  # row -> parameter columns, float64
    START = 6  # row -> amounts at t = 0, float64
    TIMES = 7  # marked times, float64: those of the outputs, in order
    OUTPUTS = 8  # path -> outputs, int64, rows of `padded(outputs)`
    STATUS = 9  # path -> status, int64
    EVENTS = 10  # path -> events fired, int64
    MAX_EVENTS = 11
    RATE_BOUND = 12  # float64: totals from here on are looked at
    STOP = 13  # address of a flag, int64: not 0 asks to return
    DONE = 14  # address of a count of ended paths, int64
    TABLES = 15  # what a sparse kernel knows of its network, int64
    MARKS = 16  # number of marked times
    OUTPUT_OF = 17  # marked time -> number of the output time, int64, -1 for none (records only)
    STEPS = 18  # address of two int64: steps recorded so far, steps that there is room for (records only)
    STEP_ROWS = 19  # step -> row of cells (records only)
    REACH = 20  # float64: movement after which a step closes (records only)


def padded(outputs: int) -> int:
    """The length of a row of outputs: whole vectors, so that `sums` reads no neighbour."""
    return -(-outputs // 8) * 8
