"""A mapping that cannot change: hashable, picklable, and its order counts (species order is state order)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

Value = TypeVar("Value")


class FrozenMap(Mapping[str, Value]):
    """A read-only dict. Two of them are equal when they hold the same pairs in the same order.

    >>> FrozenMap({"S": 1, "I": 2}) == FrozenMap({"I": 2, "S": 1})
    False
    >>> FrozenMap({"S": 1, "I": 2}) == {"I": 2, "S": 1}
    True
    """

    __slots__ = ("_pairs",)

    def __init__(self, pairs: Mapping[str, Value]):
        object.__setattr__(self, "_pairs", dict(pairs))

    def __setattr__(self, name: str, value: object):
        raise AttributeError("this mapping cannot change")

    def __getitem__(self, key: str) -> Value:
        return self._pairs[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._pairs)

    def __len__(self) -> int:
        return len(self._pairs)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, FrozenMap):
            return tuple(self._pairs.items()) == tuple(other._pairs.items())
        return self._pairs == other

    def __hash__(self) -> int:
        return hash(tuple(self._pairs.items()))

    def __repr__(self) -> str:
        return repr(self._pairs)

    def __reduce__(self):
        return FrozenMap, (self._pairs,)
