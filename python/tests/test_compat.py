"""Scripts written for CTranslate2 and sentence-transformers, with only the import and the path of the model changed.

With the marker `peers` the same scripts run with the original packages, and what they print is compared: tokens must be
equal, numbers within 1e-4. One difference is known: with beams and a minimum length, CTranslate2 computes the probabilities
without the end token, and this package, like transformers, with it.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import simdformer

SOURCE = [
    ["▁je", "▁suis", "▁étudiant", "</s>"],
    ["▁il", "▁fait", "▁froid", "</s>"],
    ["▁la", "▁vieille", "▁maison", "▁blanche", "▁est", "▁belle", "</s>"],
]

CTRANSLATE2 = {
    "quickstart": """
results = translator.translate_batch([SOURCE[0]])
print(results[0].hypotheses[0])
""",
    "greedy batch": """
for result in translator.translate_batch(SOURCE, beam_size=1, max_batch_size=2):
    print(" ".join(result.hypotheses[0]))
""",
    "greedy scores": """
for result in translator.translate_batch(SOURCE, beam_size=1, return_scores=True):
    print(result.hypotheses[0], result.scores[0])
""",
    "beam scores": """
for result in translator.translate_batch(SOURCE, beam_size=4, return_scores=True):
    print(result.hypotheses[0], result.scores[0])
""",
    "length penalty": """
for result in translator.translate_batch(SOURCE, beam_size=4, length_penalty=0.5, return_scores=True):
    print(result.hypotheses[0], result.scores[0])
""",
    "n-best": """
result = translator.translate_batch([SOURCE[2]], beam_size=5, num_hypotheses=3, return_scores=True)[0]
print(len(result.hypotheses), len(result.scores), result.hypotheses[0])
print(all(a >= b for a, b in zip(result.scores, result.scores[1:])))
""",
    "target prefix": """
results = translator.translate_batch(
    SOURCE, target_prefix=[["▁i"], None, ["▁the", "▁old"]], beam_size=1, return_scores=True)
for result in results:
    print(result.hypotheses[0], result.scores[0])
""",
    "asynchronous": """
batches = [translator.translate_batch([row], asynchronous=True, beam_size=1) for row in SOURCE]
for batch in batches:
    print(batch[0].result().hypotheses[0], batch[0].done())
""",
    "iterable": """
tokenize = lambda line: ["▁" + word for word in line.strip().split()] + ["</s>"]
lines = iter(["je suis étudiant", "il fait froid"] * 40)
results = translator.translate_iterable(map(tokenize, lines), max_batch_size=8, beam_size=1)
print([" ".join(result.hypotheses[0]) for result in results])
""",
    "tokens one by one": """
for step in translator.generate_tokens(SOURCE[0], return_log_prob=True):
    print(step.step, step.token, step.log_prob, step.is_last)
""",
    "scoring": """
target = [["▁i", "▁am", "▁a", "▁student"], ["▁it", "▁is", "▁cold"]]
for result in translator.score_batch(SOURCE[:2], target):
    print(result.tokens, sum(result.log_probs))
""",
    "maximum lengths": """
results = translator.translate_batch(SOURCE, beam_size=1, max_decoding_length=2, repetition_penalty=1.2)
print([result.hypotheses[0] for result in results])
print(translator.translate_batch([SOURCE[2]], beam_size=1, max_input_length=3, no_repeat_ngram_size=2)[0].hypotheses)
""",
    "lengths with a prefix": """
