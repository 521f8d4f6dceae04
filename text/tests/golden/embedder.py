"""Writes what sentence-transformers makes of texts, pairs and vectors, for the settings of a directory.

    python embedder.py

sentence-transformers 5.7.0, transformers 5.23.0 and torch 2.15.0. The models are those that encoders.py wrote. A line of
embedder.jsonl is a case:

model, files      a directory of encoders/, and files that replace or extend its files; keys of config.json are added
arguments         options of `simdformer embed` or `rerank`
texts, vectors    what `SentenceTransformer.encode` gives, in float64, rounded once
query, scores     with `texts`, what `CrossEncoder.predict` gives
codes             with `vectors`, of float32 numbers: what `quantize_embeddings` gives for each precision
"""

import json
import shutil
import tempfile
from pathlib import Path

import numpy
import torch
from sentence_transformers import CrossEncoder, SentenceTransformer, quantize_embeddings

GOLDEN = Path(__file__).parent
HERE = GOLDEN / "encoders"
TEXTS = ["", "the old White House", "Über den Wäldern — 東京", "ISTANBUL İs [SEP] or </s>, ΑΣ", "a River is white and nobody lives in it"]
LONG = "the old house by the river is white and nobody lives in it " * 4
NAMED = {"config_sentence_transformers.json": {"prompts": {"query": "Query: ", "passage": "a River "}, "default_prompt_name": None}}
DEFAULT = {"config_sentence_transformers.json": {"prompts": {"query": "Query: ", "passage": "a River "}, "default_prompt_name": "passage"}}
EMPTY = {"config_sentence_transformers.json": {"prompts": {}, "default_prompt_name": "query"}}
LOWER = {"sentence_bert_config.json": {"max_seq_length": 24, "do_lower_case": True}}
NEW = {"sentence_bert_config.json": {"transformer_task": "feature-extraction", "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}, "module_output_name": "token_embeddings"}}

# Without modules.json, sentence-transformers reads neither file.
CROSS = {
    "modules.json": [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.base.modules.transformer.Transformer"}],
    "sentence_bert_config.json": {"max_seq_length": 48, "transformer_task": "sequence-classification", "modality_config": {"text": {"method": "forward", "method_output_name": "logits"}}, "module_output_name": "scores"},
}

def pooling(*modes):
    return {"1_Pooling/config.json": {"embedding_dimension": 6, "pooling_mode": list(modes), "include_prompt": False}}


def pooled_without_dense(*modes):
    kinds = ("Transformer", "Pooling")
    modules = [{"idx": i, "name": str(i), "path": f"{i}_{kind}" if i else "", "type": f"sentence_transformers.models.{kind}"} for i, kind in enumerate(kinds)]
    return {"modules.json": modules} | pooling(*modes)


def activation(path):
    return {"config.json": {"sentence_transformers": {"activation_fn": path, "version": "4.0.1"}}}


VECTORS = [
    ("bert", NAMED, []),
    ("bert", NAMED, ["--prompt", "query"]),
    ("bert", NAMED, ["--prompt-text", "how many "]),
    ("bert", DEFAULT, []),
    ("bert", DEFAULT, ["--prompt", "query"]),
    ("bert", DEFAULT, ["--prompt-text", ""]),
    ("bert", EMPTY, []),
    ("bert", DEFAULT | pooling("mean"), []),
    ("bert", NAMED | pooling("mean"), []),
    ("bert", DEFAULT | pooling("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"), []),
    ("roberta", DEFAULT | pooling("cls"), []),
    ("roberta", NAMED | pooled_without_dense("weightedmean"), ["--prompt", "query"]),
    ("roberta", LOWER, []),
    ("roberta", LOWER | DEFAULT | pooling("cls"), []),
    ("bert", LOWER, []),
    ("bert", NEW, []),
    ("bert", {}, ["--dims", "4"]),
    ("roberta", {}, ["--dims", "5"]),
    ("roberta", {"config_sentence_transformers.json": {"truncate_dim": 3}}, []),
    ("roberta", {"config_sentence_transformers.json": {"truncate_dim": 3}}, ["--dims", "2"]),
]
SCORES = [
    ("bert_cross", {}, []),
    ("roberta_cross", {}, []),
    ("roberta_cross", {}, ["--raw"]),
    ("bert_cross", activation("torch.nn.modules.linear.Identity"), []),
    ("bert_cross", activation("torch.nn.modules.activation.Sigmoid"), []),
    ("bert_cross", {"config.json": {"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"}}, []),
    ("roberta_cross", CROSS | activation("torch.nn.modules.linear.Identity") | {"config_sentence_transformers.json": {"model_type": "CrossEncoder", "activation_fn": "torch.nn.modules.activation.Tanh", "prompts": {"query": "Query: "}, "default_prompt_name": "query"}}, []),
    ("roberta_cross", CROSS | {"config_sentence_transformers.json": {"model_type": "CrossEncoder", "prompts": {"query": "Query: "}}}, ["--prompt", "query"]),
    ("roberta_cross", CROSS | {"config_sentence_transformers.json": {"model_type": "CrossEncoder"}, "sentence_bert_config.json": CROSS["sentence_bert_config.json"] | {"do_lower_case": True, "max_seq_length": 40}}, []),
]


def directory(model, files):
    """The directory of a case, as it would be published."""
    place = Path(tempfile.mkdtemp()) / model
    shutil.copytree(GOLDEN / "dirs" / (HERE / model / "from").read_text().strip(), place)
    shutil.copytree(HERE / model, place, dirs_exist_ok=True)
    for name, value in files.items():
        file = place / name
        if name == "config.json":
            value = json.loads(file.read_text()) | value
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(value))
    return str(place)


def kept(numbers):
    return [float(x) for x in numpy.asarray(numbers).astype(numpy.float32)]


def options(arguments):
    """The named arguments of `encode` and `predict` for options of the command."""
    pairs = dict(zip(arguments[::2], arguments[1::2]))
    named = {}
    if "--prompt" in pairs:
        named["prompt_name"] = pairs["--prompt"]
    if "--prompt-text" in pairs:
        named["prompt"] = pairs["--prompt-text"]
    if "--dims" in pairs:
        named |= {"truncate_dim": int(pairs["--dims"]), "normalize_embeddings": True}
    return named


def vectors(model, files, arguments):
    net = SentenceTransformer(directory(model, files), device="cpu").double()
    # Texts of one batch differ in length, as those of a user. The last one is cut by the directory.
    texts = TEXTS + ([LONG] if model == "bert" or "sentence_bert_config.json" in files else [])
    found = net.encode(texts, batch_size=3, **options(arguments))
    return {"texts": texts, "vectors": [kept(row) for row in found]}


def scores(model, files, arguments):
    net = CrossEncoder(directory(model, files), device="cpu")
    net.model.double()
    query = "who Lives in the old house?"
    named = {"activation_fn": torch.nn.Identity()} if arguments == ["--raw"] else options(arguments)
    found = net.predict([(query, text) for text in TEXTS], batch_size=3, **named)
    return {"query": query, "texts": TEXTS, "scores": kept(found)}


def codes(rows):
    numbers = numpy.asarray(rows, dtype=numpy.float32)
    ranges = numpy.vstack((numbers[:8].min(axis=0), numbers[:8].max(axis=0)))
    found = {name: quantize_embeddings(numbers, name).tolist() for name in ("int8", "uint8", "binary", "ubinary")}
    within = {name: quantize_embeddings(numbers, name, ranges=ranges).tolist() for name in ("int8", "uint8")}
    return {"vectors": [kept(row) for row in numbers], "codes": found, "ranges": [kept(row) for row in ranges], "codes_within_ranges": within}


def main():
    rows = []
    for make, cases in [(vectors, VECTORS), (scores, SCORES)]:
        for model, files, arguments in cases:
            rows.append({"model": model, "files": files, "arguments": arguments} | make(model, files, arguments))
    random = numpy.random.default_rng(5)
    for width in (1, 8, 11):
        numbers = random.standard_normal((40, width)).astype(numpy.float32)
        # A dimension of one value, and zeros of both signs.
        numbers[:, 0] = numbers[0, 0] if width == 11 else numbers[:, 0]
        numbers[3:5, -1] = [0.0, -0.0]
        rows.append(codes(numbers))
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (GOLDEN / "embedder.jsonl").write_text(text, newline="")


if __name__ == "__main__":
    main()
