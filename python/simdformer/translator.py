"""`Translator`: text in, text out."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Literal, overload

import numpy as np
import numpy.typing as npt

from . import _simdformer
from .errors import InputError, InputTypeError, OptionError, SimdformerError
from .fingerprint import fingerprint
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
from .model_path import model_path
from .native_object import (
    ModelObject,
    string,
    strings,
    text_iterator,
    text_or_texts,
    warn_of_cut,
    warn_of_cut_sources,
)
from .options import TranslatorOptions, session_count, thread_count
from .progress import Progress, progress_bar
from .ragged import Ids, Offsets, Ragged, rows_of, token_ids


class Translator(ModelObject[_simdformer.Translator]):
    """Translates, summarizes or rewrites texts with an encoder-decoder model.

    `model` is a directory with a checkpoint, a package of Argos Translate (``.argosmodel``), or the name of a model of the
    Hugging Face hub. `threads` is the number of
    threads of a call (`thread_count`), and `sessions` how many planned sessions share the sentences of a call, each on one
    thread (`threads`); fewer take less memory. `isa` names an instruction set, and an `IsaError` is raised if this machine
    lacks it; `dtype` is one of ``f32, bf16, f16, int8, int8x16``. Further keywords are those of `TranslatorOptions`.

    A translator can be shared by threads, pickled (its path and options are), used after a fork, and closed by
    ``with``. Its results depend on the text, the model and the options alone: not on the other texts of a call, nor
    on `threads`.

    >>> translator = Translator(demo_model)
    >>> translator.translate("je suis étudiant")
    'i am a student'
    >>> translator.translate(["je suis étudiant", "il fait froid"])
    ['i am a student', 'it is cold']
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        threads: int | None = None,
        sessions: int | None = None,
        isa: str | None = None,
        dtype: str | None = None,
        options: TranslatorOptions | None = None,
        **changes: Any,
    ) -> None:
        values = {} if options is None else options.to_dict()
        self._options = TranslatorOptions(**{**values, **changes})
        self._path = model_path(model)
        self._threads = thread_count(threads)
        self._sessions = self._threads if sessions is None else session_count(sessions)
        self._isa, self._dtype = isa, dtype
        self._fingerprint: str | None = None
        self._native = _simdformer.Translator(
            self._path,
            isa=isa,
            dtype=dtype,
            threads=self._threads,
            sessions=self._sessions,
            options=self._options.to_dict(),
        )

    @overload
    def translate(  # type: ignore[overload-overlap]  # a str is a Sequence[str], too
        self,
        texts: str,
        *,
        split: bool = True,
        stream: int = 0,
        errors: Literal["raise"] = "raise",
        scores: Literal[False] = False,
        progress: Progress = False,
    ) -> str: ...
    @overload
    def translate(
        self,
        texts: Sequence[str],
        *,
        split: bool = True,
        stream: int = 0,
        errors: Literal["raise"] = "raise",
        scores: Literal[False] = False,
        progress: Progress = False,
    ) -> list[str]: ...
    @overload
    def translate(
        self,
        texts: str | Sequence[str],
        *,
        split: bool = True,
        stream: int = 0,
        errors: Literal["raise", "column"] = "raise",
        scores: bool = False,
        progress: Progress = False,
    ) -> Translated: ...
    def translate(
        self,
        texts: str | Sequence[str],
        *,
        split: bool = True,
        stream: int = 0,
        errors: Literal["raise", "column"] = "raise",
        scores: bool = False,
        progress: Progress = False,
    ) -> str | list[str] | Translated:
        """The translation of a text, or of each text of a list, in order.

        A text is divided into sentences, and what stands between them is kept. With ``split=False`` each text is one
        sentence, whatever is in it. A sentence without a letter, or without a word that the model knows, is copied. With sampling, sentence ``i`` of the call draws
        from random stream ``stream + i``. `progress` counts sentences.

        A sentence that cannot be translated raises a `LimitError` (it is too long), a `TokenError` (the model does not have
        a token of it) or a `NotFiniteError` (its scores are NaN), with the `index` of its text. With ``errors="column"``
        the result is a `Translated`: the other texts, and the reasons of these. With ``scores=True`` the result is a
        `Translated`, too, with the scores. It has why each text ended, and in `notes` the words that the model does not know;
        without it a `CutWarning` says that a translation reached the maximum length.

        >>> found = translator.translate(["il fait froid", "je " * 130], split=False, errors="column")
        >>> found.texts, found.errors[1].reason
        (['it is cold', None], '131 tokens, the model takes 128')
        """
        found = self._translated(texts, split, stream, scores, progress)
        if _skips(errors) or scores:
            if not _skips(errors):
                _raise_first(found.errors)
            return found
        _raise_first(found.errors)
        _warn(found.finish, found.truncated)
        # Without an error each has a translation.
        whole = [text for text in found.texts if text is not None]
        return whole[0] if isinstance(texts, str) else whole

    def _translated(
        self, texts: object, split: bool, stream: int, scores: bool, progress: Progress
    ) -> Translated:
        native, rows = self._open(), text_or_texts(texts, "texts")
        with progress_bar(progress, None, "sentences") as bar:
            found, failed, finish, values, truncated, notes = native.translate(
                rows, split, stream, scores, bar
            )
        errors: list[SimdformerError | None] = [None] * len(found)
        translations: list[str | None] = [*found]
        for index, error in failed:
            errors[index], translations[index], values[index] = error, None, np.nan
        return Translated(translations, errors, finish, truncated, values if scores else None, notes)

    def generate(
        self,
        ids: Any,
        offsets: npt.ArrayLike | None = None,
        *,
        beams: int | None = None,
        num_return: int | None = None,
        max_new_tokens: int | None = None,
        scores: bool = False,
        prefix: Any = None,
        target_lang: str | None = None,
        seed: int | None = None,
        streams: npt.ArrayLike | None = None,
        errors: Literal["raise", "column"] = "raise",
        out: Ragged | None = None,
        options: TranslatorOptions | None = None,
        progress: Progress = False,
    ) -> Generated:
        """Ids in, ids out, without strings: rows of source ids, each with its end token.

        `ids` and `offsets` are uint32, ``[tokens]``, and int64, ``[rows + 1]``: row ``i`` is
        ``ids[offsets[i]:offsets[i + 1]]``. Without `offsets`, `ids` is a `Ragged`, a list column of Arrow, or a list
        of rows.

        `prefix` holds target ids that must come first, one row for each source. `streams` is the random stream of
        each source, its index if it is None: with the id of a row, samples do not depend on the batch. `options`
        replaces further options of the translator for this call; the keywords come first.

        With ``errors="column"`` a source that the model refuses is reported in `Generated.errors`, and the others are
        run; with ``errors="raise"`` the first one is raised before anything is run. `out` receives the ids and the
        offsets, and its arrays are those of the result; they must be large enough.

        >>> found = translator.generate([[6, 11, 0], [8, 0]], scores=True)
        >>> len(found.tokens), found.scores.dtype
        (2, dtype('float32'))
        """
        native = self._open()
        changes = None
        if (
            beams is not None
            or num_return is not None
            or max_new_tokens is not None
            or seed is not None
            or target_lang is not None
            or options is not None
        ):
            changes = {} if options is None else options.to_dict()
            keywords = {
                "beams": beams,
                "num_return": num_return,
                "max_new_tokens": max_new_tokens,
                "seed": seed,
                "target_lang": target_lang,
            }
            changes.update((name, value) for name, value in keywords.items() if value is not None)
        skips = _skips(errors)
        rows = rows_of(ids, offsets, "ids")
        prefixes = None if prefix is None else rows_of(prefix, None, "prefix")
        numbers = None if streams is None else _streams(streams)
        if progress is False:
            found = native.generate(rows, changes, prefixes, numbers, scores, skips, None)
        else:
            with progress_bar(progress, len(rows[1]) - 1, "rows") as bar:
                found = native.generate(rows, changes, prefixes, numbers, scores, skips, bar)
        tokens, ends, values, finish, refused, (sequences, scored) = found
        column: list[SimdformerError | None] = []
        if skips:
            column = [None] * len(finish)
            for index, error in refused:
                column[index] = error
        shaped = values if sequences == 1 else values.reshape(-1, sequences)
        result = Ragged.of_checked(tokens, ends) if out is None else _fill(out, tokens, ends)
        return Generated(result, shaped if scored else None, finish, column, sequences)

    def translate_iter(
        self,
        texts: Iterable[str],
        *,
        window: int = 1024,
        split: bool = True,
        stream: int = 0,
        errors: Literal["raise", "column"] = "raise",
    ) -> Iterator[Any]:
        """The translations of an iterable, in order, in constant memory.

        Reads `window` texts, translates them, gives them out, and only then reads on. Results do not depend on `window`;
        with sampling that is so with ``split=False``, where text ``i`` draws from random stream ``stream + i``.

        A text that cannot be translated raises its error after the texts before it, and `index` counts from the first text
        of the iterable; with ``errors="column"`` the error is given out in the place of the translation.

        >>> list(translator.translate_iter(iter(["je suis étudiant", "il fait froid"])))
        ['i am a student', 'it is cold']
        """
        if window < 1:
            raise OptionError(
                f"window: expected at least 1, found {window}",
                option="window",
                expected="at least 1",
                found=window,
            )
        skips = _skips(errors)
        return self._windows(text_iterator(texts, "texts"), window, split, stream, skips)

    def _windows(
        self, texts: Iterator[str], window: int, split: bool, stream: int, skips: bool
    ) -> Iterator[Any]:
        first = 0
        while batch := list(islice(texts, window)):
            found = self._translated(batch, split, stream + first, False, False)
            _warn(found.finish, found.truncated)
            for text, error in zip(found.texts, found.errors, strict=True):
                if error is not None and error.index is not None:
                    error.index += first
                if error is not None and not skips:
                    raise error
                yield text if error is None else error
            first += len(batch)

    @overload
    def translate_document(
        self, document: str, format: str | None = None, *, errors: Literal["raise"] = "raise"
    ) -> str: ...
    @overload
    def translate_document(
        self,
        document: bytes | bytearray | os.PathLike[str],
        format: str | None = None,
        *,
        errors: Literal["raise"] = "raise",
    ) -> bytes: ...
    @overload
    def translate_document(
        self,
        document: str | bytes | bytearray | os.PathLike[str],
        format: str | None = None,
        *,
        errors: Literal["column"],
    ) -> TranslatedDocument: ...
    def translate_document(
        self,
        document: str | bytes | bytearray | os.PathLike[str],
        format: str | None = None,
        *,
        errors: Literal["raise", "column"] = "raise",
    ) -> str | bytes | TranslatedDocument:
        """The translation of a document, with its structure: ``text, markdown, html, srt, vtt, json, po, tmx`` or ``xliff``,
        and of bytes and files also ``docx, pptx, xlsx, odt, odp, ods`` or ``epub``.

        A string is the text of a document, and its translation is a string. Bytes, and the file of a path, have a translation
        of bytes. Without a `format` a string is ``text``, and the name of a file decides; bytes need one.

        A sentence that cannot be translated raises an error as in `translate`; its `index` is that of the paragraph. With
        ``errors="column"`` the result is a `TranslatedDocument`, in which such sentences are copied and listed.

        >>> translator.translate_document("# il fait froid\\n\\n- je suis *étudiant*\\n", "markdown")
        '# it is cold\\n\\n- i am *a student*\\n'
        """
        skips = _skips(errors)
        native = self._open()
        if not isinstance(document, (bytes, bytearray, os.PathLike)):
            document = string(document, "document", "a string, bytes or a path")
        found, (_, failed, finish, _, truncated, notes) = native.translate_document(
            document, format
        )
        if skips:
            worst = Finish(max(finish.tolist(), key=_SEVERITY.index, default=Finish.END))
            said = [note for paragraph in notes for note in paragraph]
            return TranslatedDocument(found, [error for _, error in failed], worst, said)
        for _, error in failed:
            raise error
        _warn(finish, truncated)
        return found

    def stream(self, text: str, *, stream: int = 0) -> TextStream:
        """The parts of the translation of one sentence, while the model writes them. Together they are the translation.

        Beam search decides its text at the end, and gives it out then. So is a sentence with symbols that are copied, or in
        capitals; one without a word that the model knows is given out as it is. To close the iterator, or to leave it to the garbage
        collector, ends the translation. A sentence that cannot be translated raises an error, at the begin or where its
        scores become NaN; at the end a `CutWarning` says that the maximum length was reached, and `TextStream.finish` why it
        ended.

        >>> for part in translator.stream("je suis étudiant"):
        ...     print(repr(part))
        'i'
        ' am'
        ' a'
        ' student'
        """
        found = TextStream(self._open().stream(string(text, "text"), stream))
        if found.truncated:
            warn_of_cut_sources([0], 1, "text")
        return found

    def score(
        self,
        sources: Any,
        targets: Any,
        *,
        progress: Progress = False,
    ) -> Scores:
        """The log-probability of each target given its source: one pass of the model, without a search.

        Both are lists of texts, or both rows of ids in any form of `generate`. A text is tokenized as by `encode`; its
        target ends with the end token. Scores that are NaN or infinite raise a `NotFiniteError`.

        >>> scores = translator.score(["je suis étudiant"] * 2, ["i am a student", "it is cold"])
        >>> bool(scores.totals[0] > scores.totals[1])
        True
        """
        native = self._open()
        source, target = self._rows(sources, "sources"), self._rows(targets, "targets", target=True)
        with progress_bar(progress, len(source[1]) - 1, "rows") as bar:
            tokens = native.score(source, target, bar)
        return Scores(tokens, target[1])

    def align(
        self,
        source: str | Sequence[int],
        target: str | Sequence[int],
        *,
        layers: Sequence[int] | None = None,
        heads: Sequence[int] | None = None,
    ) -> Alignment:
        """Which source tokens the model attends to as it writes each target token.

        The weights are the mean of the cross-attention of `heads` (all) in `layers` (those after the middle but the
        last, Garg et al. 2019).

        >>> alignment = translator.align("je suis étudiant", "i am a student")
        >>> alignment.weights.shape == (len(alignment.target), len(alignment.source))
        True
        >>> alignment.target[3], alignment.source[int(alignment.weights[3].argmax())]
        ('▁student', 'étudiant')
        """
        native = self._open()
        if isinstance(source, str):
            source_ids, source_tokens = native.source_parts(string(source, "source"))
        else:
            source_ids = token_ids(source, "source").tolist()
            source_tokens = native.target_tokens(source_ids)
        if isinstance(target, str):
            target_ids = native.encode_targets([string(target, "target")])[0].tolist()
        else:
            target_ids = token_ids(target, "target").tolist()
        weights = native.align(
            source_ids,
            target_ids,
            None if layers is None else list(layers),
            None if heads is None else list(heads),
        )
        shaped = weights.reshape(len(target_ids), len(source_ids))
        return Alignment(shaped, source_tokens, native.target_tokens(target_ids))

    def encode(self, texts: Sequence[str], *, truncate: bool | None = None) -> Ragged:
        """The source ids of texts, one row each, with special tokens: the input of `generate`.

        A text with more tokens than the model takes is a `LimitError`; with `truncate` (that of the options if it is None)
        its first tokens are given, and a `CutWarning` says so. What a special token is written with, such as ``</s>``, is
        text.

        >>> translator.encode(["il fait froid"])
        Ragged(1 rows, 4 ids)
        """
        rows = strings(texts, "texts")
        found, cut = self._open().encode(rows, truncate)
        warn_of_cut_sources(cut, len(rows), "texts")
        return Ragged.of_checked(*found)

    def decode(self, rows: Any) -> list[str]:
        """The texts of rows of target ids, in any form of `generate`. Special tokens have no text.

        >>> translator.decode(translator.generate(translator.encode(["il fait froid"])).tokens)
        ['it is cold']
        """
        return self._open().decode(rows_of(rows, None, "rows"))

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """How the vocabulary of the target writes each id.

        >>> translator.tokens([945, 0])
        ['▁i', '</s>']
        """
        return self._open().target_tokens(token_ids([*ids], "ids").tolist())

    @property
    def plan(self) -> list[Plan]:
        """The planned memory of this translator: one plan for each call that ran at the same time. Empty before the first
        call, and for calls that are running."""
        return [Plan(*plan) for plan in self._open().plans()]

    def plan_for(self, sentences: int, source_tokens: int) -> Plan:
        """The plan of a session for so many sentences at a time, each of at most `source_tokens` tokens. Nothing is
        allocated.

        >>> translator.plan_for(32, 64).bytes > translator.plan_for(1, 64).bytes
        True
        """
        return Plan(*self._open().plan_for(sentences, source_tokens))

    @property
    def model_bytes(self) -> int:
        """Bytes of the weights, which all translators of a process with this model share."""
        return self._open().model_bytes

    @property
    def fingerprint(self) -> str:
        """64 hexadecimal digits that identify what decides a result: the weights and their dtypes, the tokenizer and the
        options. Equal fingerprints and equal rows give equal bytes, on any machine, instruction set and number of
        threads. The first call reads the weights, about a gigabyte in a second.
        """
        if self._fingerprint is None:
            model = self._open().model_fingerprint()
            decisive = {key: value for key, value in self._options.to_dict().items() if key != "slots"}
            self._fingerprint = fingerprint(model, self._path, decisive)
        return self._fingerprint

    @property
    def options(self) -> TranslatorOptions:
        """The options that were given."""
        return self._options

    @property
    def sessions(self) -> int:
        """The number of sessions that share the sentences of a call."""
        return self._sessions

    def arguments(self) -> tuple[str, str | None, str | None, TranslatorOptions]:
        """What decides its results: the directory, `isa`, `dtype` and the options."""
        return self._path, self._isa, self._dtype, self._options

    def __reduce__(self) -> tuple[Any, ...]:
        sizes = (self._threads, self._sessions, self._isa, self._dtype)
        return _open, (type(self), self._path, *sizes, self._options.to_dict())

    def __repr__(self) -> str:
        head = f"Translator({self._path!r}, threads={self._threads}, {self._options!r})"
        if self._native is None:
            return f"{head}, closed"
        lines = [head, f"weights: {self.model_bytes} bytes, {self.isa}"]
        lines += [f"session: {plan}" for plan in self.plan]
        return "\n".join(lines)

    def _rows(self, rows: Any, argument: str, *, target: bool = False) -> tuple[Ids, Offsets]:
        """Rows of ids, or texts, which are tokenized."""
        given: Any = rows
        if isinstance(given, (list, tuple)) and any(isinstance(one, str) for one in given):
            native, texts = self._open(), strings(given, argument)
            if target:
                return native.encode_targets(texts)
            found, cut = native.encode(texts, None)
            warn_of_cut_sources(cut, len(texts), argument)
            return found
        return rows_of(rows, None, argument)


