"""Train a Transformer-base (512 wide, 8 heads, 6 + 6 layers, 2048, 32,000 ids) just enough to have opinions.

Usage: python make_trained_base.py OUT [--minutes 10] [--threads 2]

The sentences are those of the demo's grammar (`train --sentences`), their words spread over all 32,000 ids, and the
`train` program of this repository learns them. OUT/model is the checkpoint, OUT/sources.jsonl are sentences that it has not
seen, each two to four of the grammar's in a row, for `cargo bench --bench drafts -- --model OUT/model --sources
OUT/sources.jsonl`. Nothing of it is kept.
"""

import argparse
import json
import pathlib
import random
import subprocess

import compare_training
from transformers import M2M100Config

p = argparse.ArgumentParser()
p.add_argument("out", type=pathlib.Path)
p.add_argument("--minutes", type=float, default=10.0)
p.add_argument("--threads", type=int, default=2)
a = p.parse_args()
a.out.mkdir(parents=True, exist_ok=True)

rng = random.Random(compare_training.SEED)
other = [0] + rng.sample(range(1, 31_999), 31_998)
sentences = [[[other[id] for id in side[:-1]] for side in pair] for pair in compare_training.demo_sentences()]
rng.shuffle(sentences)


def lines(pairs):
    """One to four sentences in a row, up to 60 tokens: texts as long as those that people translate."""
    at = 0
    while at < len(pairs):
        count = rng.randint(1, 4)
        source, target = ([id for pair in pairs[at : at + count] for id in pair[side]] for side in (0, 1))
        yield json.dumps({"source_ids": source + [0], "target_ids": target + [0]}) + "\n"
        at += count


held = 400
with open(a.out / "data.jsonl", "w") as file:
    # Each epoch of these is cut another way.
    for _ in range(4):
        rng.shuffle(learned := sentences[held:])
        file.writelines(lines(learned))
with open(a.out / "sources.jsonl", "w") as file:
    file.writelines(lines(sentences[:held]))
# Norms before each block: such a one learns in few steps.
config = M2M100Config(
    vocab_size=32_000,
    d_model=512,
    encoder_layers=6,
    decoder_layers=6,
    encoder_attention_heads=8,
    decoder_attention_heads=8,
    encoder_ffn_dim=2048,
    decoder_ffn_dim=2048,
    max_position_embeddings=512,
    scale_embedding=True,
    pad_token_id=31_999,
    bos_token_id=31_999,
    eos_token_id=0,
    decoder_start_token_id=31_999,
).to_dict()
(a.out / "config.json").write_text(json.dumps(config))
command = ["cargo", "run", "-q", "--release", "-p", "simdformer-train", "--example", "train", "--"]
command += ["--data", a.out / "data.jsonl", "--validate", a.out / "sources.jsonl", "--config", a.out / "config.json"]
command += ["--init", "glorot", "--model", a.out / "model", "--batch-tokens", "512", "--minutes", a.minutes]
command += ["--learning-rate", "1e-3", "--schedule", "constant", "--warmup-steps", "100", "--validate-every", "50"]
command += ["--save-every", "100000", "--best-metric", "loss", "--report-every", "10", "--dropout", "0", "--attention-dropout", "0", "--threads", a.threads]
subprocess.run(list(map(str, command)), cwd=compare_training.ROOT, check=True)
