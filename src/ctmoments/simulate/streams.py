"""Random streams: an address (seed, purpose, point, replicate) is a stream, whoever draws from it.

In: a 64-bit seed and whole numbers. Out: four 64-bit words that start xoshiro256+ (the kernels' generator,
Blackman & Vigna 2021), or a NumPy generator for everything that is not a path.

Two independent chains of the splitmix64 finaliser absorb the address, so that 128 bits tell streams apart: two of
10^12 paths share a stream with probability 1e-15. The kernel repeats `path_state` in its own code (`pathkernel.py`);
a test holds them equal.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from ctmoments.errors import InputError

GOLDEN = 0x9E3779B97F4A7C15  # 2^64 / golden ratio, the splitmix64 increment
MULTIPLIERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)  # splitmix64's finaliser (Stafford's mix 13)
SHIFTS = (30, 27, 31)
CHAINS = (0x243F6A8885A308D3, 0x13198A2E03707344)  # first digits of pi: where the two chains start


class Purpose(IntEnum):
    """What a stream is drawn for. One seed given to several purposes shares nothing between them."""

    DESIGN = 1
    PATHS = 2
    VALIDATION_DESIGN = 3
    VALIDATION_PATHS = 4
    PILOT_DESIGN = 5
    PILOT_PATHS = 6
    WEIGHTS = 7
    BATCHES = 8
    DROPOUT = 9
    RESAMPLING = 10
    REFERENCE_DESIGN = 11
    REFERENCE_PATHS = 12
    COVARIANCE_DESIGN = 13
    COVARIANCE_PATHS = 14
    INFERENCE = 15
    REPLAY = 16
    COVARIANCE_VALIDATION_DESIGN = 17
    COVARIANCE_VALIDATION_PATHS = 18


def check_seed(seed: int) -> int:
    """A seed is any unsigned 64-bit integer."""
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or not 0 <= int(seed) < 2**64:
        raise InputError(f"`seed` must be a whole number from 0 to 2^64 - 1, got {seed!r}.")
    return int(seed)


def mix64(word: np.ndarray) -> np.ndarray:
    """The finaliser of splitmix64, elementwise on uint64."""
    for shift, multiplier in zip(SHIFTS[:2], MULTIPLIERS, strict=True):
        word = (word ^ (word >> np.uint64(shift))) * np.uint64(multiplier)
    return word ^ (word >> np.uint64(SHIFTS[2]))


def prefix_keys(seed: int, purpose: Purpose) -> np.ndarray:
    """The two chains after seed and purpose: what a driver hands to a kernel."""
    with np.errstate(over="ignore"):
        keys = np.array(CHAINS, np.uint64)
        for word in (check_seed(seed), int(purpose)):
            keys = mix64((keys ^ np.uint64(word)) + np.uint64(GOLDEN))
    return keys


def path_keys(seed: int, purpose: Purpose, point, replicate) -> np.ndarray:
    """The two chains after the whole address: uint64 (..., 2)."""
    point, replicate = np.broadcast_arrays(np.asarray(point, np.uint64), np.asarray(replicate, np.uint64))
    with np.errstate(over="ignore"):
        keys = np.broadcast_to(prefix_keys(seed, purpose), (*point.shape, 2))
        for word in (point, replicate):
            keys = mix64((keys ^ word[..., None]) + np.uint64(GOLDEN))
    return keys


def path_state(seed: int, purpose: Purpose, point, replicate) -> np.ndarray:
    """The four words that start xoshiro256+ for each path: uint64 (..., 4)."""
    keys = path_keys(seed, purpose, point, replicate)
    steps = np.array([GOLDEN, 2 * GOLDEN % 2**64], np.uint64)
    with np.errstate(over="ignore"):
        return mix64(keys[..., :, None] + steps).reshape(*keys.shape[:-1], 4)


def generator(seed: int, purpose: Purpose, point: int = 0, replicate: int = 0) -> np.random.Generator:
    """A NumPy generator of its own for this address."""
    return np.random.Generator(np.random.Philox(key=path_keys(seed, purpose, point, replicate)))
