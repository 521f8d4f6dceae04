"""`Model`: the weights and the architecture of a checkpoint, for research with `Session`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from . import _simdformer
from .model_path import model_path
from .native_object import string


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of a model."""

    name: str
    """Its role in the network, for example ``decoder.layers.5.cross_attention.query.weight``."""
    shape: tuple[int, ...]
    """Its shape in a checkpoint."""
    storage: str
    """How it is stored: ``rows``, ``panels``, a dtype, ``pruning table`` or ``shared``."""
    bytes: int
    """Its bytes; 0 if it is shared."""


class Model:
    """The weights and the architecture of a checkpoint; all objects of a process that were opened with the same path, `isa`
    and `dtype` share them. The arguments are those of `Translator`.

    >>> model = simdformer.Model(demo_model)
    >>> model.d_model % model.decoder_heads, len(model.fingerprint)
    (0, 32)
    """

    d_model: int
    """The width of the hidden states."""
    encoder_layers: int
    encoder_heads: int
    decoder_layers: int | None
    decoder_heads: int | None
    source_vocabulary: int
    target_vocabulary: int
    source_positions: int | None
    """The most tokens of a source, if the architecture limits them."""
    target_positions: int | None
    """The most tokens of a target, if the architecture limits them."""
    decoder_start: int | None
    """The first input of the decoder."""

    def __init__(
        self, model: str | os.PathLike[str], *, isa: str | None = None, dtype: str | None = None
    ) -> None:
        self._path, self._isa, self._dtype = model_path(model), isa, dtype
        self._native = _simdformer.Model(self._path, isa=isa, dtype=dtype)
        for name, size in self._native.sizes():
            setattr(self, name, size)

    @property
    def path(self) -> str:
        """The directory of the checkpoint."""
        return self._path

    @property
    def isa(self) -> str:
        """The instruction set that the weights are packed for."""
        return self._native.isa

    @property
    def bytes(self) -> int:
        """Bytes of the packed weights."""
        return self._native.bytes

    @property
    def fingerprint(self) -> str:
        """32 hexadecimal digits: models with the same fingerprint give the same bits."""
        return self._native.fingerprint()

    @property
    def notes(self) -> list[str]:
        """What the checkpoint has that the model does not use, or uses in another way than its configuration says: a program
        should show them. Empty for packed weights."""
        return self._native.notes()

    @property
    def end_tokens(self) -> list[int]:
        """The tokens that end a target."""
        return self._native.end_tokens()

    @property
    def tensors(self) -> list[Tensor]:
        """Every tensor of the network, in the order of use."""
        return [
            Tensor(name, tuple(shape), storage, size)
            for name, shape, storage, size in self._native.tensors()
        ]

    def encode(self, text: str) -> list[int]:
        """The source ids of a text, with special tokens and the default languages. Errors: `LimitError` if it has more tokens
        than the model takes."""
        return self._native.encode(string(text, "text"))[0]

    def parts(self, text: str) -> list[str]:
        """The part of a text that each of its source ids stands for; special tokens have none."""
        return self._native.encode(string(text, "text"))[1]

    def decode(self, ids: Any) -> str:
        """The text of target ids."""
        return self._native.decode([int(id) for id in ids])

    def __reduce__(self) -> tuple[Any, ...]:
        return _open, (self._path, self._isa, self._dtype)

    def __repr__(self) -> str:
        return f"Model({self._path!r})\n{self._native.summary()}"


def _open(path: str, isa: str | None, dtype: str | None) -> Model:
    return Model(path, isa=isa, dtype=dtype)


def native(model: Model) -> _simdformer.Model:
    """The native half of a model."""
    return model._native
