"""Prints a digest of the results of the installed package for each instruction set of this CPU: `digest.py MODEL`.

MODEL is the demo model. Greedy search, beams, samples, scores, alignment weights and hidden states of its first held-out
sentences go into the digest, so that one line stands for every kernel that a translation uses.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path

import simdformer

SENTENCES = int(os.environ.get("SIMDFORMER_DIGEST_SENTENCES", "100"))


def main(model: str) -> None:
    lines = (Path(model) / "held_out.jsonl").read_text("utf-8").splitlines()
    sampling = {"options": simdformer.TranslatorOptions(sample=True), "seed": 1}
    texts = [json.loads(line)["source"] for line in lines[:SENTENCES]]
    for isa in simdformer.available_isas():
        digest = hashlib.sha256()
        with simdformer.Translator(model, isa=isa) as translator:
            rows = translator.encode(texts)
            for options in ({}, {"beams": 4, "num_return": 2}, sampling):
                found = translator.generate(rows, scores=True, **options)
                for array in (found.tokens.ids, found.tokens.offsets, found.scores):
                    digest.update(array.tobytes())
            translations = translator.translate(texts)
            digest.update("\n".join(translations).encode())
            digest.update(translator.align(texts[0], translations[0]).weights.tobytes())
        limits = simdformer.Limits(sentences=1, source_tokens=64, target_tokens=8)
        with simdformer.Session(simdformer.Model(model, isa=isa), limits) as session:
            digest.update(session.encoder_output([session.model.encode(texts[0])])[0].tobytes())
        print(isa, digest.hexdigest(), flush=True)


main(sys.argv[1])
