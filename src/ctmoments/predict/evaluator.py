"""What a map is made of: small evaluators, frozen values that turn unit coordinates into numbers with NumPy alone.

In: unit coordinates (point, parameter) inside [0, 1]; the map has clipped them. Out: values, their standard errors,
their gradients. An evaluator is a frozen dataclass whose fields are arrays, numbers, texts, other evaluators or tuples
of evaluators: so `pack` and `unpack` can write any of them to a file without knowing it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from ctmoments.errors import FileError, InputError, nearest

DEEPEST = 12  # nesting of evaluators in a file


@runtime_checkable
class Evaluator(Protocol):
    """A function of unit coordinates. `outputs` counts numbers a point for a regressor, outputs for a covariance."""

    kind: ClassVar[str]

    @property
    def outputs(self) -> int:
        """Numbers returned for each point (for a covariance: its rows)."""
        ...

    def values(self, unit: np.ndarray) -> np.ndarray:
        """Values (point, outputs); for a covariance (point, outputs, outputs)."""
        ...

    def se(self, unit: np.ndarray) -> np.ndarray:
        """Standard errors of the values, in their shape; NaN where they are not known."""
        ...

    def gradient(self, unit: np.ndarray) -> np.ndarray:
        """Derivatives by the unit coordinates: the shape of the values, then (parameter,)."""
        ...


class Covariance(Evaluator, Protocol):
    """An evaluator whose values are positive semidefinite matrices."""

    def factor(self, unit: np.ndarray) -> np.ndarray:
        """Lower triangular factors (point, outputs, outputs) of the values."""
        ...


def check_shape(what: str, array: np.ndarray, shape: tuple[int | None, ...]) -> np.ndarray:
    """A finite, read-only float array of this shape (None: any length), or an error that names it."""
    array = np.array(array, np.float64)
    if array.ndim != len(shape) or any(want not in (None, got) for want, got in zip(shape, array.shape, strict=True)):
        wanted = ", ".join("any" if want is None else str(want) for want in shape)
        raise InputError(f"`{what}` must have the shape ({wanted}), got {array.shape}.")
    if not np.isfinite(array).all():
        raise InputError(f"`{what}` must be finite, got {int((~np.isfinite(array)).sum())} numbers that are not.")
    array.flags.writeable = False
    return array


def triangle_outputs(count: int) -> int:
    """How many outputs a lower triangle of `count` numbers belongs to."""
    outputs = int((np.sqrt(8 * count + 1) - 1) / 2)
    if outputs * (outputs + 1) != 2 * count:
        raise InputError(f"a lower triangle must have n (n + 1) / 2 numbers, got {count}.")
    return outputs


def unknown(values: np.ndarray) -> np.ndarray:
    """Standard errors that nobody knows."""
    return np.full(values.shape, np.nan)


def pack(evaluator: Evaluator, prefix: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The card entries and the named arrays that make an evaluator."""
    card: dict[str, Any] = {"kind": evaluator.kind}
    arrays: dict[str, np.ndarray] = {}
    for field in fields(evaluator):  # pyright: ignore[reportArgumentType]
        card[field.name] = _pack_value(getattr(evaluator, field.name), f"{prefix}.{field.name}", arrays)
    return card, arrays


def _pack_value(value: Any, name: str, arrays: dict[str, np.ndarray]) -> Any:
    if isinstance(value, np.ndarray):
        arrays[name] = np.ascontiguousarray(value)
        return {"array": name}
    if isinstance(value, Evaluator):
        entry, inner = pack(value, name)
        arrays |= inner
        return {"evaluator": entry}
    if isinstance(value, tuple):
        return {"list": [_pack_value(part, f"{name}.{index}", arrays) for index, part in enumerate(value)]}
    return value


def unpack(
    card: Any, arrays: Mapping[str, np.ndarray], kinds: Mapping[str, type], place: str, depth: int = 0
) -> Evaluator:
    """The evaluator that `pack` described; an error names the place of what does not fit."""
    if depth > DEEPEST:
        raise FileError(f"{place}: evaluators must be nested at most {DEEPEST} deep.")
    if not isinstance(card, Mapping) or not isinstance(card.get("kind"), str):
        raise FileError(f"{place}: an evaluator must be a table with a `kind`, got {str(card)[:60]!r}.")
    if card["kind"] not in kinds:
        raise FileError(f"{place}: unknown kind {card['kind'][:60]!r}. {nearest(card['kind'], kinds)}")
    kind = kinds[card["kind"]]
    wanted = {field.name for field in fields(kind)}
    if set(card) - {"kind"} != wanted:
        raise FileError(f"{place}: {card['kind']!r} must have the entries {sorted(wanted)}, got {sorted(card)}.")
    values = {
        name: _unpack_value(entry, arrays, kinds, f"{place}.{name}", depth + 1)
        for name, entry in card.items()
        if name != "kind"
    }
    try:
        return kind(**values)
    except (InputError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise FileError(f"{place}: {error}") from None


def _unpack_value(entry: Any, arrays: Mapping[str, np.ndarray], kinds: Mapping[str, type], place: str, depth: int):
    if not isinstance(entry, Mapping):
        return entry
    if depth > DEEPEST:
        raise FileError(f"{place}: evaluators must be nested at most {DEEPEST} deep.")
    match dict(entry):
        case {"array": str(name)} if name in arrays:
            return arrays[name]
        case {"evaluator": inner}:
            return unpack(inner, arrays, kinds, place, depth)
        case {"list": list(parts)}:
            return tuple(_unpack_value(part, arrays, kinds, f"{place}.{i}", depth + 1) for i, part in enumerate(parts))
    raise FileError(f"{place} must be an array of the file, an evaluator or a list, got {str(entry)[:60]!r}.")
