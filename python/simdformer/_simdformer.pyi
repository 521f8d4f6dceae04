"""The native module. Private: use the classes of `simdformer`."""

from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from .errors import SimdformerError

_Rows = tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]
_Progress = Callable[[int], object] | None
_Translated = tuple[
    list[str],
    list[tuple[int, SimdformerError]],
    npt.NDArray[np.uint8],
    npt.NDArray[np.float32],
    npt.NDArray[np.bool_],
    list[list[str]],
]

__version__: str
__all__ = [
    "Batcher",
    "Embedder",
    "Hypothesis",
    "Model",
    "Reranker",
    "SegmentStream",
    "Session",
    "Source",
    "TokenStream",
    "Transcriber",
    "Translator",
    "__version__",
    "available_isas",
    "default_isa",
    "model_files",
    "settings",
    "stages",
]

def available_isas() -> list[str]: ...
def default_isa() -> str: ...
def settings() -> list[tuple[str, str, str]]: ...
def model_files(directory: str | PathLike[str], *, weights: bool) -> list[Path]: ...
@final
class TokenStream:
    def __iter__(self) -> TokenStream: ...
    def __next__(self) -> str: ...
    @property
    def truncated(self) -> bool: ...
    @property
    def finish(self) -> int | None: ...
    @property
    def notes(self) -> list[str]: ...
    def close(self) -> None: ...
@final
class SegmentStream:
    def next(self) -> tuple[str, dict[str, Any]] | None: ...
    def close(self) -> None: ...

@final
class Transcriber:
    def __new__(
        cls,
        path: str | PathLike[str],
        *,
        isa: str | None,
        dtype: str | None,
        threads: int,
        options: dict[str, Any],
    ) -> Transcriber: ...
    def begin(
        self,
        audio: str | bytes | tuple[bytes, str, int, int],
        channel: int | None,
        speech: list[tuple[float, float]] | None,
        options: dict[str, Any] | None,
    ) -> SegmentStream: ...
    def plan(self) -> tuple[int, str]: ...
    @property
    def rate(self) -> int: ...
    @property
    def isa(self) -> str: ...
    @property
    def model_bytes(self) -> int: ...

@final
class Translator:
    def __new__(
        cls,
        path: str | PathLike[str],
        *,
        isa: str | None,
        dtype: str | None,
        threads: int,
        sessions: int,
        options: dict[str, Any],
    ) -> Translator: ...
    def translate(
        self, texts: list[str], split: bool, stream: int, scores: bool, progress: _Progress
    ) -> _Translated: ...
    def generate(
        self,
        ids: _Rows,
        options: dict[str, Any] | None,
        prefixes: _Rows | None,
        streams: npt.NDArray[np.uint64] | None,
        scores: bool,
        skips_errors: bool,
        progress: _Progress,
    ) -> tuple[
        npt.NDArray[np.uint32],
        npt.NDArray[np.int64],
        npt.NDArray[np.float32],
        npt.NDArray[np.uint8],
        list[tuple[int, SimdformerError]],
        tuple[int, bool],
    ]: ...
    def translate_document(
        self, document: str | bytes | bytearray | PathLike[str], format: str | None
    ) -> tuple[str | bytes, _Translated]: ...
    def stream(self, text: str, stream: int) -> TokenStream: ...
    def score(
        self, sources: _Rows, targets: _Rows, progress: _Progress
    ) -> npt.NDArray[np.float32]: ...
    def align(
        self,
        source: list[int],
        target: list[int],
        layers: list[int] | None,
        heads: list[int] | None,
    ) -> npt.NDArray[np.float32]: ...
    def encode(self, texts: list[str], truncate: bool | None) -> tuple[_Rows, list[int]]: ...
    def encode_targets(self, texts: list[str]) -> _Rows: ...
    def decode(self, rows: _Rows) -> list[str]: ...
    def source_parts(self, text: str) -> tuple[list[int], list[str]]: ...
    def target_tokens(self, ids: list[int]) -> list[str]: ...
    def special_tokens(self) -> tuple[int | None, int | None, list[int]]: ...
    def model_fingerprint(self) -> str: ...
    def plans(self) -> list[tuple[int, str]]: ...
    def plan_for(self, sentences: int, source_tokens: int) -> tuple[int, str]: ...
    @property
    def isa(self) -> str: ...
    @property
    def threads(self) -> int: ...
    @property
    def model_bytes(self) -> int: ...
    def summary(self) -> str: ...

