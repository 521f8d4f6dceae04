"""`Translator`: texts in, texts out; sharing, closing, pickling."""

from __future__ import annotations

import io
import json
import pickle
import shutil
import struct
import zipfile
from pathlib import Path
from typing import Any

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


def test_a_prefix_is_read_before_every_text(demo_model: str) -> None:
    whole, plain = "il fait froid", Translator(demo_model)
    with Translator(demo_model, prefix="il fait ") as translator:
        expected = plain.encode([whole]).ids.tolist()
        # A text that begins with it gets no second one.
        for text in ("froid", whole):
            assert translator.encode([text]).ids.tolist() == expected
            assert translator.translate(text) == plain.translate(whole)
            assert translator.translate([text], split=False) == [plain.translate(whole)]
            assert translator.translate_document(f"<p>{text}</p>", "html") == "<p>it is cold</p>"
            assert "".join(translator.stream(text)) == "it is cold"
            assert translator.score([text], ["it is cold"]).totals == plain.score([whole], ["it is cold"]).totals
        assert translator.align("froid", "it is cold").weights.shape[1] == len(expected)
        with simdformer.Batcher(translator) as batcher:
            assert batcher.submit("froid").result(timeout=60) == "it is cold"
        again = pickle.loads(pickle.dumps(translator))
        assert again.options.prefix == "il fait " and again.translate("froid") == "it is cold"
        assert again.fingerprint == translator.fingerprint != plain.fingerprint
    assert Translator(demo_model, prefix="").translate(whole) == "it is cold"


PAGES = [
    ("html", '<p title="{}">{}</p>'),
    ("html", '<img alt="{}"><p>{}</p>'),
    ("html", '<input type="text" placeholder="{}">\n<p>{}</p>'),
    ("html", '<button aria-label="{}">{}</button>'),
    ("markdown", '[{1}](b "{0}")'),
    ("markdown", "![{}](b) {}"),
]


@pytest.mark.parametrize(("format", "page"), PAGES)
def test_attributes_are_translated_unless_the_option_says_no(
    demo_model: str, translator: Translator, format: str, page: str
) -> None:
    found = translator.translate_document(page.format("il fait froid", "il fait froid"), format)
    assert found == page.format("it is cold", "it is cold")
    plain = Translator(demo_model, attributes=False)
    found = plain.translate_document(page.format("il fait froid", "il fait froid"), format)
    assert found == page.format("il fait froid", "it is cold")


ARCHIVES = Path(__file__).parents[2] / "text/documents/tests/archives"


def content_of(document: bytes) -> str:
    return zipfile.ZipFile(io.BytesIO(document)).read("word/document.xml").decode()


def test_documents_are_files_and_bytes(translator: Translator, tmp_path: Path) -> None:
    path = ARCHIVES / "python_docx.docx"
    found = translator.translate_document(path)
    assert "what mon" in content_of(found) and "quel mois" not in content_of(found)
    source = path.read_bytes()
    assert translator.translate_document(source, "docx") == found
    assert translator.translate_document(bytearray(source), "docx") == found
    document = translator.translate_document(path, errors="column")
    assert document.text == found and document.errors == []
    renamed = tmp_path / "a.bin"
    renamed.write_bytes(source)
    assert translator.translate_document(renamed, "docx") == found
    # Other formats are bytes, too, if they are read from a file.
    page = tmp_path / "a.HTML"
    page.write_bytes("<p>je suis étudiant</p>".encode())
    assert translator.translate_document(page) == b"<p>i am a student</p>"
    assert translator.translate_document("il fait froid".encode(), "text") == b"it is cold"


def test_a_damaged_archive_is_an_error(translator: Translator) -> None:
    source = (ARCHIVES / "python_docx.docx").read_bytes()
    for wrong in (source[:-30], source.replace(b"word/document.xml", b"word/document.xm_")):
        with pytest.raises(simdformer.DocumentError):
            translator.translate_document(wrong, "docx")
    with pytest.raises(simdformer.DocumentError, match="mimetype"):
        translator.translate_document(source, "odt")


@pytest.mark.parametrize(("option", "wrong"), [("prefix", 1), ("prefix", ["a"]), ("attributes", 1), ("attributes", "no"), ("capitals", 0)])
def test_an_option_of_another_type_is_an_error(demo_model: str, option: str, wrong: object) -> None:
    with pytest.raises(simdformer.OptionTypeError) as caught:
        Translator(demo_model, **{option: wrong})
    assert caught.value.option == option