for most in (1, 3, 8):
    for result in translator.translate_batch(
            SOURCE, target_prefix=[["▁i"], [], ["▁the", "▁old"]], beam_size=1, return_scores=True,
            min_decoding_length=most // 2, max_decoding_length=most):
        print(result.hypotheses[0], result.scores[0])
""",
    "long sources": """
for most in (2, 3, 4, 7):
    print([result.hypotheses[0][:9] for result in translator.translate_batch(SOURCE, max_input_length=most)])
print(translator.translate_batch([SOURCE[2][:-1]], max_input_length=3, max_decoding_length=4)[0].hypotheses)
""",
    "threads": """
from concurrent.futures import ThreadPoolExecutor
other = ctranslate2.Translator(MODEL, device="cpu", inter_threads=2, intra_threads=1, compute_type="float32")
with ThreadPoolExecutor(2) as pool:
    print([*pool.map(lambda row: other.translate_batch([row], beam_size=1)[0].hypotheses[0], SOURCE)])
print(other.device, other.compute_type, other.num_translators)
""",
    "detokenized": """
results = translator.translate_batch(SOURCE, beam_size=1)
for result in results:
    print("".join(result.hypotheses[0]).replace("▁", " ").strip())
""",
    "end token": """
print(translator.translate_batch(SOURCE, beam_size=1, return_end_token=True)[1].hypotheses[0])
""",
    "batches of tokens": """
results = translator.translate_batch(SOURCE * 5, batch_type="tokens", max_batch_size=16, beam_size=1)
print([result.hypotheses[0] for result in results])
""",
    "minimum length": """
results = translator.translate_batch([SOURCE[1]], beam_size=1, min_decoding_length=6, max_decoding_length=8)
print(len(results[0].hypotheses[0]) >= 6, results[0].hypotheses[0][:3])
""",
    "results as dictionaries": """
result = translator.translate_batch([SOURCE[0]], beam_size=1, return_scores=True)[0]
print(result[0]["tokens"], result[0]["score"], len(result))
""",
    "scores in a loop": """
pairs = ((row, ["▁it", "▁is", "▁cold"]) for row in SOURCE)
for result in translator.score_iterable(*(iter(column) for column in zip(*pairs))):
    print([round(value, 3) for value in result.log_probs])
""",
    "unloaded": """
print(ctranslate2.contains_model(MODEL), translator.model_is_loaded)
translator.unload_model()
translator.load_model()
print(translator.translate_batch([SOURCE[1]], beam_size=1)[0].hypotheses[0])
""",
}

SENTENCE_TRANSFORMERS = {
    "quickstart": """
embeddings = model.encode(["how many people live here?", "the old house", "who lives in it?"])
print(embeddings.shape, embeddings.dtype, embeddings.tolist())
print(model.similarity(embeddings, embeddings).tolist())
""",
    "one sentence": """
print(model.encode("the old house").shape, model.get_sentence_embedding_dimension())
""",
    "normalized": """
embeddings = model.encode(["the old house", "a white car"], normalize_embeddings=True, batch_size=1)
print(util.dot_score(embeddings, embeddings).tolist())
""",
    "semantic search": """
corpus = ["the old house", "a white car", "who lives in it?", "how many people live here?"]
hits = util.semantic_search(model.encode("an old car"), model.encode(corpus), top_k=2)
for hit in hits[0]:
    print(corpus[hit["corpus_id"]], hit["score"])
""",
    "prompt": """
embeddings = model.encode(["the house"], prompt="query: ", show_progress_bar=False)
print(embeddings.tolist(), util.cos_sim(embeddings, model.encode(["query: the house"])).tolist())
""",
    "fewer dimensions": """
small = SentenceTransformer(MODEL, truncate_dim=4, device="cpu")
print(small.encode(["the old house"], normalize_embeddings=True).tolist())
""",
    "binary": """
print(model.encode(["the old house", "a white car"], precision="ubinary").tolist())
""",
    "cross encoder": """
scores = cross.predict([("who lives here?", "people"), ("who lives here?", "cars"), ("a car", "cars")])
print(scores.shape, scores.tolist())
""",
    "rank": """
for hit in cross.rank("who lives here?", ["people", "a car", "the old"], top_k=2, return_documents=True):
    print(hit["corpus_id"], hit["text"], float(hit["score"]))
""",
}


def printed(script: str, names: dict[str, Any]) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(script, "script", "exec"), names)  # noqa: S102
    return out.getvalue()


def ct2_names(package: Any, model: str) -> dict[str, Any]:
    # The demo model decodes at most 96 tokens.
    translator = package.Translator(model, device="cpu")
    return {"ctranslate2": package, "translator": translator, "SOURCE": SOURCE, "MODEL": model}


def st_names(package: Any, encoder: str, cross_encoder: str) -> dict[str, Any]:
    return {
        "SentenceTransformer": package.SentenceTransformer,
        "util": package.util,
        "model": package.SentenceTransformer(encoder, device="cpu"),
        "cross": package.CrossEncoder(cross_encoder, device="cpu"),
        "MODEL": encoder,
    }


NUMBER = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")


def same(ours: str, theirs: str) -> None:
    """Equal text, and numbers within 1e-4."""
    assert NUMBER.sub("#", ours) == NUMBER.sub("#", theirs)
    for mine, other in zip(NUMBER.findall(ours), NUMBER.findall(theirs), strict=True):
        assert abs(float(mine) - float(other)) <= 1e-4, (mine, other)


@pytest.mark.parametrize("name", CTRANSLATE2)
def test_scripts_of_ctranslate2_run(name: str, demo_model: str) -> None:
    from simdformer.compat import ctranslate2

    output = printed(CTRANSLATE2[name], ct2_names(ctranslate2, demo_model))
    if name in ("quickstart", "greedy batch"):
        assert "student" in output
    assert output.strip()


@pytest.fixture(scope="module")
def opus_model(demo_model: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The demo model with what CTranslate2 assumes of Marian models and those of OPUS-MT have: the padding token, with which
    targets begin, has the vector 0 and is never chosen. The demo model learned a vector for it."""
    safetensors = pytest.importorskip("safetensors.numpy")
    folder = tmp_path_factory.mktemp("opus") / "model"
    shutil.copytree(demo_model, folder)
    tensors = safetensors.load_file(folder / "model.safetensors")
    pad = json.loads((folder / "config.json").read_text("utf-8"))["pad_token_id"]
    tensors["model.shared.weight"][pad] = 0
    tensors["final_logits_bias"][..., pad] = -1e9
    safetensors.save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return str(folder)


@pytest.fixture(scope="module")
def converted(opus_model: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    ctranslate2 = pytest.importorskip("ctranslate2")
    pytest.importorskip("transformers")
    folder = str(tmp_path_factory.mktemp("ctranslate2") / "model")
    converter = ctranslate2.converters.TransformersConverter(opus_model)
    return str(converter.convert(folder))


@pytest.mark.peers
@pytest.mark.parametrize("name", CTRANSLATE2)
def test_scripts_of_ctranslate2_print_what_they_print_there(
    name: str, opus_model: str, converted: str
) -> None:
    theirs = pytest.importorskip("ctranslate2")
    from simdformer.compat import ctranslate2

    expected = printed(CTRANSLATE2[name], ct2_names(theirs, converted))
    # The checkpoint, and the directory of CTranslate2 itself.
    for folder in (opus_model, converted):
        same(printed(CTRANSLATE2[name], ct2_names(ctranslate2, folder)), expected)


GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden"


@pytest.mark.parametrize(
    "name,sources", [("marian-f32", "search/marian_a"), ("bart-int16", "search/bart_a")]
)
def test_directories_of_ctranslate2_open(name: str, sources: str) -> None:
    from simdformer.compat import ctranslate2

    folder = GOLDEN / "ctranslate2" / name
    assert ctranslate2.contains_model(folder)
    tokens = json.loads((folder / "shared_vocabulary.json").read_text("utf-8"))
    rows = json.loads((GOLDEN / sources / "sources.json").read_text("utf-8"))
    data = (folder / "expected.safetensors").read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:begin])
    translator = ctranslate2.Translator(folder)
    texts = [[tokens[index] for index in row] for row in rows]
    found = translator.translate_batch(
        texts, beam_size=1, max_decoding_length=14, min_decoding_length=0
    )
    for index, (text, result) in enumerate(zip(texts, found, strict=True)):
        # CTranslate2 does not run a source of special tokens alone.
        if any(token.startswith("t") for token in text):
            first, last = header[f"greedy.{index}"]["data_offsets"]
            ids = memoryview(data[begin + first : begin + last]).cast("q").tolist()
            greedy = [tokens[id] for id in ids]
            assert result.hypotheses[0] == greedy


