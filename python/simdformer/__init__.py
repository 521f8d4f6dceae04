"""Encoder-decoder Transformers on CPUs: translation, embedding, transcription; the same bits every time.

>>> import simdformer
>>> with simdformer.Translator(demo_model) as translator:
...     translator.translate("je suis étudiant")
'i am a student'

Names are imported when they are first used: ``import simdformer`` imports neither numpy nor the native module.
"""

from __future__ import annotations

from .errors import (
    AudioError,
    AudioNotFoundError,
    BusyError,
    CancelledError,
    CheckpointError,
    ClosedError,
    CutWarning,
    DocumentError,
    ForkError,
    HandleError,
    InputError,
    InputTypeError,
    InternalError,
    IsaError,
    LanguageError,
    LimitError,
    MemoryPlanError,
    MissingPackageError,
    ModelNotFoundError,
    NotFiniteError,
    OptionError,
    OptionTypeError,
    SimdformerError,
    TokenError,
)

# What is imported below is imported by type checkers alone; `typing` too, which takes longer than this package.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._simdformer import __version__, available_isas, default_isa
    from ._simdformer import available_isas, default_isa
    from .batcher import Batcher, TranslationFuture
    from .embedder import Embedder
    from .generated import (
        Alignment,
        Finish,
        Generated,
        Plan,
        Scores,
        TextStream,
        Translated,
        TranslatedDocument,
    )
    from .model import Model, Tensor
    from .options import TranscriberOptions, TranslatorOptions
    from .ragged import Ragged
    from .reranker import Ranked, Reranker
    from .session import Hypothesis, Limits, Session, Source, Trace, View, stages
    from .transcriber import Segment, SegmentStream, Transcriber, Transcription, Word
    from .translator import Translator
    from typing import Any

# The module of each name that is imported at its first use.
_MODULES = {
    "Alignment": "generated",
    "Batcher": "batcher",
    "Embedder": "embedder",
    "Finish": "generated",
    "Generated": "generated",
    "Hypothesis": "session",
    "Limits": "session",
    "Model": "model",
    "Plan": "generated",
    "Ragged": "ragged",
    "Ranked": "reranker",
    "Reranker": "reranker",
    "Scores": "generated",
    "Segment": "transcriber",
    "SegmentStream": "transcriber",
    "Session": "session",
    "Source": "session",
    "Tensor": "model",
    "TextStream": "generated",
    "Trace": "session",
    "Transcriber": "transcriber",
    "TranscriberOptions": "options",
    "Transcription": "transcriber",
    "Translated": "generated",
    "TranslationFuture": "batcher",
    "TranslatedDocument": "generated",
    "Translator": "translator",
    "TranslatorOptions": "options",
    "View": "session",
    "Word": "transcriber",
    "__version__": "_simdformer",
    "available_isas": "_simdformer",
    "default_isa": "_simdformer",
    "stages": "session",
}

__all__ = [
    "Alignment",
    "AudioError",
    "AudioNotFoundError",
    "Batcher",
    "BusyError",
    "CancelledError",
    "CheckpointError",
    "ClosedError",
    "CutWarning",
    "DocumentError",
    "Embedder",
    "Finish",
    "ForkError",
    "Generated",
    "HandleError",
    "Hypothesis",
    "InputError",
    "InputTypeError",
    "InternalError",
    "IsaError",
    "LanguageError",
    "LimitError",
    "Limits",
    "MemoryPlanError",
    "MissingPackageError",
    "Model",
    "ModelNotFoundError",
    "NotFiniteError",
    "OptionError",
    "OptionTypeError",
    "Plan",
    "Ragged",
    "Ranked",
    "Reranker",
    "Scores",
    "Segment",
    "SegmentStream",
    "Session",
    "SimdformerError",
    "Source",
    "Tensor",
    "TextStream",
    "TokenError",
    "Trace",
    "Transcriber",
    "TranscriberOptions",
    "Transcription",
    "Translated",
    "TranslatedDocument",
    "TranslationFuture",
    "Translator",
    "TranslatorOptions",
    "View",
    "Word",
    "__version__",
    "available_isas",
    "default_isa",
    "stages",
]


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
