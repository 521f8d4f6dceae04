"""Writes moses.jsonl: pieces and texts of packages of Argos with `bpe.model`, as sacremoses and subword-nmt make them.

    python moses.py [COUNT [FILE]]

Needs sacremoses below 0.2, as argostranslate does, and subword-nmt. The first line has the codes, which are learned here, and
the abbreviations; each other line is a case: the language, the version of the codes, a text, its pieces, other pieces, and
the text of those. Texts are natural ones, parts of them with characters put in, and random ones.
"""

import io
import json
import random
import re
import sys
import tempfile
from pathlib import Path

from sacremoses import MosesDetokenizer, MosesPunctNormalizer, MosesTokenizer
from subword_nmt.apply_bpe import BPE
from subword_nmt.learn_bpe import learn_bpe

HERE = Path(__file__).parent
SENTENCES = HERE / ".." / ".." / "documents" / "tests" / "sentences"
LANGUAGES = ["en", "fr", "it", "de", "fi", "cs", "zh", "ja", "ru", "es", "ko", "hi", "pt"]
ABBREVIATIONS = ["Dr", "Mr", "z.B", "etc", "No #NUMERIC_ONLY#", "S #NUMERIC_ONLY#", "A", "т"]
# What the rules read.
MARKS = (
    ["'", '"', ".", ",", "-", "`", " ", "(", ")", "[", "]", "<", ">", "&", "|", "%", ":", ";", "!", "?", "$", "/", "\\", "{", "}"]
    + ["''", "``", "...", "..", ".'", ",,", " @-@ ", "&amp;", "&apos;", "@@", "«", "»", "„", "“", "”", "‘", "’", "‚", "–", "—"]
    + ["\u00a0", "\u00a0«\u00a0", "\u00a0»", "nº\u00a0", "\u00a0ºC", "\u00a0cm", "´", "´´", "…", "¿", "¡", "€", "\r", "\t", "\n"]
    + ["\u3000", "\u0001", "\u007f", "\u200b", "\ufeff", "1", "23", "1,5", "٣", "½", "²", "Ⅳ", "a", "s", "B", "ß", "é", "Ж", "ж"]
    + ["中", "の", "カ", "한", "、", "。", "क", "्", "ა", "😀", "\U00020000", "No.", "Dr.", "z.B.", "don't", "l'eau", "e.g.", "li", "x."]
)


def classes():
    """Random characters of the whole of Unicode."""
    return chr(random.choice([*range(0x20, 0xD800)] + [*range(0xE000, 0x10000)] * 2 + [0x1D400, 0x1F600, 0x20001, 0x10428]))


def texts():
    """Natural texts by language, and a function that makes others."""
    natural = {}
    for code in LANGUAGES:
        lines = (SENTENCES / f"{code}.txt").read_text(encoding="utf-8").splitlines()
        natural[code] = [line for line in lines if line.strip() and not line.startswith("#")]
    mixed = [json.loads(line) for line in (HERE / "lines.jsonl").open(encoding="utf-8")]
    mixed = [line for line in mixed if len(line) < 200]

    def make(code, number):
        kind = number % 5
        if kind == 0:
            return random.choice(natural[code])
        if kind == 1:
            return random.choice(mixed)
        if kind == 2:
            return "".join(random.choice(MARKS) for _ in range(random.randrange(1, 14)))
        if kind == 3:
            text = random.choice(natural[code])
            begin = random.randrange(len(text))
            text = list(text[begin : begin + random.randrange(1, 40)])
            for _ in range(random.randrange(1, 6)):
                text.insert(random.randrange(len(text) + 1), random.choice(MARKS))
            return "".join(text)
        return "".join(random.choice([classes(), random.choice(MARKS), "ab c"]) for _ in range(random.randrange(1, 10)))

    return natural, make


def main(count=300, out=HERE / "moses.jsonl"):
    random.seed(7)
    natural, make = texts()
    with tempfile.NamedTemporaryFile("w+", encoding="utf-8") as file:
        file.write("\n".join(ABBREVIATIONS) + "\n")
        file.flush()
        words = {code: MosesTokenizer(code, custom_nonbreaking_prefixes_file=file.name) for code in LANGUAGES}
    normal = {code: MosesPunctNormalizer(code) for code in LANGUAGES}
    join = {code: MosesDetokenizer(code) for code in LANGUAGES}

    def moses(code, text):
        # `encode` of argostranslate's BPETokenizer.
        return " ".join(words[code].tokenize(normal[code].normalize(text))).strip("\r\n ").split(" ")

    corpus = "\n".join(" ".join(moses(code, line)) for code in LANGUAGES for line in natural[code])
    learned = io.StringIO()
    learn_bpe(io.StringIO(corpus), learned, 300, 2)
    codes = learned.getvalue()
    bpe = {"0.2": BPE(io.StringIO(codes)), "0.1": BPE(io.StringIO(codes.split("\n", 1)[1]))}
    assert {version: model.version for version, model in bpe.items()} == {"0.2": (0, 2), "0.1": (0, 1)}
    with open(out, "w", encoding="utf-8") as file:
        def write(row):
            print(json.dumps(row, ensure_ascii=False, separators=(",", ":")), file=file)

        write([codes, ABBREVIATIONS])
        for number in range(count):
            code = LANGUAGES[number // 5 % len(LANGUAGES)]
            version = "0.1" if number % 4 == 3 else "0.2"
            text = make(code, number)
            pieces = bpe[version].segment_tokens(moses(code, text))
            other = list(pieces)
            if number % 3:
                for _ in range(random.randrange(1, 5)):
                    one = random.choice(["&apos;", "&quot;", "@-@", "'", "s", "„", "“", "``", "12", ".", ",", "l&apos;", "&bar;", "?"])
                    other.insert(random.randrange(len(other) + 1), one)
            joined = " ".join(other).replace("@@ ", "").split(" ")
            # Rules that are not those of sacremoses, see `moses/mod.rs`.
            if code == "cs" and re.search(r"(^| )\d+ [.,]( |$)|' [-–] ", " ".join(joined)):
                other, joined = [], []
            write([code, version, text, pieces, other if other != pieces else None, join[code].detokenize(joined)])


if __name__ == "__main__":
    main(*[int(one) for one in sys.argv[1:2]], *sys.argv[2:3])
