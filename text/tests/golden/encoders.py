"""Writes the encoders of the tests and what transformers makes of texts and pairs.

    python encoders.py

transformers 5.23.0 and torch 2.15.0. Of each directory only what dirs/TOKENIZER does not have is kept.

encoders/NAME/from            which of dirs/ has its tokenizer
encoders/NAME/*               config.json, model.safetensors, and what sentence-transformers puts beside them
encoders/NAME/expected.jsonl  of a sentence model: text, tokens (all that it has), vector; of a cross-encoder: query, text,
                              tokens, score, and cut: the score of what is left when the pair is cut to the model's length

Tokenised by AutoTokenizer, run alone in float64, pooled as the configurations beside the model are defined, rounded once.
"""

import json
import shutil
import tempfile
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file

GOLDEN = Path(__file__).parent
HERE = GOLDEN / "encoders"
LINES = [json.loads(line) for line in (GOLDEN / "lines.jsonl").read_text().splitlines()]
WIDTH = 6
POSITIONS = 48
TEXTS = ["", "   ", "how many people live in the old town?", "Über den Wäldern — 東京 and [SEP] or </s>."]
TEXTS += [line for line in LINES if 0 < len(line) < 60 and not set(line) & set("\n\r\0")][7:220:9]
LONG = "the old house by the river is white and nobody lives in it " * 4


def model(name, tokenizer, cls, config, **more):
    """Writes the checkpoint; gives the directory as it would be published, and model and tokenizer of it."""
    torch.manual_seed(sum(name.encode()))
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "from").write_text(tokenizer + "\n")
    place = Path(tempfile.mkdtemp()) / name
    shutil.copytree(GOLDEN / "dirs" / tokenizer, place)
    size = len(transformers.AutoTokenizer.from_pretrained(place))
    sizes = dict(hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=2, intermediate_size=12)
    net = cls(config(vocab_size=size, initializer_range=0.4, **sizes, **more))
    for parameter in net.parameters():
        if parameter.dim() == 1:
            parameter.data += 0.2 * torch.randn_like(parameter)
    net.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    for file in ("config.json", "model.safetensors"):
        shutil.copy(folder / file, place / file)
    net = cls.from_pretrained(place, attn_implementation="eager").double().eval()
    return folder, net, transformers.AutoTokenizer.from_pretrained(place)


def lines(folder, rows):
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (folder / "expected.jsonl").write_text(text, newline="")


def kept(numbers):
    return [float(x) for x in torch.as_tensor(numbers).float()]


def write(folder, path, value):
    (folder / path).parent.mkdir(exist_ok=True)
    (folder / path).write_text(json.dumps(value, indent=2) + "\n")


def modules(folder, *names):
    kinds = ("Transformer",) + names
    write(folder, "modules.json", [
        {"idx": i, "name": str(i), "path": f"{i}_{kind}" if i else "", "type": f"sentence_transformers.models.{kind}"}
        for i, kind in enumerate(kinds)])


def sentences(folder, net, tokenizer, most, pool):
    rows = []
    with torch.no_grad():
        for text in TEXTS + [LONG]:
            whole = len(tokenizer(text).input_ids)
            inputs = tokenizer(text, truncation=True, max_length=most, return_tensors="pt")
            rows.append({"text": text, "tokens": whole, "vector": kept(pool(net(**inputs).last_hidden_state[0]))})
    lines(folder, rows)


def pairs(folder, net, tokenizer):
    query = "who lives in the old house?"
    rows = []
    with torch.no_grad():
        score = lambda inputs: kept(net(**inputs).logits[0])[0]
        for query, text in [(query, text) for text in TEXTS] + [("", text) for text in TEXTS[:3]] + [(LONG, query), (query, LONG), (LONG, LONG)]:
            # Lists, as cross-encoders are called: of two texts by themselves an empty second one is taken for none.
            whole = tokenizer([query], [text], return_tensors="pt")
            tokens = whole.input_ids.shape[1]
            cut = tokenizer([query], [text], truncation="longest_first", max_length=POSITIONS, return_tensors="pt")
            row = {"query": query, "text": text, "tokens": tokens}
            rows.append(row | ({"score": score(whole)} if tokens <= POSITIONS else {"cut": score(cut)}))
    lines(folder, rows)


def main():
    transformers.logging.set_verbosity_error()
    bert = dict(max_position_embeddings=POSITIONS)
    roberta = dict(max_position_embeddings=POSITIONS + 2, type_vocab_size=1, layer_norm_eps=1e-5)

    folder, net, tokenizer = model("bert", "bert", transformers.BertModel, transformers.BertConfig, **bert)
    modules(folder, "Pooling", "Normalize")
    write(folder, "sentence_bert_config.json", {"max_seq_length": 24, "do_lower_case": False})
    write(folder, "1_Pooling/config.json", {"word_embedding_dimension": WIDTH, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True})
    sentences(folder, net, tokenizer, 24, lambda x: x.mean(0) / x.mean(0).norm())

    folder, net, tokenizer = model("roberta", "roberta_json", transformers.RobertaModel, transformers.RobertaConfig, **roberta)
    modules(folder, "Pooling", "Dense")
    write(folder, "1_Pooling/config.json", {"word_embedding_dimension": WIDTH, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False})
    write(folder, "2_Dense/config.json", {"in_features": WIDTH, "out_features": 5, "bias": True, "activation_function": "torch.nn.modules.activation.Tanh"})
    dense = torch.nn.Linear(WIDTH, 5)
    save_file({"linear.weight": dense.weight.data, "linear.bias": dense.bias.data}, folder / "2_Dense/model.safetensors")
    dense = dense.double()
    sentences(folder, net, tokenizer, POSITIONS, lambda x: torch.tanh(dense(x[0])))

    folder, net, tokenizer = model("bert_cross", "bert_json", transformers.BertForSequenceClassification, transformers.BertConfig, num_labels=1, **bert)
    pairs(folder, net, tokenizer)
    folder, net, tokenizer = model("roberta_cross", "roberta", transformers.RobertaForSequenceClassification, transformers.RobertaConfig, num_labels=1, **roberta)
    pairs(folder, net, tokenizer)


if __name__ == "__main__":
    main()