@final
class Model:
    def __new__(
        cls, path: str | PathLike[str], *, isa: str | None, dtype: str | None
    ) -> Model: ...
    @property
    def isa(self) -> str: ...
    @property
    def bytes(self) -> int: ...
    def fingerprint(self) -> str: ...
    def notes(self) -> list[str]: ...
    def summary(self) -> str: ...
    def tensors(self) -> list[tuple[str, list[int], str, int]]: ...
    def sizes(self) -> list[tuple[str, int | None]]: ...
    def end_tokens(self) -> list[int]: ...
    def encode(self, text: str) -> tuple[list[int], list[str]]: ...
    def decode(self, ids: list[int]) -> str: ...

@final
class Source:
    @property
    def slot(self) -> int: ...

@final
class Hypothesis:
    @property
    def slot(self) -> int: ...

_Traced = tuple[
    tuple[str, str, int | None, str | None, int | None],
    tuple[int, int | None, int],
    tuple[int, int, npt.NDArray[np.float32]],
]

@final
class Session:
    def __new__(
        cls,
        model: Model,
        limits: tuple[int, int, int, int, int | None],
        cache: str | None,
        threads: int,
    ) -> Session: ...
    def encode(self, rows: _Rows) -> list[Source]: ...
    def encoder_output(self, rows: _Rows) -> npt.NDArray[np.float32]: ...
    def start(self, source: Source) -> Hypothesis: ...
    def step(
        self, hypotheses: list[Hypothesis], tokens: list[int]
    ) -> npt.NDArray[np.float32]: ...
    def step_argmax(
        self, hypotheses: list[Hypothesis], tokens: list[int]
    ) -> npt.NDArray[np.uint32]: ...
    def prefill(
        self, hypothesis: Hypothesis, tokens: list[int], logits: bool
    ) -> npt.NDArray[np.float32]: ...
    def fork(self, hypothesis: Hypothesis) -> Hypothesis: ...
    def rewind(self, hypothesis: Hypothesis, length: int) -> None: ...
    def length(self, hypothesis: Hypothesis) -> int: ...
    def release(self, hypothesis: Hypothesis) -> None: ...
    def release_source(self, source: Source) -> None: ...
    def clear(self) -> None: ...
    @property
    def free_sources(self) -> int: ...
    def plan(self) -> tuple[int, str]: ...
    def begin_trace(self, stages: list[str]) -> None: ...
    def take_trace(self, last: bool) -> list[_Traced]: ...

def stages() -> list[str]: ...

_Prompt = tuple[str | None, str | None]
_F32 = npt.NDArray[np.float32]

@final
class Embedder:
    def __new__(
        cls,
        path: str | PathLike[str],
        *,
        isa: str | None,
        dtype: str | None,
        threads: int,
        truncate: bool,
        max_tokens: int | None,
        slots: int,
    ) -> Embedder: ...
    def embed(
        self,
        texts: list[str],
        normalize: bool,
        dim: int | None,
        prompt: _Prompt,
        precision: str,
        ranges: _F32 | None,
        progress: _Progress,
    ) -> tuple[npt.NDArray[Any], int, list[int]]: ...
    def count_tokens(self, texts: list[str], prompt: _Prompt) -> npt.NDArray[np.uint32]: ...
    @property
    def max_tokens(self) -> int | None: ...
    @property
    def width(self) -> int: ...
    @property
    def isa(self) -> str: ...
    @property
    def model_bytes(self) -> int: ...

@final
class Reranker:
    def __new__(
        cls,
        path: str | PathLike[str],
        *,
        isa: str | None,
        dtype: str | None,
        threads: int,
        truncate: bool,
        slots: int,
        prompt_name: str | None,
        prompt: str | None,
    ) -> Reranker: ...
    def score(self, query: str, texts: list[str], progress: _Progress) -> tuple[_F32, _F32, list[int]]: ...
    @property
    def activation(self) -> str: ...
    @property
    def isa(self) -> str: ...
    @property
    def model_bytes(self) -> int: ...

@final
class Batcher:
    def __new__(
        cls,
        path: str | PathLike[str],
        *,
        isa: str | None,
        dtype: str | None,
        threads: int,
        options: dict[str, Any],
    ) -> Batcher: ...
    def submit(
        self,
        number: int,
        text: str,
        *,
        source: str | None,
        target: str | None,
        stream: int,
        pieces: bool,
    ) -> None: ...
    def cancel(self, number: int) -> None: ...
    def replies(
        self,
    ) -> (
        list[tuple[int, str, str, SimdformerError | None, tuple[int, float, bool, list[str]] | None]]
        | None
    ): ...
    def unfinished(self) -> int: ...
    def close(self, wait: bool) -> None: ...
    def abandon(self) -> None: ...
