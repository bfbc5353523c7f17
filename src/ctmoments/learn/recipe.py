"""How networks are built and trained: settings alone, so that naming a method does not import JAX."""

from __future__ import annotations

from dataclasses import dataclass

from ctmoments.errors import InputError
from ctmoments.predict.network import ACTIVATIONS


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How networks are built and trained. Without `patience` every epoch runs and the last weights stay."""

    hidden: tuple[int, ...] = (128, 128, 128)
    activation: str = "relu"
    dropout: float = 0.0
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    schedule: str = "constant"
    batch: int = 64
    epochs: int = 1000
    patience: int | None = None

    def __post_init__(self) -> None:
        if self.activation not in ACTIVATIONS:
            raise InputError(f"`activation` must be one of {', '.join(ACTIVATIONS)}, got {self.activation!r}.")
        if self.schedule not in ("constant", "cosine"):
            raise InputError(f"`schedule` must be 'constant' or 'cosine', got {self.schedule!r}.")
        if not 0 <= self.dropout < 1:
            raise InputError(f"`dropout` must be at least 0 and below 1, got {self.dropout!r}.")
        for name in ("learning_rate", "batch", "epochs"):
            if not getattr(self, name) > 0:
                raise InputError(f"`{name}` must be positive, got {getattr(self, name)!r}.")
        if self.patience is not None and self.patience < 1:
            raise InputError(f"`patience` must be at least 1 epoch, got {self.patience!r}.")
