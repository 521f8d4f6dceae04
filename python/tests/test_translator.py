"""`Translator`: texts in, texts out; sharing, closing, pickling."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

import simdformer
from simdformer import Translator


def test_translates_a_text_and_a_list(translator: Translator) -> None:
    assert translator.translate("je suis étudiant") == "i am a student"
    texts = ["il fait froid", "", "je suis étudiant"]
    assert translator.translate(texts) == ["it is cold", "", "i am a student"]
    assert translator.translate([]) == []


def test_keeps_what_stands_between_sentences(translator: Translator) -> None:
    found = translator.translate("il fait froid\n\nje suis étudiant\n")
    assert found == "it is cold\n\ni am a student\n"


def test_a_sentence_does_not_depend_on_the_others(
    translator: Translator, sentences: list[str]
) -> None:
    together = translator.translate(sentences[:64], split=False)
    assert [translator.translate(text, split=False) for text in sentences[:64]] == together


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_do_not_change_a_result(
    demo_model: str, translator: Translator, sentences: list[str], threads: int
) -> None:
    with Translator(demo_model, threads=threads, beams=2) as other:
        assert other.translate(sentences[:32]) == Translator(demo_model, beams=2).translate(
            sentences[:32]
        )


def test_a_closed_translator_says_so(demo_model: str) -> None:
    translator = Translator(demo_model)
    translator.close()
    with pytest.raises(simdformer.ClosedError):
        translator.translate("il fait froid")
    assert "fr-en" in repr(translator)


def test_pickles_its_path_and_options(demo_model: str) -> None:
    translator = Translator(demo_model, beams=3, max_new_tokens=20, threads=2)
    data = pickle.dumps(translator)
    assert len(data) <= 500
    again = pickle.loads(data)
    assert again.options == translator.options and again.threads == 2
    assert again.translate("il fait froid") == translator.translate("il fait froid")


def test_a_missing_model_names_its_path(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as raised:
        Translator(tmp_path / "nothing")
    assert isinstance(raised.value, simdformer.ModelNotFoundError)
    assert raised.value.path == str(tmp_path / "nothing")
