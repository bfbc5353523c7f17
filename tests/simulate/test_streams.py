"""Streams by address: NumPy and kernel arithmetic agree, addresses do not collide, the generator is xoshiro256++."""

from __future__ import annotations

import numpy as np
import pytest

from ctmoments.errors import InputError
from ctmoments.simulate import arithmetic
from ctmoments.simulate.scalars import Scalars
from ctmoments.simulate.streams import CHAINS, GOLDEN, Purpose, generator, path_state

ON = Scalars()


def _by_hand(seed, purpose, point, replicate) -> list[int]:
    state = []
    for key in CHAINS:
        for part in (seed, purpose, point, replicate):
            key = arithmetic.mix64(ON, ((key ^ part) + GOLDEN) % 2**64)
        state += [arithmetic.mix64(ON, (key + GOLDEN * half) % 2**64) for half in (1, 2)]
    return state


@pytest.mark.parametrize("address", [(0, 2, 0, 0), (2**64 - 1, 4, 2**50, 2**40), (7, 2, 3, 12345)])
def test_states_are_what_the_definition_says(address):
    seed, purpose, point, replicate = address
    assert path_state(seed, Purpose(purpose), point, replicate).tolist() == _by_hand(*address)


def test_draws_are_xoshiro256plus():
    """The first outputs of the authors' C code from the state (1, 2, 3, 4)."""
    state, words = (1, 2, 3, 4), []
    for _ in range(4):
        word, state = arithmetic.draw(ON, state)
        words.append(word)
    assert words == [5, 211106232532999, 211106635186183, 9223759065350669058]


def test_addresses_do_not_collide():
    """Small steps in seed, purpose, point and replicate, also where they could cancel: 400,000 different streams."""
    states = [
        path_state(seed, purpose, np.arange(100)[:, None], np.arange(200)).reshape(-1, 4)
        for seed in (0, 1, 2, 3, 2**63)
        for purpose in (Purpose.DESIGN, Purpose.PATHS, Purpose.VALIDATION_PATHS, Purpose.PILOT_PATHS)
    ]
    states = np.concatenate(states)
    assert len(np.unique(states, axis=0)) == len(states) == 400_000
    assert len(np.unique(states[:, 0])) == len(states)  # already the first word tells them apart


def test_states_look_random_bit_by_bit():
    """Each bit of 20,000 states of neighbouring addresses: half ones within 6.5 standard deviations."""
    states = path_state(1, Purpose.PATHS, np.arange(100)[:, None], np.arange(200)).reshape(-1, 4)
    bits = np.unpackbits(states.view(np.uint8), axis=1)
    assert np.abs(bits.mean(axis=0) - 0.5).max() < 6.5 * 0.5 / np.sqrt(len(states))
    flips = np.unpackbits((states[1:] ^ states[:-1]).view(np.uint8), axis=1)
    assert np.abs(flips.mean(axis=0) - 0.5).max() < 6.5 * 0.5 / np.sqrt(len(flips))


def test_purposes_keep_one_seed_apart():
    draws = {tuple(generator(5, purpose).integers(0, 2**63, 4).tolist()) for purpose in Purpose}
    assert len(draws) == len(Purpose)
    assert generator(5, Purpose.WEIGHTS, 1, 2).random() == generator(5, Purpose.WEIGHTS, 1, 2).random()


@pytest.mark.parametrize("seed", [-1, 2**64, 1.0, "1", True, None])
def test_wrong_seeds(seed):
    with pytest.raises(InputError, match=r"`seed` must be a whole number from 0 to 2\^64 - 1, got"):
        path_state(seed, Purpose.PATHS, 0, 0)
