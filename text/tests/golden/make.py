"""Writes the tokenizers of the tests and what their references make of the lines.

    python lines.py && python models.py && python make.py

sentencepiece 0.2.3, transformers 5.23.0, tokenizers 0.23, protobuf. Of each line and list of ids only a hash is
kept; text/tokenize/tests/golden.rs says which line differs, `python make.py explain NAME LINE` what was expected.

dirs/NAME      a directory as it would be published, but for SentencePiece files: spm.txt says which of spm/ stand
               for them, and `@RULES` in a tokenizer.json which rules
expected/NAME  of each line: hash of the ids, hash of the text that they decode to; then the same of 1000 lists of
               random ids. For families that transformers rebuilds from a SentencePiece file: SentencePiece's, then transformers'
expected/exceptions  where those two differ, and why: spaces at the ends of the text or before a special token; marks,
               where rules are applied to a letter and its marks together; ties, where sums are rounded otherwise;
               unused, where CamemBERT's ids that stand for nothing are written as their names
"""

import base64
import json
import shutil
import sys
import tempfile
import unicodedata
from pathlib import Path

import sentencepiece
import tokenizers
import transformers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import models as trained

HERE = Path(__file__).parent
LINES = trained.LINES
RULES = {
    "unigram": "nmt_nfkc", "unigram_cf": "nmt_nfkc_cf", "unigram_identity": None, "unigram_bytes": "nmt_nfkc", "t5": "nmt_nfkc",
    "bpe": "nmt_nfkc", "bpe_bytes": None, "unigram_symbols": "nmt_nfkc", "bpe_symbols": "nmt_nfkc", "suffix": "nmt_nfkc",
    "no_dummy": "nmt_nfkc", "bpe_nfkc_bytes": "nmt_nfkc",
}
LISTS = 1000


