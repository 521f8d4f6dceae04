"""Trains the SentencePiece models of the tests with sentencepiece's own trainer.

    python models.py        # sentencepiece 0.2.3

Writes spm/NAME.spm without the precompiled normalisation rules, which make 99 % of a small model, and the
rules once as spm/nmt_nfkc.rules and spm/nmt_nfkc_cf.rules: a protobuf message is merged with what
follows it, so a file, one field's head and the rules are the model that was trained.
"""

import io
import json
import random
from pathlib import Path

import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as pb

HERE = Path(__file__).parent
LINES = [json.loads(line) for line in (HERE / "lines.jsonl").read_text().splitlines()]

SYMBOLS = ["<sep>", "<user>", "symbol", "foo▁bar", "$$"]
DEFAULT = dict(model_type="unigram", vocab_size=1700, normalization_rule_name="nmt_nfkc")
MODELS = {
    "unigram": {},
    "unigram_cf": dict(normalization_rule_name="nmt_nfkc_cf", vocab_size=1300),
    "unigram_identity": dict(normalization_rule_name="identity", remove_extra_whitespaces=False, vocab_size=1250),
    "unigram_bytes": dict(byte_fallback=True, vocab_size=1250),
    "t5": dict(pad_id=0, eos_id=1, unk_id=2, bos_id=-1, vocab_size=1300),
    "bpe": dict(model_type="bpe"),
    "bpe_bytes": dict(model_type="bpe", normalization_rule_name="identity", byte_fallback=True, vocab_size=1500, remove_extra_whitespaces=False),
    "unigram_symbols": dict(user_defined_symbols=SYMBOLS, control_symbols=["<ctrl>"], vocab_size=1250),
    "bpe_symbols": dict(model_type="bpe", user_defined_symbols=SYMBOLS, control_symbols=["<ctrl>"], vocab_size=1250),
    "suffix": dict(treat_whitespace_as_suffix=True, vocab_size=1250),
    "no_dummy": dict(add_dummy_prefix=False, vocab_size=1250),
    "bpe_nfkc_bytes": dict(model_type="bpe", byte_fallback=True, add_dummy_prefix=False, vocab_size=1250),
}


def corpus():
    """The lines, and words of the first ones in any order, so that words are learnt and some letters are not."""
    rng = random.Random(3)
    words = " ".join(LINES[:31]).split()
    lines = [line for line in LINES[:300] if len(line) < 2000 and "\x00" not in line]
    lines += [" ".join(rng.choice(words) for _ in range(12)) for _ in range(3000)]
    return [line.replace("\n", " ") for line in lines]


def train(name):
    options = DEFAULT | dict(
        sentence_iterator=iter(corpus()), character_coverage=0.998, num_threads=1, hard_vocab_limit=False,
        minloglevel=2, max_sentencepiece_length=12,
    ) | MODELS[name]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(model_writer=model, **options)
    return model.getvalue()


def main():
    folder = HERE / "spm"
    folder.mkdir(exist_ok=True)
    rules = {}
    for name in MODELS:
        proto = pb.ModelProto.FromString(train(name))
        unused = [p for p in proto.pieces if p.type == 1 and 4 <= len(p.piece) <= 6]
        if name in ("unigram_bytes", "bpe_bytes"):  # Nothing trains these, and models have them.
            for piece in unused[::7]:
                piece.type = 5
        rule = proto.normalizer_spec.name
        if proto.normalizer_spec.precompiled_charsmap:
            assert rules.setdefault(rule, proto.normalizer_spec.precompiled_charsmap) == proto.normalizer_spec.precompiled_charsmap
            proto.normalizer_spec.ClearField("precompiled_charsmap")
        (folder / f"{name}.spm").write_bytes(proto.SerializeToString())
        print(name, len(proto.pieces))
    for rule, charsmap in rules.items():
        (folder / f"{rule}.rules").write_bytes(charsmap)


if __name__ == "__main__":
    main()