def test_notes_name_words_that_the_model_does_not_know(translator: Translator) -> None:
    texts = ["il fait froid", "je suis etudiant", "привет", "la maison est belle ▾", "😀"]
    near = 'the model does not know "etudiant" (near it: "étudiant"'
    for split in (True, False):
        found = translator.translate(texts, split=split, errors="column")
        assert found.texts[2:] == ["привет", "the house is beautiful ▾", "😀"]
        assert found.notes[0] == found.notes[3] == found.notes[4] == []
        assert len(found.notes[1]) == 1 and found.notes[1][0].startswith(near)
        copied = ['the model does not know "привет"', "copied, because the model knows no word of it"]
        assert found.notes[2] == copied
    page = "\n\n".join(texts)
    document = translator.translate_document(page, "markdown", errors="column")
    assert len(document.notes) == 3 and document.notes[1:] == copied
    assert "".join(translator.stream("привет")) == "привет"


def test_capitals_are_restored_unless_the_option_says_no(demo_model: str, translator: Translator) -> None:
    for split in (True, False):
        assert translator.translate("LA MAISON EST BELLE", split=split) == "THE HOUSE IS BEAUTIFUL"
        plain = Translator(demo_model, capitals=False)
        assert plain.translate("LA MAISON EST BELLE", split=split) == "the house is beautiful"
    with simdformer.Batcher(translator) as batcher:
        assert batcher.submit("LA MAISON EST BELLE ▾").result(timeout=60) == "THE HOUSE IS BEAUTIFUL ▾"
        assert "".join(batcher.stream("la maison est belle ▾")) == "the house is beautiful ▾"
        future = batcher.submit("je suis etudiant")
        future.result(timeout=60)
    stream = translator.stream("je suis etudiant")
    assert stream.notes == [] and "".join(stream)
    assert stream.notes == future.notes and "etudiant" in stream.notes[0]


def test_spellings_of_a_stream_are_those_of_a_translation(translator: Translator) -> None:
    for text in (
        "où est-ce qu\u2019elle habite ?",
        "je suis e\u0301tudiant",
        "la mai\u00adson est belle",
        "la maison est belle ▾",
        "😀 il fait froid",
        "LA MAISON EST BELLE",
        "▾ IL FAIT FROID",
        "  il fait froid\t",
        "\u00a0",
    ):
        assert "".join(translator.stream(text)) == translator.translate(text, split=False)


def test_a_model_says_what_it_does_not_use(demo_model: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(demo_model, folder)
    data = (folder / "model.safetensors").read_bytes()
    (size,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + size])
    end = len(data) - 8 - size
    header["model.extra.weight"] = {"dtype": "F32", "shape": [1], "data_offsets": [end, end + 4]}
    new = json.dumps(header).encode()
    new += b" " * (-len(new) % 8)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(new)) + new + data[8 + size :] + bytes(4))
    notes = simdformer.Model(folder).notes
    assert len(notes) == 1 and "model.extra.weight" in notes[0]
    assert simdformer.Model(demo_model).notes == []


def test_a_directory_that_cannot_be_listed_is_an_error(demo_model: str, tmp_path: Path) -> None:
    # Without its list a change of its files would not be seen.
    folder = tmp_path / "model"
    shutil.copytree(demo_model, folder)
    assert Translator(folder).translate("il fait froid") == "it is cold"
    (folder / "loop.json").symlink_to("loop.json")
    with pytest.raises(simdformer.CheckpointError, match="model"):
        Translator(folder)


@pytest.mark.parametrize("form", ["archive", "folder"])
def test_packages_of_argos_open(form: str, demo_model: str, tmp_path: Path) -> None:
    golden = Path(__file__).resolve().parents[2] / "tests" / "golden"
    model = golden / "ctranslate2" / "marian-f32"
    folder = tmp_path / "package"
    shutil.copytree(model, folder / "model")
    shutil.copy(Path(demo_model) / "source.spm", folder / "sentencepiece.model")
    about = {"from_code": "fr", "to_code": "en"}
    (folder / "metadata.json").write_text(json.dumps(about), "utf-8")
    path = str(folder)
    if form == "archive":
        path = shutil.make_archive(str(tmp_path / "fr_en"), "zip", tmp_path, "package")
    rows = json.loads((golden / "search" / "marian_a" / "sources.json").read_text("utf-8"))

    def found(path: str, **options: Any) -> list[list[int]]:
        with Translator(path, max_new_tokens=14, **options) as translator:
            assert len(pickle.loads(pickle.dumps(translator)).fingerprint) == 64
            return translator.generate(rows).tokens.to_list()

    # The search of Argos.
    beams = {"beams": 4, "length_penalty": 0.2, "early_stopping": True, "min_new_tokens": 1}
    assert found(path) == found(str(model), **beams)
    with pytest.raises(simdformer.LanguageError):
        Translator(path, target_lang="de")