@pytest.mark.parametrize("version", [6, 5])
def test_tokens_that_ctranslate2_adds_to_sources(version: int, tmp_path: Path) -> None:
    from simdformer.compat import ctranslate2

    whole = GOLDEN / "ctranslate2" / "marian-f32"
    folder = tmp_path / "model"
    shutil.copytree(whole, folder)
    if version == 6:
        config = json.loads((folder / "config.json").read_text("utf-8"))
        (folder / "config.json").write_text(json.dumps({**config, "add_source_eos": True}), "utf-8")
    else:
        # The flag is a variable of the weights: a name, no dimensions, dtype 1 (int8), 1 byte.
        data = (folder / "model.bin").read_bytes()
        begin = 4 + 2 + int.from_bytes(data[4:6], "little") + 4
        count = int.from_bytes(data[begin : begin + 4], "little") + 1
        name = b"with_source_eos\0"
        flag = len(name).to_bytes(2, "little") + name + bytes([0, 1, 1, 0, 0, 0, 1])
        (folder / "model.bin").write_bytes(
            (5).to_bytes(4, "little") + data[4:begin] + count.to_bytes(4, "little") + flag + data[begin + 4 :]
        )
    tokens = json.loads((folder / "shared_vocabulary.json").read_text("utf-8"))
    rows = json.loads((GOLDEN / "search" / "marian_a" / "sources.json").read_text("utf-8"))
    texts = [[tokens[index] for index in row] for row in rows]
    assert all(text[-1] == "</s>" for text in texts)

    def found(path: Path, rows: list[list[str]]) -> list[list[str]]:
        results = ctranslate2.Translator(path).translate_batch(rows, beam_size=1, max_decoding_length=14)
        return [result.hypotheses[0] for result in results]

    assert found(folder, [text[:-1] for text in texts]) == found(whole, texts)