def fnv(data):
    h = 0xCBF29CE484222325
    for byte in data:
        h = ((h ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return f"{h:016x}"[4:]


def hash_ids(ids):
    return fnv(b"".join(int(i).to_bytes(4, "little") for i in ids))


def hash_text(text):
    return fnv(text.encode("utf-8", "surrogatepass"))


def random_ids(number, vocabulary):
    state = number + 1
    def draw():
        nonlocal state
        state = (state * 6364136223846793005 + 1442695040888963407) & 0xFFFFFFFFFFFFFFFF
        return state >> 33
    return [draw() % vocabulary for _ in range(1 + draw() % 20)]


def varint(n):
    out = b""
    while n >= 0x80:
        out += bytes([n & 0x7F | 0x80])
        n >>= 7
    return out + bytes([n])


def model_bytes(name):
    """The model as it was trained: the rules merged into its third field."""
    stored = (HERE / "spm" / f"{name}.spm").read_bytes()
    if RULES[name] is None:
        return stored
    rules = (HERE / "spm" / f"{RULES[name]}.rules").read_bytes()
    field = b"\x12" + varint(len(rules)) + rules
    return stored + b"\x1a" + varint(len(field)) + field


def processor(name):
    return sentencepiece.SentencePieceProcessor(model_proto=model_bytes(name))


# ---------------------------------------------------------------- directories

def directory(name, spm, files):
    folder = HERE / "dirs" / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for file, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
        (folder / file).write_text(text, newline="")
    if spm:
        (folder / "spm.txt").write_text("".join(f"{file} {model} {RULES[model] or '-'}\n" for file, model in spm.items()))


def full(name):
    """The directory with everything in it, in a temporary place."""
    place = Path(tempfile.mkdtemp()) / name
    shutil.copytree(HERE / "dirs" / name, place)
    if (place / "spm.txt").exists():
        for line in (place / "spm.txt").read_text().splitlines():
            file, model, _ = line.split()
            (place / file).write_bytes(model_bytes(model))
        (place / "spm.txt").unlink()
    if (place / "tokenizer.json").exists():
        text = (place / "tokenizer.json").read_text()
        for rules in ("nmt_nfkc", "nmt_nfkc_cf"):
            data = base64.b64encode((HERE / "spm" / f"{rules}.rules").read_bytes()).decode()
            text = text.replace(f'"@{rules}"', f'"{data}"')
        (place / "tokenizer.json").write_text(text)
    return place


def saved(name, tokenizer, config):
    """A directory as transformers saves it, rules taken out."""
    with tempfile.TemporaryDirectory() as place:
        tokenizer.save_pretrained(place)
        files = {p.name: p.read_text() for p in Path(place).iterdir() if p.suffix in (".json", ".txt", ".jinja")}
    for rules in ("nmt_nfkc", "nmt_nfkc_cf"):
        data = base64.b64encode((HERE / "spm" / f"{rules}.rules").read_bytes()).decode()
        files["tokenizer.json"] = files["tokenizer.json"].replace(f'"{data}"', f'"@{rules}"')
    value = json.loads(files["tokenizer.json"])
    files["tokenizer.json"] = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    keep = {k: v for k, v in files.items() if k in ("tokenizer.json", "tokenizer_config.json")}
    directory(name, {}, keep | {"config.json": config})


def make_directories():
    pieces = {name: [processor(name).id_to_piece(i) for i in range(processor(name).get_piece_size())] for name in ("unigram", "unigram_cf", "bpe")}
    union = list(dict.fromkeys(p for name in ("unigram", "unigram_cf") for p in pieces[name][3:]))
    table = ["</s>", "<unk>"] + union + [">>fra<<", ">>deu<<", ">>por<<"]
    vocabulary = {p: i for i, p in enumerate(table)} | {"<pad>": len(table)}
    marian = {"model_type": "marian", "decoder_start_token_id": len(table), "max_position_embeddings": 512, "pad_token_id": len(table), "eos_token_id": 0}
    config = {"tokenizer_class": "MarianTokenizer", "source_lang": "en", "target_lang": "ROMANCE", "model_max_length": 512}
    directory("marian", {"source.spm": "unigram", "target.spm": "unigram_cf"}, {
        "vocab.json": vocabulary, "tokenizer_config.json": config | {"separate_vocabs": False}, "config.json": marian})
    separate = {name: {"</s>": 0, "<unk>": 1} | {p: i + 2 for i, p in enumerate(pieces[name][3:])} for name in ("unigram", "unigram_cf")}
    for vocab in separate.values():
        vocab["<pad>"] = len(vocab)
    directory("marian_separate", {"source.spm": "unigram", "target.spm": "unigram_cf"}, {
        "vocab.json": separate["unigram"], "target_vocab.json": separate["unigram_cf"],
        "tokenizer_config.json": config | {"separate_vocabs": True}, "config.json": marian})
    table = ["<s>", "<pad>", "</s>", "<unk>"] + pieces["bpe"][3:]
    codes = transformers.models.m2m_100.tokenization_m2m_100.FAIRSEQ_LANGUAGE_CODES["m2m100"]
    directory("m2m100", {"sentencepiece.bpe.model": "bpe"}, {
        "vocab.json": {p: i for i, p in enumerate(table)},
        "tokenizer_config.json": {"tokenizer_class": "M2M100Tokenizer", "src_lang": "en", "tgt_lang": "fr", "model_max_length": 1024,
                                  "additional_special_tokens": [f"__{c}__" for c in codes]},
        "config.json": {"model_type": "m2m_100", "decoder_start_token_id": 2, "max_position_embeddings": 1024}})
    # As published: without it transformers 5.23 knows no language.
    codes = transformers.models.nllb.tokenization_nllb.FAIRSEQ_LANGUAGE_CODES
    token = lambda text, left=False: {"content": text, "lstrip": left, "rstrip": False, "normalized": False, "single_word": False, "special": True}
    first = len(pieces["bpe"]) + 1
    added = {i: token(t) for i, t in enumerate(["<s>", "<pad>", "</s>", "<unk>"])} | {first + i: token(c) for i, c in enumerate(codes)} | {first + len(codes): token("<mask>", True)}
    languages = {"added_tokens_decoder": added, "additional_special_tokens": codes}
    nllb = {"model_type": "m2m_100", "decoder_start_token_id": 2, "max_position_embeddings": 1024}
    directory("nllb", {"sentencepiece.bpe.model": "bpe"}, {
        "tokenizer_config.json": {"tokenizer_class": "NllbTokenizer", "src_lang": "eng_Latn", "tgt_lang": "fra_Latn", "model_max_length": 1024} | languages, "config.json": nllb})
    directory("nllb_legacy", {"sentencepiece.bpe.model": "bpe"}, {
        "tokenizer_config.json": {"tokenizer_class": "NllbTokenizer", "src_lang": "eng_Latn", "tgt_lang": "fra_Latn", "legacy_behaviour": True} | languages, "config.json": nllb})
    mbart = {"model_type": "mbart", "max_position_embeddings": 1024}
    directory("mbart50", {"sentencepiece.bpe.model": "unigram"}, {
        "tokenizer_config.json": {"tokenizer_class": "MBart50Tokenizer", "src_lang": "en_XX", "tgt_lang": "fr_XX", "model_max_length": 1024},
        "config.json": mbart | {"decoder_start_token_id": 2}})
    t5 = {"model_type": "t5", "decoder_start_token_id": 0}
    directory("t5", {"spiece.model": "t5"}, {"tokenizer_config.json": {"tokenizer_class": "T5Tokenizer", "extra_ids": 100, "model_max_length": 512}, "config.json": t5})
    pegasus = {"model_type": "pegasus", "decoder_start_token_id": 0, "max_position_embeddings": 512}
    directory("pegasus", {"spiece.model": "t5"}, {"tokenizer_config.json": {"tokenizer_class": "PegasusTokenizer", "model_max_length": 512}, "config.json": pegasus})
    roberta = {"max_position_embeddings": 514}
    directory("camembert", {"sentencepiece.bpe.model": "unigram"}, {"tokenizer_config.json": {"tokenizer_class": "CamembertTokenizer", "model_max_length": 512},
                                                                    "config.json": roberta | {"model_type": "camembert"}})
    directory("xlm_roberta", {"sentencepiece.bpe.model": "unigram"}, {"tokenizer_config.json": {"tokenizer_class": "XLMRobertaTokenizer", "model_max_length": 512},
                                                                      "config.json": roberta | {"model_type": "xlm-roberta"}})
    # What transformers saves: the rebuilt pipelines.
    for name, cls, config in (("pegasus", "PegasusTokenizer", pegasus), ("camembert", "CamembertTokenizer", roberta | {"model_type": "camembert"}),
                              ("xlm_roberta", "XLMRobertaTokenizer", roberta | {"model_type": "xlm-roberta"}),
                              ("nllb", "NllbTokenizer", nllb), ("mbart50", "MBart50Tokenizer", mbart | {"decoder_start_token_id": 2}), ("t5", "T5Tokenizer", t5)):
        tokenizer = getattr(transformers, cls).from_pretrained(full(name))
        saved(f"{name}_json", tokenizer, config)
    # The documentation's: complete as it stands.
    doc = processor("unigram_identity")
    table = ["</s>", "<unk>"] + [doc.id_to_piece(i) for i in range(3, doc.get_piece_size())] + ["<pad>"]
    directory("../doc", {}, {"vocab.json": {p: i for i, p in enumerate(table)}, "tokenizer_config.json": {"tokenizer_class": "MarianTokenizer"},
                             "config.json": marian | {"decoder_start_token_id": len(table) - 1, "pad_token_id": len(table) - 1}})
    for file in ("source.spm", "target.spm"):
        (HERE / "doc" / file).write_bytes(model_bytes("unigram_identity"))
    corpus = trained.corpus()
    # WordPiece.
    words = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    words.normalizer = normalizers.BertNormalizer(lowercase=True)
    words.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words.train_from_iterator(corpus, trainers.WordPieceTrainer(vocab_size=1500, special_tokens=special, show_progress=False))
    vocab = sorted(words.get_vocab().items(), key=lambda e: e[1])
    directory("bert", {}, {"vocab.txt": "".join(f"{w}\n" for w, _ in vocab), "tokenizer_config.json": {"tokenizer_class": "BertTokenizer", "do_lower_case": True, "model_max_length": 512},
                           "config.json": {"model_type": "bert", "max_position_embeddings": 512}})
    cased = transformers.BertTokenizer(vocab=dict(vocab), do_lower_case=False, model_max_length=512)
    saved("bert_json", cased, {"model_type": "bert", "max_position_embeddings": 512})
    # Byte-level BPE.
    bytelevel = Tokenizer(models.BPE())
    bytelevel.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    bytelevel.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=1300, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    model = json.loads(bytelevel.to_str())["model"]
    merges = [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in model["merges"]]
    directory("roberta", {}, {"vocab.json": model["vocab"], "merges.txt": "#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in merges),
                              "tokenizer_config.json": {"tokenizer_class": "RobertaTokenizer", "model_max_length": 512}, "config.json": {"model_type": "roberta", "max_position_embeddings": 514}})
    saved("bart_json", transformers.BartTokenizer(vocab=model["vocab"], merges=merges), {"model_type": "bart", "max_position_embeddings": 1024, "decoder_start_token_id": 2})
    saved("roberta_json", transformers.RobertaTokenizer(vocab=model["vocab"], merges=merges, add_prefix_space=True), {"model_type": "roberta", "max_position_embeddings": 514})
    # Whisper: no other special tokens, and many that are added.
    table = {p: i for i, p in enumerate(p for p in model["vocab"] if p not in special)}
    whisper = transformers.WhisperTokenizer(vocab=table, merges=merges)
    added = ["<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|fr|>", "<|de|>", "<|yue|>", "<|translate|>", "<|transcribe|>", "<|startoflm|>", "<|startofprev|>", "<|nospeech|>", "<|notimestamps|>"]
    whisper.add_special_tokens({"additional_special_tokens": added})
    whisper.add_tokens([tokenizers.AddedToken(f"<|{i * 0.02:.2f}|>", normalized=False, special=False) for i in range(151)])
    whisper.set_prefix_tokens(language="french", task="transcribe", predict_timestamps=False)
    saved("whisper", whisper, {"model_type": "whisper", "decoder_start_token_id": whisper.convert_tokens_to_ids("<|startoftranscript|>")})


# ---------------------------------------------------------------- references

class Sp:
    """SentencePiece alone."""
    def __init__(self, name):
        self.sp = processor(name)
        self.size = self.sp.get_piece_size()

    def encode(self, text):
        return self.sp.encode(text)

    def decode(self, ids):
        return self.sp.decode(ids)


class Tf:
    def __init__(self, name, **options):
        self.tok = transformers.AutoTokenizer.from_pretrained(full(name), **options)
        table = getattr(self.tok, "decoder", None)
        self.size = min(len(self.tok), len(table)) if isinstance(table, dict) else len(self.tok)
        # Separate vocabularies: the target's own last id, <pad>, is written by transformers, which knows the source's.
        self.size -= name == "marian_separate"

    def encode(self, text):
        return self.tok(text).input_ids

    def decode(self, ids):
        return self.tok.decode([i for i in ids if i < self.size], skip_special_tokens=True)  # Beyond it Marian's raises.


class Target(Tf):
    """The target's side, without the end token."""
    def encode(self, text):
        return self.tok(text_target=text).input_ids[:-1]


class Family:
    """SentencePiece, split at special tokens as transformers' Python tokenizers split, and numbered as the family is."""
    def __init__(self, model, specials, number, before=(), after=()):
        self.sp, self.specials, self.number = processor(model), specials, number
        self.back = {number(i): i for i in range(self.sp.get_piece_size()) if i != self.sp.unk_id()}
        self.before, self.after = list(before), list(after)
        self.size = 1 + max([*specials.values(), *self.back])
        self.trie = transformers.tokenization_python.Trie(*[list(specials)])
        self.skip = set(specials.values())

    def encode(self, text):
        ids = []
        parts = self.trie.split(text)
        for i, part in enumerate(parts):
            if part in self.specials:
                ids.append(self.specials[part])
            else:
                if i + 1 < len(parts) and parts[i + 1] == "<mask>":
                    part = part.rstrip()
                ids += [self.number(p) for p in self.sp.encode(part)]
        return self.before + ids + self.after

    def decode(self, ids):
        return self.sp.decode([self.back[i] for i in ids if i not in self.skip and i in self.back])


def fairseq(model, codes, language, legacy=False):
    size = processor(model).get_piece_size()
    specials = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3} | {c: size + 1 + i for i, c in enumerate(codes)} | {"<mask>": size + 1 + len(codes)}
    number = lambda i: {0: 3, 1: 0, 2: 2}.get(i, i + 1)
    code = specials[language]
    return Family(model, specials, number, [] if legacy else [code], [2, code] if legacy else [2])


def t5(model):
    size = processor(model).get_piece_size()
    specials = {"<pad>": 0, "</s>": 1, "<unk>": 2} | {f"<extra_id_{k}>": size + 99 - k for k in range(100)}
    return Family(model, specials, lambda i: i, after=[1])


def pegasus(model):
    number = lambda i: i if i < 2 else i + 103
    specials = {"<pad>": 0, "</s>": 1, "<mask_1>": 2, "<mask_2>": 3} | {f"<unk_{k}>": k + 2 for k in range(2, 103)} | {"<unk>": 105}
    return Family(model, specials, number, after=[1])


def camembert(model):
    size = processor(model).get_piece_size()
    specials = {"<s>NOTUSED": 0, "<pad>": 1, "</s>NOTUSED": 2, "<unk>": 3, "<unk>NOTUSED": 4, "<s>": 5, "</s>": 6, "<mask>": size + 4}
    return Family(model, specials, lambda i: i + 4 if i else 3, [5], [6])


def xlm_roberta(model):
    size = processor(model).get_piece_size()
    specials = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "<mask>": size + 1}
    return Family(model, specials, lambda i: {0: 3, 1: 0, 2: 2}.get(i, i + 1), [0], [2])


