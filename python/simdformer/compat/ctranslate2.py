"""The names of CTranslate2's Python package over its own directories and models of the Hugging Face hub, without a conversion::

    from simdformer.compat import ctranslate2

    translator = ctranslate2.Translator("opus-mt-en-de", compute_type="int8")
    results = translator.translate_batch([["▁Hello", "▁world", "!", "</s>"]], beam_size=4)
    print(results[0].hypotheses[0])

Tokens are strings of the model's vocabulary, with the special tokens of the source, as CTranslate2 takes them from models
that were converted from transformers. The end token is removed from hypotheses, and a target prefix is part of them.
Scores are divided by the length to the power of `length_penalty`, where the length includes the end token and the prefix.

The search is that of transformers: greedy search gives the tokens of CTranslate2, beam search ends by other rules
(`early_stopping` of transformers), so that tokens may differ where the scores of hypotheses are close. `max_batch_size`,
`batch_type` and `max_queued_batches` change no result and are ignored: the decoder takes new sentences at each step. The tokens
of `generate_tokens` come after the whole sentence was decoded; `simdformer.Batcher.stream` writes text as it is decoded.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any


from ..errors import InputError, TokenError
from ..native_object import warn_of_cut_sources
from ..options import TranslatorOptions, thread_count
from ..ragged import Ragged
from ..translator import Translator as _Translator
from .supported import DTYPES, dtype_of, unsupported

__all__ = [
    "AsyncScoringResult",
    "AsyncTranslationResult",
    "ExecutionStats",
    "GenerationStepResult",
    "ScoringResult",
    "TranslationResult",
    "Translator",
    "contains_model",
    "get_supported_compute_types",
]

Tokens = Sequence[str]


@dataclass(frozen=True)
class TranslationResult:
    """The hypotheses of a source, best first."""

    hypotheses: list[list[str]]
    scores: list[float] = field(default_factory=list[float])
    """Empty unless ``return_scores`` is set."""
    attention: list[Any] = field(default_factory=list[Any])
    logits: list[Any] = field(default_factory=list[Any])

    def __len__(self) -> int:
        return len(self.hypotheses)

    def __getitem__(self, index: int) -> dict[str, Any]:
        found: dict[str, Any] = {"tokens": self.hypotheses[index]}
        if self.scores:
            found["score"] = self.scores[index]
        return found


@dataclass(frozen=True)
class ScoringResult:
    """The natural logarithm of the probability of each target token, the end token included."""

    tokens: list[str]
    log_probs: list[float]


@dataclass(frozen=True)
class GenerationStepResult:
    """A token of `Translator.generate_tokens`."""

    step: int
    batch_id: int
    token_id: int
    hypothesis_id: int
    token: str
    log_prob: float | None
    is_last: bool
    logits: None = None


@dataclass(frozen=True)
class ExecutionStats:
    """What `Translator.translate_file` did."""

    num_tokens: int
    num_examples: int
    total_time_in_ms: float


class _AsyncResult:
    """A result of a batch that is computed by another thread."""

    def __init__(self, batch: Future[list[Any]], index: int) -> None:
        self._batch, self._index = batch, index

    def result(self) -> Any:
        """Waits for the result, or raises what the computation raised."""
        return self._batch.result()[self._index]

    def done(self) -> bool:
        """Whether the result is there."""
        return self._batch.done()


class AsyncTranslationResult(_AsyncResult):
    """A `TranslationResult` that may still be computed."""


class AsyncScoringResult(_AsyncResult):
    """A `ScoringResult` that may still be computed."""


class Translator:
    """CTranslate2's ``Translator`` over one of its directories, or one of transformers.

    A directory needs no tokenizer: sources and targets are tokens.
    """

    def __init__(
        self,
        model_path: str | os.PathLike[str],
        device: str = "cpu",
        *,
        device_index: int | list[int] = 0,
        compute_type: str | dict[str, str] = "default",
        inter_threads: int = 1,
        intra_threads: int = 0,
        max_queued_batches: int = 0,
        flash_attention: bool = False,
        tensor_parallel: bool = False,
        files: object = None,
    ) -> None:
        del max_queued_batches
        if isinstance(compute_type, dict):
            compute_type = compute_type.get("cpu", "default")
        if device not in ("cpu", "auto"):
            unsupported("device", device)
        _only(
            {"device_index": device_index not in (0, [0]), "flash_attention": flash_attention}
            | {"tensor_parallel": tensor_parallel, "files": files is not None}
        )
        self.compute_type = "float32" if compute_type in ("default", "auto") else compute_type
        self.device = "cpu"
        self.device_index = [0]
        self.num_translators = inter_threads
        self.tensor_parallel = False
        threads, dtype = thread_count(intra_threads or None), dtype_of(compute_type)
        self._translator = _Translator(model_path, threads=threads, dtype=dtype)
        self._workers = ThreadPoolExecutor(inter_threads, thread_name_prefix="simdformer-ctranslate2")
        self._pending: set[Future[Any]] = set()
        folder = Path(self._translator.path)
        file = folder / "config.json"
        config = json.loads(file.read_text("utf-8")) if file.is_file() else {}
        source, target = _vocabularies(folder)
        begin, end, ends = self._translator._open().special_tokens()
        # What is added to every source.
        self._around = ([] if begin is None else [begin], [] if end is None else [end])
        if target is None:
            size = max(config.get("decoder_vocab_size") or 0, config["vocab_size"])
            target = self._translator.tokens(range(size))
            unknown = "<unk>"
        else:
            # The settings of CTranslate2 are tokens.
            unknown = config.get("unk_token") or "<unk>"
        self._tokens = target
        self._ids = _first_ids(target)
        self._source_ids = self._ids if source is None else _first_ids(source)
        self._unknowns = (self._source_ids.get(unknown), self._ids.get(unknown))
        self._ends = {*ends}

    def translate_batch(
        self,
        source: list[list[str]],
        target_prefix: list[list[str] | None] | None = None,
        *,
        max_batch_size: int = 0,
        batch_type: str = "examples",
        asynchronous: bool = False,
        beam_size: int = 2,
        patience: float = 1,
        num_hypotheses: int = 1,
        length_penalty: float = 1,
        coverage_penalty: float = 0,
        repetition_penalty: float = 1,
        no_repeat_ngram_size: int = 0,
        disable_unk: bool = False,
        suppress_sequences: list[list[str]] | None = None,
        end_token: object = None,
        return_end_token: bool = False,
        prefix_bias_beta: float = 0,
        max_input_length: int = 1024,
        max_decoding_length: int = 256,
        min_decoding_length: int = 1,
        use_vmap: bool = False,
        return_scores: bool = False,
        return_logits_vocab: bool = False,
        return_attention: bool = False,
        return_alternatives: bool = False,
        min_alternative_expansion_prob: float = 0,
        sampling_topk: int = 1,
        sampling_topp: float = 1,
        sampling_temperature: float = 1,
        replace_unknowns: bool = False,
        callback: Callable[[GenerationStepResult], bool] | None = None,
    ) -> Any:
        """A `TranslationResult` for each source, or an `AsyncTranslationResult` with `asynchronous`."""
        del max_batch_size, min_alternative_expansion_prob
        if batch_type not in ("examples", "tokens"):
            raise ValueError(f"batch_type: expected 'examples' or 'tokens', found {batch_type!r}")
        _only(
            {
                "patience": patience != 1,
                "coverage_penalty": coverage_penalty != 0,
                "disable_unk": disable_unk,
                "suppress_sequences": bool(suppress_sequences),
                "end_token": end_token is not None,
                "prefix_bias_beta": prefix_bias_beta != 0,
                "use_vmap": use_vmap,
                "return_logits_vocab": return_logits_vocab,
                "return_attention": return_attention,
                "return_alternatives": return_alternatives,
                "replace_unknowns": replace_unknowns,
                "callback": callback is not None,
            }
        )
        samples = sampling_topk != 1
        if samples and beam_size != 1:
            unsupported("sampling_topk with beam_size", beam_size)
        if not samples and num_hypotheses > max(beam_size, 1):
            raise ValueError("The number of hypotheses can not be greater than the beam size")
        if min_decoding_length > max_decoding_length:
            raise ValueError("The minimum decoding length is greater than the maximum decoding length")
        options = TranslatorOptions(
            beams=beam_size,
            num_return=num_hypotheses,
            length_penalty=length_penalty if beam_size > 1 else None,
            early_stopping=True if beam_size > 1 else None,
            repetition_penalty=repetition_penalty,
            no_repeat_ngram_size=no_repeat_ngram_size,
            forced_eos=False,
            sample=samples,
            top_k=max(sampling_topk, 0) if samples else None,
            top_p=sampling_topp if samples else None,
            temperature=sampling_temperature if samples else None,
        )
        sources = self._sources(source, max_input_length)
        prefixes = [list(prefix or []) for prefix in target_prefix or [[] for _ in source]]
        if len(prefixes) != len(source):
            raise ValueError("Batch size mismatch between source and target_prefix")

        def work() -> list[TranslationResult]:
            # The lengths of CTranslate2 include the prefix, those of the options do not.
            results: dict[int, TranslationResult] = {}
            for length in {len(prefix) for prefix in prefixes}:
                group = [index for index, prefix in enumerate(prefixes) if len(prefix) == length]
                given = [prefixes[index] for index in group]
                if length >= max_decoding_length:
                    scores = [0.0] if return_scores else []
                    found = [TranslationResult([row[:max_decoding_length]], scores[:]) for row in given]
                else:
                    found = self._translate(
                        [sources[index] for index in group],
                        given,
                        replace(
                            options,
                            max_new_tokens=max_decoding_length - length,
                            min_new_tokens=max(min_decoding_length - length, 0),
                        ),
                        length_penalty,
                        return_scores,
                        return_end_token,
                    )
                results.update(zip(group, found, strict=True))
            return [results[index] for index in range(len(source))]

        if asynchronous:
            return self._submit(work, AsyncTranslationResult, len(source))
        return work()

    def _translate(
        self,
        sources: list[list[int]],
        prefixes: list[list[str]],
        options: TranslatorOptions,
        length_penalty: float,
        with_scores: bool,
        with_end: bool,
    ) -> list[TranslationResult]:
        given = [self._row(prefix) for prefix in prefixes]
        found = self._translator.generate(
            Ragged.from_rows(sources),
            prefix=Ragged.from_rows(given) if any(given) else None,
            scores=with_scores,
            options=options,
        )
        beams = (options.beams or 1) > 1
        results: list[TranslationResult] = []
        count = found.num_return
        scores = None if found.scores is None else found.scores.reshape(-1, count)
        for index, prefix in enumerate(prefixes):
            hypotheses: list[list[str]] = []
            values: list[float] = []
            for rank in range(count):
                ids = found.tokens[index * count + rank].tolist()
                if not ids:
                    # The search found fewer hypotheses.
                    continue
                kept = ids if with_end else [id for id in ids if id not in self._ends]
                hypotheses.append(prefix + [self._tokens[id] for id in kept])
                if scores is not None:
                    # Beams have divided by the length without the prefix.
                    score = float(scores[index, rank]) * (len(ids) ** length_penalty if beams else 1)
                    values.append(score / (len(prefix) + len(ids)) ** length_penalty)
            results.append(TranslationResult(hypotheses, values if with_scores else []))
        return results

    def score_batch(
        self,
        source: list[list[str]],
        target: list[list[str]],
        *,
        max_batch_size: int = 0,
        batch_type: str = "examples",
        max_input_length: int = 1024,
        offset: int = 0,
        asynchronous: bool = False,
    ) -> Any:
        """A `ScoringResult` for each pair: the target followed by the end token."""
        del max_batch_size, batch_type
        if len(source) != len(target):
            raise ValueError("Batch size mismatch between source and target")
        sources = self._sources(source, max_input_length)
        end = next(iter(self._ends))
        targets = [[*self._row(row), end] for row in target]

        def work() -> list[ScoringResult]:
            found = self._translator.score(Ragged.from_rows(sources), Ragged.from_rows(targets))
            rows = [*itertools.pairwise(found.offsets.tolist())]
            return [
                ScoringResult(
                    [self._tokens[id] for id in ids[offset:]],
                    found.tokens[first + offset : last].tolist(),
                )
                for ids, (first, last) in zip(targets, rows, strict=True)
            ]

        if asynchronous:
            return self._submit(work, AsyncScoringResult, len(source))
        return work()

    def translate_iterable(
        self,
        source: Iterable[list[str]],
        target_prefix: Iterable[list[str]] | None = None,
        max_batch_size: int = 32,
        batch_type: str = "examples",
        **kwargs: Any,
    ) -> Iterator[TranslationResult]:
        """The results of any number of sources, in order, in constant memory."""
        # As many prefixes as sources, or a source would be lost.
        pairs: Iterator[tuple[list[str], Any]]
        if target_prefix is None:
            pairs = ((one, None) for one in source)
        else:
            pairs = zip(source, target_prefix, strict=True)
        while window := list(itertools.islice(pairs, 32 * max(max_batch_size, 1))):
            sources = [one for one, _ in window]
            given = None if target_prefix is None else [prefix for _, prefix in window]
            yield from self.translate_batch(sources, given, batch_type=batch_type, **kwargs)

    def score_iterable(
        self,
        source: Iterable[list[str]],
        target: Iterable[list[str]],
        max_batch_size: int = 64,
        batch_type: str = "examples",
        **kwargs: Any,
    ) -> Iterator[ScoringResult]:
        """The scores of any number of pairs, in order, in constant memory."""
        pairs = zip(source, target, strict=True)
        while window := list(itertools.islice(pairs, 32 * max(max_batch_size, 1))):
            sources, targets = [list(column) for column in zip(*window, strict=True)]
            yield from self.score_batch(sources, targets, batch_type=batch_type, **kwargs)

    def generate_tokens(
        self,
        source: list[str],
        target_prefix: list[str] | None = None,
        *,
        return_log_prob: bool = False,
        **kwargs: Any,
    ) -> Iterator[GenerationStepResult]:
        """The tokens of one source, with the end token."""
        prefix = list(target_prefix or [])
        kwargs = {"beam_size": 1, "return_end_token": True} | kwargs
        tokens = self.translate_batch([source], [prefix], **kwargs)[0].hypotheses[0]
        scores: list[float] | None = None
        if return_log_prob:
            whole = tokens[:-1] if self._ids[tokens[-1]] in self._ends else tokens
            scores = self.score_batch([source], [whole])[0].log_probs
        for step in range(len(prefix), len(tokens)):
            token = tokens[step]
            yield GenerationStepResult(
                step=step,
                batch_id=0,
                token_id=self._ids[token],
                hypothesis_id=0,
                token=token,
                log_prob=None if scores is None else scores[step],
                is_last=step + 1 == len(tokens),
            )

    def translate_file(
        self,
        source_path: str | os.PathLike[str],
        output_path: str | os.PathLike[str],
        target_path: str | os.PathLike[str] | None = None,
        *,
        max_batch_size: int = 32,
        read_batch_size: int = 0,
        with_scores: bool = False,
        source_tokenize_fn: Callable[[str], list[str]] | None = None,
        target_tokenize_fn: Callable[[str], list[str]] | None = None,
        target_detokenize_fn: Callable[[list[str]], str] | None = None,
        **kwargs: Any,
    ) -> ExecutionStats:
        """Translates a file of one sentence for each line: tokens between spaces, or texts with the functions."""
        del read_batch_size, target_tokenize_fn
        _only({"target_path": target_path is not None})
        if os.path.exists(output_path) and os.path.samefile(source_path, output_path):
            raise InputError(
                f"output_path: expected another file than the source, found {os.fspath(output_path)!r}",
                argument="output_path",
                expected="another file than the source",
                found=os.fspath(output_path),
            )
        begin = time.monotonic()
        tokens = examples = 0
        split = source_tokenize_fn or str.split
        join = target_detokenize_fn or " ".join
        with open(source_path, encoding="utf-8") as lines, open(output_path, "w", encoding="utf-8") as out:
            rows = (split(line.rstrip("\n")) for line in lines)
            for result in self.translate_iterable(
                rows, max_batch_size=max_batch_size, return_scores=with_scores, **kwargs
            ):
                examples += 1
                for rank, hypothesis in enumerate(result.hypotheses):
                    tokens += len(hypothesis)
                    start = f"{result.scores[rank]} ||| " if with_scores else ""
                    out.write(start + join(hypothesis) + "\n")
        return ExecutionStats(tokens, examples, 1000 * (time.monotonic() - begin))

    @property
    def model_is_loaded(self) -> bool:
        """True: the weights stay in memory until the object ends."""
        return True

    @property
    def num_queued_batches(self) -> int:
        """The asynchronous batches that are not done."""
        return len(self._pending)

    num_active_batches = num_queued_batches

    def unload_model(self, to_cpu: bool = False) -> None:
        """Does nothing. Objects of the same model share its weights, and the last one frees them."""

    def load_model(self, keep_cache: bool = False) -> None:
        """Does nothing: see `unload_model`."""

    def _sources(self, source: list[list[str]], longest: int) -> list[list[int]]:
        """The ids of the sources, of which the first `longest` remain. An end token at the end stays."""
        begin, end_tokens = self._around
        rows = [[*begin, *self._row(row, source=True), *end_tokens] for row in source]
        cut = [index for index, row in enumerate(rows) if 0 < longest < len(row)]
        for index in cut:
            row = rows[index]
            end = row[-1:] if row[-1] in self._ends else []
            row[longest - len(end) :] = end
        warn_of_cut_sources(cut, len(rows), "source", longest)
        return rows

    def _checked(self, tokens: Tokens) -> Tokens:
        if isinstance(tokens, str):
            raise TypeError("expected a list of tokens, found a string")
        return tokens

    def _row(self, tokens: Tokens, source: bool = False) -> list[int]:
        return [self._id(token, source) for token in self._checked(tokens)]

    def _id(self, token: str, source: bool) -> int:
        ids = self._source_ids if source else self._ids
        found = ids.get(token, self._unknowns[0 if source else 1])
        if found is None:
            raise TokenError(f"expected a token of the vocabulary, found {token!r}", found=token)
        return found

    def _submit(self, work: Callable[[], list[Any]], kind: type[Any], count: int) -> list[Any]:
        batch = self._workers.submit(work)
        self._pending.add(batch)
        batch.add_done_callback(self._pending.discard)
        return [kind(batch, index) for index in range(count)]


def _first_ids(tokens: Sequence[str]) -> dict[str, int]:
    """The ids of tokens; the first of equal ones."""
    return {token: index for index, token in reversed([*enumerate(tokens)]) if token}


def _vocabularies(folder: Path) -> tuple[list[str] | None, list[str] | None]:
    """The vocabularies of source and target in a directory of CTranslate2."""
    found: dict[str, list[str]] = {}
    for name in ("shared", "source", "target"):
        stem = folder / f"{name}_vocabulary"
        if (file := stem.with_suffix(".json")).is_file():
            found[name] = json.loads(file.read_text("utf-8"))
        elif (file := stem.with_suffix(".txt")).is_file():
            lines = file.read_bytes().decode("utf-8").removesuffix("\n").split("\n")
            # A carriage return belongs to a token, unless each line has one.
            windows = all(line.endswith("\r") for line in lines)
            found[name] = [line[:-1] for line in lines] if windows else lines
    return found.get("shared", found.get("source")), found.get("shared", found.get("target"))


def _only(used: dict[str, bool]) -> None:
    """An error that names the options that are used and not supported."""
    names = [name for name, is_used in used.items() if is_used]
    if names:
        raise NotImplementedError(f"{', '.join(names)}: not supported")


def contains_model(path: str | os.PathLike[str]) -> bool:
    """Whether a directory has a model that can be loaded."""
    folder = Path(path)
    if (folder / "model.bin").is_file():
        return True
    return (folder / "config.json").is_file() and any(
        [*folder.glob("*.safetensors"), *folder.glob("pytorch_model*.bin")]
    )


def get_supported_compute_types(device: str, device_index: int = 0) -> set[str]:
    """The values of `compute_type` beside ``default`` and ``auto``."""
    if device != "cpu":
        unsupported("device", device)
    return {name for name, dtype in DTYPES.items() if dtype is not None}