@pytest.mark.peers
@pytest.mark.parametrize("beams", [1, 2, 4])
def test_tokens_of_ctranslate2(
    opus_model: str, converted: str, sentences: list[str], beams: int
) -> None:
    theirs = pytest.importorskip("ctranslate2")
    import simdformer
    from simdformer.compat import ctranslate2

    translator = simdformer.Translator(opus_model)
    ours = ctranslate2.Translator(opus_model)
    rows = [translator.tokens(row) for row in translator.encode(sentences[:300]).to_list()]
    found = [one.hypotheses[0] for one in ours.translate_batch(rows, beam_size=beams)]
    expected = theirs.Translator(converted).translate_batch(rows, beam_size=beams)
    differ = sum(a != b.hypotheses[0] for a, b in zip(found, expected, strict=True))
    print(f"{beams} beams: {differ} of {len(rows)} differ")
    assert differ <= (0 if beams == 1 else 3)


@pytest.mark.parametrize("name", SENTENCE_TRANSFORMERS)
def test_scripts_of_sentence_transformers_run(name: str, encoder: str, cross_encoder: str) -> None:
    from simdformer.compat import sentence_transformers

    names = st_names(sentence_transformers, encoder, cross_encoder)
    assert printed(SENTENCE_TRANSFORMERS[name], names).strip()


@pytest.mark.peers
@pytest.mark.parametrize("name", SENTENCE_TRANSFORMERS)
def test_scripts_of_sentence_transformers_print_what_they_print_there(
    name: str, encoder: str, cross_encoder: str
) -> None:
    theirs = pytest.importorskip("sentence_transformers")
    from simdformer.compat import sentence_transformers

    same(
        printed(SENTENCE_TRANSFORMERS[name], st_names(sentence_transformers, encoder, cross_encoder)),
        printed(SENTENCE_TRANSFORMERS[name], st_names(theirs, encoder, cross_encoder)),
    )


@pytest.mark.parametrize(
    "options",
    [{"patience": 2}, {"return_attention": True}, {"disable_unk": True}, {"end_token": "x"}],
)
def test_options_that_are_not_supported_are_named(demo_model: str, options: dict[str, Any]) -> None:
    from simdformer.compat import ctranslate2, sentence_transformers

    translator = ctranslate2.Translator(demo_model)
    with pytest.raises(NotImplementedError, match=next(iter(options))):
        translator.translate_batch(SOURCE, **options)
    with pytest.raises(NotImplementedError, match="cuda"):
        ctranslate2.Translator(demo_model, device="cuda")
    with pytest.raises(NotImplementedError, match="int16"):
        ctranslate2.Translator(demo_model, compute_type="int16")
    with pytest.raises(NotImplementedError, match="revision"):
        sentence_transformers.SentenceTransformer(demo_model, revision="main")
    with pytest.raises(ValueError, match="hypotheses"):
        translator.translate_batch(SOURCE, beam_size=2, num_hypotheses=3)
    with pytest.raises(ValueError, match="minimum decoding length"):
        translator.translate_batch(SOURCE, min_decoding_length=3, max_decoding_length=2)


def test_lengths_are_counted_as_by_ctranslate2(demo_model: str) -> None:
    from simdformer.compat import ctranslate2

    translator = ctranslate2.Translator(demo_model)

    def first(source: list[str], **options: Any) -> list[str]:
        return translator.translate_batch([source], beam_size=1, **options)[0].hypotheses[0]

    whole = ["▁i", "▁am", "▁a", "▁student"]
    assert first(SOURCE[0]) == whole
    for most in (1, 2, 3, 4):
        assert first(SOURCE[0], max_decoding_length=most) == whole[:most]
        assert first(SOURCE[0], max_decoding_length=most, target_prefix=[whole[:2]]) == whole[:most]
    longest = 4
    assert first(SOURCE[2], max_input_length=longest) == first([*SOURCE[2][: longest - 1], "</s>"])
    assert first(SOURCE[2][:-1], max_input_length=longest) == first(SOURCE[2][:longest])