def references():
    """Of each tokenizer: the reference that must be met, and one that is met but for listed exceptions."""
    nllb = transformers.models.nllb.tokenization_nllb.FAIRSEQ_LANGUAGE_CODES
    mbart = transformers.models.mbart50.tokenization_mbart50.FAIRSEQ_LANGUAGE_CODES
    return {f"spm_{name}": (lambda name=name: Sp(name), None) for name in RULES} | {
        "marian": (lambda: Tf("marian"), None),
        "marian_target": (lambda: Target("marian"), None),
        "marian_separate": (lambda: Tf("marian_separate"), None),
        "marian_separate_target": (lambda: Target("marian_separate"), None),
        "m2m100": (lambda: Tf("m2m100"), None),
        "nllb": (lambda: fairseq("bpe", nllb, "eng_Latn"), lambda: Tf("nllb")),
        "nllb_legacy": (lambda: fairseq("bpe", nllb, "eng_Latn", True), lambda: Tf("nllb_legacy")),
        "mbart50": (lambda: fairseq("unigram", mbart, "en_XX"), lambda: Tf("mbart50")),
        "t5": (lambda: t5("t5"), lambda: Tf("t5")),
        "pegasus": (lambda: pegasus("t5"), lambda: Tf("pegasus")),
        "camembert": (lambda: camembert("unigram"), lambda: Tf("camembert")),
        "xlm_roberta": (lambda: xlm_roberta("unigram"), lambda: Tf("xlm_roberta")),
        "pegasus_json": (lambda: Tf("pegasus_json"), None),
        "camembert_json": (lambda: Tf("camembert_json"), None),
        "xlm_roberta_json": (lambda: Tf("xlm_roberta_json"), None),
        "bart_json": (lambda: Tf("bart_json"), None),
        "nllb_json": (lambda: Tf("nllb_json"), None),
        "mbart50_json": (lambda: Tf("mbart50_json"), None),
        "t5_json": (lambda: Tf("t5_json"), None),
        "bert": (lambda: Tf("bert"), None),
        "bert_json": (lambda: Tf("bert_json"), None),
        "roberta": (lambda: Tf("roberta"), None),
        "roberta_json": (lambda: Tf("roberta_json"), None),
        "whisper": (lambda: Tf("whisper"), None),
    }


