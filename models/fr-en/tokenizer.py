"""Writes the tokenizer of this model: source.spm, target.spm, vocab.json and tokenizer_config.json.

    python tokenizer.py    # from source_vocab.json and the words of vocab.json; needs sentencepiece and protobuf

The vocabulary is words. Each word is one piece of a unigram model. Normalization rules, compiled by the trainer of
sentencepiece, split typed text into these words: lower case, a space after the apostrophe of an elision, before a
mark and before an inverted subject. The directory is then read like one of OPUS-MT.
"""

import io
import json
from pathlib import Path

import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as pb

HERE = Path(__file__).parent


def rules(words):
    rules = {}
    for code in [*range(ord("A"), ord("Z") + 1), *range(0xC0, 0xDF), 0x152]:
        if chr(code).lower() != chr(code):
            rules[chr(code)] = chr(code).lower()
    rules |= {"'": "' ", "’": "' ", "?": " ?", ".": " .", "!": " ", ",": " "}
    for word in words:
        if word.startswith("-"):
            rules[word] = f" {word}"
    return rules


def piece(word):
    """A word as a piece: the space before it, and the one that its elision gets (`aujourd'hui`)."""
    return "▁" + (word[:-1].replace("'", "'▁") + word[-1] if "'" in word[1:-1] else word)


def model(words, rules):
    text = "".join(f"{' '.join(f'{ord(c):X}' for c in a)}\t{' '.join(f'{ord(c):X}' for c in b)}\n" for a, b in sorted(rules.items()))
    tsv = HERE / "rules.tsv"
    tsv.write_text(text)
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(words), model_writer=out, vocab_size=400, hard_vocab_limit=False,
                                             normalization_rule_tsv=str(tsv), minloglevel=2, num_threads=1)
    tsv.unlink()
    proto = pb.ModelProto.FromString(out.getvalue())
    del proto.pieces[3:]
    for word in words:
        added = proto.pieces.add()
        added.piece, added.score = piece(word), -float(len(word))
    proto.trainer_spec.ClearField("input")
    return proto.SerializeToString()


def write(folder, vocabulary):
    """Writes the files; `vocabulary` maps the words of both languages and the special tokens to ids."""
    words = [w for w in vocabulary if w not in ("</s>", "<unk>", "<pad>")]
    source = [w for w in json.loads((folder / "source_vocab.json").read_text(encoding="utf-8")) if w in words]
    (folder / "source.spm").write_bytes(model(source, rules(source)))
    (folder / "target.spm").write_bytes(model(words, {"A": "a"}))
    pieces = {w if w not in words else piece(w): i for w, i in vocabulary.items()}
    (folder / "vocab.json").write_text(json.dumps(pieces, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")
    config = {"tokenizer_class": "MarianTokenizer", "source_lang": "fr", "target_lang": "en"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


if __name__ == "__main__":
    pieces = json.loads((HERE / "vocab.json").read_text(encoding="utf-8"))
    write(HERE, {piece.replace("▁", ""): i for piece, i in pieces.items()})