def test_files_of_ctranslate2(demo_model: str, tmp_path: Path) -> None:
    from simdformer.compat import ctranslate2

    source, target = tmp_path / "source", tmp_path / "target"
    source.write_text("\n".join(" ".join(row) for row in SOURCE) + "\n", "utf-8")
    stats = ctranslate2.Translator(demo_model).translate_file(source, target, beam_size=1)
    assert target.read_text("utf-8").splitlines()[0] == "▁i ▁am ▁a ▁student"
    assert stats.num_examples == 3 and stats.num_tokens > 9
    assert ctranslate2.contains_model(demo_model) and not ctranslate2.contains_model(tmp_path)
    assert "int8" in ctranslate2.get_supported_compute_types("cpu")
    # To open the output would have emptied the source.
    before = source.read_bytes()
    (tmp_path / "link").symlink_to(source)
    for output in (source, str(source), tmp_path / "link"):
        with pytest.raises(simdformer.InputError, match="expected another file than the source"):
            ctranslate2.Translator(demo_model).translate_file(source, output, beam_size=1)
    assert source.read_bytes() == before


def test_vectors_are_compared_as_the_model_or_the_option_says(encoder: str, tmp_path: Path) -> None:
    from simdformer.compat.sentence_transformers import SentenceTransformer, util

    vectors = np.array([[3.0, 0.0], [1.0, 2.0]])
    shutil.copytree(encoder, tmp_path / "model")
    file = tmp_path / "model" / "config_sentence_transformers.json"
    settings = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    for stored, given, expected in [(None, None, "cosine"), (None, "dot", "dot"), ("dot", None, "dot"), ("dot", "cosine", "cosine")]:
        file.write_text(json.dumps({**settings, "similarity_fn_name": stored}), "utf-8")
        model = SentenceTransformer(str(tmp_path / "model"), similarity_fn_name=given)
        dot = expected == "dot"
        whole, pairs = (util.dot_score, util.pairwise_dot_score) if dot else (util.cos_sim, util.pairwise_cos_sim)
        assert np.array_equal(model.similarity(vectors, vectors), whole(vectors, vectors))
        assert np.array_equal(model.similarity_pairwise(vectors, vectors), pairs(vectors, vectors))
    file.write_text(json.dumps({**settings, "similarity_fn_name": "euclidean"}), "utf-8")
    with pytest.raises(NotImplementedError, match="similarity_fn_name='euclidean'"):
        SentenceTransformer(str(tmp_path / "model")).similarity(vectors, vectors)
    with pytest.raises(NotImplementedError, match="similarity_fn_name='manhattan'"):
        SentenceTransformer(encoder, similarity_fn_name="manhattan")


@pytest.mark.parametrize("pairs", [["ab", "cd", "ef"], [("a", "b", "c")], [("a", "b"), ("c",)]])
def test_what_is_no_pair_has_no_score(cross_encoder: str, pairs: Any) -> None:
    from simdformer.compat.sentence_transformers import CrossEncoder

    with pytest.raises(simdformer.InputError, match="sentences: expected a pair of texts, found "):
        CrossEncoder(cross_encoder).predict(pairs)


def test_langchain(encoder: str) -> None:
    base = pytest.importorskip("langchain_core.embeddings")
    from simdformer.integrations.langchain import SimdformerEmbeddings

    embeddings = SimdformerEmbeddings(encoder, query_prompt="query: ", threads=1)
    assert isinstance(embeddings, base.Embeddings)
    documents = embeddings.embed_documents(["query: a", "b"])
    assert len(documents) == 2 and embeddings.embed_query("a") == documents[0]
    import asyncio

    assert asyncio.run(embeddings.aembed_documents(["query: a", "b"])) == documents


def test_llama_index(encoder: str) -> None:
    base = pytest.importorskip("llama_index.core.base.embeddings.base")
    from simdformer.integrations.llama_index import SimdformerEmbedding

    embedding = SimdformerEmbedding(encoder, query_prompt="query: ", options={"threads": 1})
    assert isinstance(embedding, base.BaseEmbedding)
    vectors = embedding.get_text_embedding_batch(["query: a", "b"])
    assert embedding.get_query_embedding("a") == vectors[0]
    assert embedding.get_text_embedding("b") == vectors[1]
    assert abs(embedding.similarity(vectors[0], vectors[0]) - 1) < 1e-6
