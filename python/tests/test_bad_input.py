"""Wrong calls: each raises a typed error that names what was expected and what was found, and never panics."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import simdformer
from simdformer import Limits, Model, Ragged, Session, Translator, TranslatorOptions
from simdformer._simdformer import settings

OFFSETS = np.array([0, 3, 5])
IDS = np.array([6, 11, 0, 8, 0], np.uint32)
GOOD = [[6, 11, 0], [8, 0]]

# The class of the error, a part of its message, and the call.
Case = tuple[str, type[BaseException], str, Callable[[Any], object]]


def closed(translator: Translator) -> Translator:
    other = Translator(translator.path)
    other.close()
    return other


E = simdformer
CALLS: list[Case] = [
    # Opening.
    ("no directory", E.ModelNotFoundError, "no such", lambda t: Translator("/nothing/here")),
    ("a file", E.ModelNotFoundError, "directory", lambda t: Translator(t.path + "/config.json")),
    ("an empty directory", E.ModelNotFoundError, "config.json", lambda t: Translator(Path(__file__).parent)),
    ("a number as a model", E.InputTypeError, "found 3", lambda t: Translator(3)),  # type: ignore[arg-type]
    ("no instruction set", E.IsaError, "mmx", lambda t: Translator(t.path, isa="mmx")),
    ("another machine's set", E.IsaError, "neon", lambda t: Translator(t.path, isa="neon")),
    ("no dtype", E.OptionError, "int3", lambda t: Translator(t.path, dtype="int3")),
    ("0 threads", E.OptionError, "found 0", lambda t: Translator(t.path, threads=0)),
    ("-1 threads", E.OptionError, "found -1", lambda t: Translator(t.path, threads=-1)),
    ("a million threads", E.OptionError, "4096", lambda t: Translator(t.path, threads=10**6)),
    ("threads of text", E.OptionTypeError, "'2'", lambda t: Translator(t.path, threads="2")),  # type: ignore[arg-type]
    ("True threads", E.OptionTypeError, "True", lambda t: Translator(t.path, threads=True)),
    ("0 sessions", E.OptionError, "found 0", lambda t: Translator(t.path, sessions=0)),
    ("an unknown option", TypeError, "beam_size", lambda t: Translator(t.path, beam_size=4)),
    # Options.
    ("0 beams", E.OptionError, "found 0", lambda t: Translator(t.path, beams=0)),
    ("-1 beams", E.OptionTypeError, "found -1", lambda t: Translator(t.path, beams=-1)),
    ("half a beam", E.OptionTypeError, "found 1.5", lambda t: Translator(t.path, beams=1.5)),
    ("beams of text", E.OptionTypeError, "'4'", lambda t: Translator(t.path, beams="4")),
    ("True beams", E.OptionTypeError, "True", lambda t: Translator(t.path, beams=True)),
    ("huge beams", E.SimdformerError, "found", lambda t: Translator(t.path, beams=10**9).translate("a")),
    ("more than the beams", E.OptionError, "", lambda t: Translator(t.path, beams=2, num_return=3)),
    ("0 sequences", E.OptionError, "0", lambda t: Translator(t.path, num_return=0)),
    ("0 new tokens", E.OptionError, "", lambda t: Translator(t.path, max_new_tokens=0)),
    ("a penalty of NaN", E.OptionError, "nan", lambda t: Translator(t.path, beams=2, length_penalty=np.nan)),
    ("a penalty without beams", E.OptionError, "no effect", lambda t: Translator(t.path, length_penalty=1)),
    ("a repetition penalty of 0", E.OptionError, "0", lambda t: Translator(t.path, repetition_penalty=0.0)),
    ("a temperature alone", E.OptionError, "sample=True", lambda t: Translator(t.path, temperature=1.0)),
    ("a temperature of 0", E.OptionError, "0", lambda t: Translator(t.path, sample=True, temperature=0.0)),
    ("top_p of 2", E.OptionError, "2", lambda t: Translator(t.path, sample=True, top_p=2.0)),
    ("a seed below 0", E.OptionTypeError, "-1", lambda t: Translator(t.path, sample=True, seed=-1)),
    ("early stopping", E.OptionError, "soon", lambda t: Translator(t.path, beams=2, early_stopping="soon")),
    ("0 slots", E.OptionError, "0", lambda t: Translator(t.path, slots=0)),
    ("a cache of int8", E.OptionError, "int8", lambda t: Translator(t.path, cache="int8")),
    ("a language", E.LanguageError, "de", lambda t: Translator(t.path, target_lang="de")),
    ("a language of a number", E.OptionTypeError, "7", lambda t: Translator(t.path, target_lang=7)),
    # Texts.
    ("a number as a text", E.InputTypeError, "found 7", lambda t: t.translate([7])),
    ("None as a text", E.InputTypeError, "None", lambda t: t.translate(["a", None])),
    ("bytes as a text", E.InputTypeError, "b'a'", lambda t: t.translate([b"a"])),
    ("half a character", E.InputTypeError, "ud800", lambda t: t.translate("\ud800")),
    ("a window of 0", E.OptionError, "0", lambda t: list(t.translate_iter(["a"], window=0))),
    ("a format", E.OptionError, "docx", lambda t: t.translate_document("a", "docx")),
    ("bytes without a format", E.OptionError, "that of the bytes", lambda t: t.translate_document(b"a")),
    ("a format of bytes", E.OptionError, "epub, found doc", lambda t: t.translate_document(b"a", "doc")),
    ("no archive", E.DocumentError, "a whole zip archive", lambda t: t.translate_document(b"a", "docx")),
    ("no UTF-8", E.DocumentError, "UTF-8", lambda t: t.translate_document(b"\xff", "text")),
    ("a number as a document", E.InputTypeError, "expected a string, bytes or a path, found 1", lambda t: t.translate_document(1)),
    ("no file", FileNotFoundError, "none.docx", lambda t: t.translate_document(Path("none.docx"))),
    ("broken JSON", E.DocumentError, "line", lambda t: t.translate_document("{\"a\": \"b", "json")),
    ("a long sentence", E.LimitError, "tokens", lambda t: list(t.stream("il fait froid " * 200))),
    ("after close", E.ClosedError, "closed", lambda t: closed(t).translate("a")),
    ("ids after close", E.ClosedError, "closed", lambda t: closed(t).generate(GOOD)),
    # Ids.
    ("no offsets", E.InputError, "offsets", lambda t: t.generate(IDS)),
    ("floats as ids", E.InputTypeError, "float64", lambda t: t.generate([[1.5, 2.0]])),
    ("NaN as an id", E.InputTypeError, "float64", lambda t: t.generate([[float("nan")]])),
    ("an id below 0", E.InputError, "-1", lambda t: t.generate([[-1, 0]])),
    ("an id of 33 bits", E.InputError, "4294967296", lambda t: t.generate([[2**32]])),
    ("an id outside", E.TokenError, "4294967295", lambda t: t.generate([[2**32 - 1]])),
    ("text as ids", E.InputTypeError, "", lambda t: t.generate([["a"]])),
    ("a text as rows", E.InputTypeError, "str", lambda t: t.generate("abc")),
    ("a dictionary as rows", E.InputTypeError, "dict", lambda t: t.generate({0: [1]})),
    ("a set as rows", E.InputTypeError, "set", lambda t: t.decode({(1, 2)})),
    ("a set of sources", E.InputTypeError, "set", lambda t: t.score({"a"}, ["b"])),
    ("None among sources", E.InputTypeError, "None", lambda t: t.score(["a", None], ["b", "c"])),
    ("a number as rows", E.InputTypeError, "int", lambda t: t.generate(3)),
    ("no ids in a row", E.InputError, "token", lambda t: t.generate([[]])),
    ("rows of rows", E.InputError, "dimension", lambda t: t.generate([[[1]], [[2]]])),
    ("too long a row", E.LimitError, "source_tokens", lambda t: t.generate([[5] * 10_000])),
    ("offsets downwards", E.InputError, "decrease", lambda t: t.generate(IDS, [0, 4, 3, 5])),
    ("offsets from 1", E.InputError, "1 to 5", lambda t: t.generate(IDS, [1, 3, 5])),
    ("offsets beyond the ids", E.InputError, "0 to 9", lambda t: t.generate(IDS, [0, 3, 9])),
    ("negative offsets", E.InputError, "-3", lambda t: t.generate(IDS, np.array([0, -3, 5]))),
    ("no offsets at all", E.InputError, "element", lambda t: t.generate(IDS, [])),
    ("offsets of floats", E.InputTypeError, "float64", lambda t: t.generate(IDS, [0.0, 3.0, 5.0])),
    ("offsets of two dimensions", E.InputError, "shape", lambda t: t.generate(IDS, [[0, 5]])),
    ("a short prefix", E.InputError, "2 sources", lambda t: t.generate(GOOD, prefix=[[1]])),
    ("a prefix outside", E.SimdformerError, "9999999", lambda t: t.generate(GOOD, prefix=[[9999999], []])),
    ("a long prefix", E.SimdformerError, "", lambda t: t.generate(GOOD, prefix=[[5] * 4000, []])),
    ("one stream", E.InputError, "2 sources", lambda t: t.generate(GOOD, streams=[1])),
    ("streams of floats", E.InputTypeError, "float64", lambda t: t.generate(GOOD, streams=[0.5, 1])),
    ("errors", E.OptionError, "ignore", lambda t: t.generate(GOOD, errors="ignore")),
    ("a target language", E.LanguageError, "xx", lambda t: t.generate(GOOD, target_lang="xx")),
    ("beams of a call", E.OptionError, "0", lambda t: t.generate(GOOD, beams=0)),
    ("a small result", E.InputError, "out.ids", lambda t: t.generate(GOOD, out=Ragged([], [0]))),
    ("a progress of text", TypeError, "", lambda t: t.generate(GOOD, progress="bar")),
    # Given targets.
    ("fewer targets", E.InputError, "2 sources", lambda t: t.score(GOOD, [[1, 0]])),
    ("a target outside", E.TokenError, "9999999", lambda t: t.score(GOOD, [[9999999, 0], [1]])),
    ("a source outside", E.TokenError, "9999999", lambda t: t.score([[9999999], [1]], GOOD)),
    ("a layer", E.LimitError, "99", lambda t: t.align("a", "b", layers=[99])),
    ("no layer", E.OptionError, "layer", lambda t: t.align("a", "b", layers=[])),
    ("no head", E.InputError, "head", lambda t: t.align("a", "b", heads=[])),
    # Sessions.
    ("limits of 0", E.LimitError, "source_tokens", lambda t: Session(Model(t.path), Limits(source_tokens=0))),
    ("huge limits", E.SimdformerError, "", lambda t: Session(Model(t.path), Limits(sentences=2**60))),
    ("a foreign source", E.HandleError, "", lambda t: foreign(t)),
    ("tokens of a step", E.InputError, "1 hypotheses", lambda t: short_step(t)),
    ("a token of a step", E.TokenError, "9999999", lambda t: short_step(t, [9999999])),
]


def session(translator: Translator) -> Session:
    return Session(Model(translator.path), Limits(source_tokens=8, target_tokens=8))


def foreign(translator: Translator) -> object:
    [source] = session(translator).encode(GOOD[:1])
    return session(translator).start(source)


def short_step(translator: Translator, tokens: list[int] | None = None) -> object:
    one = session(translator)
    [source] = one.encode(GOOD[:1])
    return one.step([one.start(source)], tokens or [])


@pytest.mark.parametrize(("kind", "part", "call"), [case[1:] for case in CALLS], ids=[case[0] for case in CALLS])
def test_a_wrong_call(
    translator: Translator,
    kind: type[BaseException],
    part: str,
    call: Callable[[Translator], object],
) -> None:
    with pytest.raises(kind) as raised:
        call(translator)
    error = raised.value
    assert part in str(error), str(error)
    assert type(error).__name__ != "PanicException"
    if isinstance(error, simdformer.SimdformerError):
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error) and str(again) == str(error) != ""
        # NaN is not equal to itself.
        assert repr(again.__dict__) == repr(error.__dict__)


@pytest.mark.skipif(sys.platform != "linux", reason="needs files with holes")
@pytest.mark.parametrize(("name", "part"), [("long.docx", "less than 4 GiB"), ("long.txt", "UTF-8")])
def test_a_file_that_claims_a_huge_length(translator: Translator, tmp_path: Path, name: str, part: str) -> None:
    """No memory is reserved for it: a failed allocation ends the process."""
    path = tmp_path / name
    with path.open("wb") as file:
        file.write(b"\xff\n\n" * 400_000)
        file.truncate(1 << 42)
    with pytest.raises(E.DocumentError, match=part):
        translator.translate_document(path)


def test_there_are_sixty_of_them() -> None:
    assert len(CALLS) >= 60 and len({case[0] for case in CALLS}) == len(CALLS)


def test_environment_of_threads(demo_model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2,1")
    assert Translator(demo_model).threads == 2
    monkeypatch.setenv("SIMDFORMER_NUM_THREADS", "3")
    assert Translator(demo_model).threads == 3
    assert Translator(demo_model, threads=1).threads == 1
    monkeypatch.setenv("SIMDFORMER_NUM_THREADS", "many")
    with pytest.raises(simdformer.OptionError, match="SIMDFORMER_NUM_THREADS.*'many'"):
        Translator(demo_model)


def test_options_are_compared_and_replaced() -> None:
    assert TranslatorOptions(beams=2) == TranslatorOptions(beams=2) != TranslatorOptions()
    with pytest.raises(AttributeError):
        TranslatorOptions().beams = 3  # type: ignore[misc]


@pytest.mark.parametrize(("name", "expected"), [(row[0], row[2]) for row in settings()])
def test_a_keyword_of_the_table_of_settings(demo_model: str, name: str, expected: str) -> None:
    """Each has a field, is read, and refuses values of other types and numbers that are not finite."""
    assert name in {field.name for field in fields(TranslatorOptions)}
    search = {"sample": True, "beams": 4, "num_beam_groups": None}
    right = {"early_stopping": "never", "sample": True, "num_beam_groups": 2}.get(name, 1)
    if name in ("epsilon_cutoff", "eta_cutoff"):
        right = 0.5
    if name in ("num_beam_groups", "diversity_penalty"):
        search["sample"] = None
    Translator(demo_model, **{**search, name: right})
    for wrong in ([1], {}, object(), "one", -1.5 if "number" in expected and "penalty" not in name else b"", np.nan):
        with pytest.raises((E.OptionError, E.OptionTypeError)) as raised:
            Translator(demo_model, **{**search, name: wrong})
        assert str(raised.value).startswith(f"{name}: expected {expected}, found "), wrong
