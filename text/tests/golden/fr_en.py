"""Writes fr-en/: SentencePiece files for the small trained model in models/fr-en, whose vocabulary is words.

    python fr_en.py

Every word of vocab.json is a piece of a unigram model, and what people type becomes words by rules of
normalisation, compiled by sentencepiece's own trainer: lower case, a space after an elision's apostrophe,
before a mark and before an inverted subject. So a directory of models/fr-en and these files is an OPUS-MT
directory like any other.
"""

import io
import json
from pathlib import Path

import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as pb

HERE = Path(__file__).parent
MODEL = HERE / "../../../models/fr-en"


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


def main():
    vocabulary = json.loads((MODEL / "vocab.json").read_text())
    words = [w for w in vocabulary if w not in ("</s>", "<unk>", "<pad>")]
    source = [w for w in json.loads((MODEL / "source_vocab.json").read_text()) if w in words]
    out = HERE / "fr-en"
    out.mkdir(exist_ok=True)
    (out / "source.spm").write_bytes(model(source, rules(source)))
    (out / "target.spm").write_bytes(model(words, {"A": "a"}))
    pieces = {w if w not in words else piece(w): i for w, i in vocabulary.items()}
    (out / "vocab.json").write_text(json.dumps(pieces, ensure_ascii=False, separators=(",", ":")))
    (out / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "MarianTokenizer", "source_lang": "fr", "target_lang": "en"}))


if __name__ == "__main__":
    main()