def _open(
    kind: type[Translator],
    path: str,
    threads: int,
    sessions: int,
    isa: str | None,
    dtype: str | None,
    options: dict[str, Any],
) -> Translator:
    return kind(path, threads=threads, sessions=sessions, isa=isa, dtype=dtype, **options)


# From a whole text to one that lacks the most, as the native module orders them.
_SEVERITY = [
    Finish.END,
    Finish.LENGTH,
    Finish.EXHAUSTED,
    Finish.STOPPED,
    Finish.REFUSED,
    Finish.NOT_FINITE,
]


def _skips(errors: str) -> bool:
    """Whether errors are reported and not raised."""
    if errors not in ("raise", "column"):
        expected = '"raise" or "column"'
        raise OptionError(
            f"errors: expected {expected}, found {errors!r}",
            option="errors",
            expected=expected,
            found=errors,
        )
    return errors == "column"


def _raise_first(errors: list[SimdformerError | None]) -> None:
    for error in errors:
        if error is not None:
            raise error


def _warn(finish: npt.NDArray[np.uint8], truncated: npt.NDArray[np.bool_]) -> None:
    """A `CutWarning` if a text was cut, or its translation may lack its end."""
    total = len(finish)
    warn_of_cut_sources(np.flatnonzero(truncated).tolist(), total, "texts")
    cut = np.flatnonzero((finish == Finish.LENGTH) | (finish == Finish.EXHAUSTED))
    if len(cut):
        first = f", the first is that of texts[{cut[0]}]" if total > 1 else ""
        warn_of_cut(
            f"{len(cut)} of {total} translations reached the maximum length{first}; max_new_tokens changes it"
        )


def _streams(streams: npt.ArrayLike) -> npt.NDArray[np.uint64]:
    found = np.asarray(streams)
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise InputTypeError(
            f"streams: expected one whole number for each source, found {found.dtype} of shape {found.shape}",
            argument="streams",
            expected="one whole number for each source",
            found=f"{found.dtype} of shape {found.shape}",
        )
    # A negative number is a stream, too: its 64 bits.
    return np.ascontiguousarray(found.astype(np.uint64, casting="unsafe"))


def _fill(out: Ragged, ids: npt.NDArray[np.uint32], offsets: npt.NDArray[np.int64]) -> Ragged:
    """Copies a result to the arrays of `out`, and returns the parts of them that it fills."""
    for argument, array, needed in (("ids", out.ids, len(ids)), ("offsets", out.offsets, len(offsets))):
        if len(array) < needed:
            raise InputError(
                f"out.{argument}: expected at least {needed} elements, found {len(array)}",
                argument=f"out.{argument}",
                expected=needed,
                found=len(array),
            )
    out.ids[: len(ids)] = ids
    out.offsets[: len(offsets)] = offsets
    return Ragged.of_checked(out.ids[: len(ids)], out.offsets[: len(offsets)])