def expected(reference, size):
    lines = []
    for line in LINES:
        ids = reference.encode(line)
        lines.append((hash_ids(ids), hash_text(reference.decode(ids))))
    for number in range(LISTS):
        lines.append(("-", hash_text(reference.decode(random_ids(number, size)))))
    return lines


def cause(line, ours, theirs, text, other, spaces):
    """Why transformers' rebuilt pipeline differs from SentencePiece on a line."""
    if ours == theirs:
        return "spaces" if text.strip() == other.strip() else "other"
    if [i for i in ours if i not in spaces] == [i for i in theirs if i not in spaces]:
        return "spaces"
    marks = any(unicodedata.category(c)[0] == "M" or c in "\uff9e\uff9f\u200d" or 0x1100 <= ord(c) < 0x1200 for c in line)
    if marks:
        return "marks"
    if sorted(ours) == sorted(theirs):
        return "ties"
    return "other"


def exceptions(name, reference, other):
    """Numbers of lines and lists on which the two differ, and why."""
    spaces = {i for i, piece in reference.back.items() if (text := reference.sp.id_to_piece(piece)) == "▁" or text.isspace()}
    found = []
    for number, line in enumerate(LINES):
        ours, theirs = reference.encode(line), list(other.encode(line))
        texts = reference.decode(ours), other.decode(theirs)
        if ours != theirs or texts[0] != texts[1]:
            found.append((number, cause(line, ours, theirs, *texts, spaces)))
    for number in range(LISTS):
        ids = random_ids(number, reference.size)
        texts = reference.decode(ids), other.decode(ids)
        if texts[0] != texts[1]:
            why = "spaces" if texts[0].strip() == texts[1].strip() else "unused" if "NOTUSED" in texts[1] else "other"
            found.append((500 + number, why))
    counts = {c: sum(1 for _, d in found if d == c) for c in ("spaces", "marks", "ties", "unused", "other")}
    print(name, "differs from transformers:", counts, [n for n, c in found if c == "other"])
    return found


def main():
    transformers.logging.set_verbosity_error()
    if len(sys.argv) == 4 and sys.argv[1] == "explain":
        for make in references()[sys.argv[2]]:
            if make:
                reference, number = make(), int(sys.argv[3])
                ids = reference.encode(LINES[number]) if number < len(LINES) else random_ids(number - len(LINES), reference.size)
                print(json.dumps({"ids": ids, "text": reference.decode(ids)}))
        return
    if "--expected" not in sys.argv:
        make_directories()
    (HERE / "expected").mkdir(exist_ok=True)
    listed = []
    for name, (make, other) in references().items():
        reference = make()
        columns = [expected(reference, reference.size)]
        if other:
            other = other()
            columns.append(expected(other, reference.size))
            listed += [f"{name} {number} {why}\n" for number, why in exceptions(name, reference, other)]
        rows = [" ".join(" ".join(pair) for pair in row) for row in zip(*columns)]
        (HERE / "expected" / f"{name}.txt").write_text(f"{reference.size}\n" + "".join(row + "\n" for row in rows))
        print(name, reference.size)
    (HERE / "expected" / "exceptions").write_text("".join(listed))


if __name__ == "__main__":
    main()
