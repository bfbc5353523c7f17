"""Sums as bytes: what a block of a store holds, its checksum, and the canonical form that hashes are taken over.

In: arrays of whole numbers (int64, or Python integers where 64 bits do not suffice) or of doubles. Out: bytes. Each
array is one byte of width, then its entries in rows, little-endian two's complement of that many bytes: the smallest
of 0 (all zero), 1, 2, 4, 8, 16, 24, ... that holds them all. The byte `REAL` announces float64. Shapes are not
stored: a block's ranges and the number of outputs give them. The same numbers always give the same bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from itertools import starmap
from math import prod

import numpy as np

from ctmoments.errors import FileError

REAL = 255
CHECKSUM_BYTES = 16
NARROW = (1, 2, 4, 8)


def pack(arrays: Iterable[np.ndarray]) -> bytes:
    """Arrays, one after the other."""
    return b"".join(map(_pack_one, arrays))


def unpack(data: bytes, shapes: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
    """The arrays of `pack`, given their shapes."""
    arrays, at = [], 0
    for shape in shapes:
        width = data[at] if at < len(data) else -1
        size = prod(shape) * (8 if width == REAL else width)
        if width < 0 or at + 1 + size > len(data):
            raise FileError(f"a block must hold arrays of shapes {list(shapes)}, got {len(data)} bytes.")
        arrays.append(_unpack_one(data[at + 1 : at + 1 + size], width, shape))
        at += 1 + size
    if at != len(data):
        raise FileError(f"a block must end after its arrays, at byte {at}, got {len(data)} bytes.")
    return arrays


def checksum(*parts: object) -> bytes:
    """A checksum over bytes, numbers and text; each part's length is part of it."""
    digest = hashlib.blake2b(digest_size=CHECKSUM_BYTES)
    for part in parts:
        data = part if isinstance(part, bytes) else repr(part).encode()
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.digest()


def _pack_one(array: np.ndarray) -> bytes:
    if array.dtype.kind == "f":
        return bytes([REAL]) + np.ascontiguousarray(array, "<f8").tobytes()
    low, high = (int(array.min()), int(array.max())) if array.size else (0, 0)
    if low == high == 0:
        return b"\0"
    bits = max(high.bit_length(), (~low).bit_length() if low < 0 else 0) + 1  # one for the sign
    for width in NARROW:
        if bits <= 8 * width:
            return bytes([width]) + np.ascontiguousarray(array, f"<i{width}").tobytes()
    width = -(-bits // 64) * 8
    if width >= REAL:
        raise FileError(f"sums must fit into {REAL // 8 * 64 - 64} bits, got {bits}.")
    return bytes([width]) + b"".join(int(value).to_bytes(width, "little", signed=True) for value in array.flat)


def _unpack_one(data: bytes, width: int, shape: tuple[int, ...]) -> np.ndarray:
    if width == 0:
        return np.zeros(shape, np.int64)
    if width == REAL:
        return np.frombuffer(data, "<f8").astype(np.float64).reshape(shape)
    if width in NARROW:
        return np.frombuffer(data, f"<i{width}").astype(np.int64).reshape(shape)
    cuts = ((data[at : at + width],) for at in range(0, len(data), width))
    wide = np.empty(prod(shape), object)
    wide[:] = list(starmap(_signed, cuts))
    return wide.reshape(shape)


def _signed(data: bytes) -> int:
    return int.from_bytes(data, "little", signed=True)
