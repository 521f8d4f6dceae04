"""What training writes, read by transformers: the same names, the same logits.

Usage: python train_parity.py [--programs ../target/release/examples] [--work DIR]

Trains a few steps from each checkpoint of golden/gradients that transformers has a class for, and one model of models/fr-en
from nothing; then transformers loads the directory with nothing missing, nothing unexpected and nothing of another shape, and
its logits, in float64, are compared with those that `generate --logits` says of the same directory: within 2e-5 of the
largest. The directory has the weights of `best`, bit by bit. Needs torch, transformers and
safetensors, and built examples: cargo build --release --features train --examples
"""

import argparse
import json
import pathlib
import subprocess
import tempfile

import torch
from safetensors.torch import load_file
from transformers import AutoModelForSeq2SeqLM

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
# Of the largest logit.
BOUND = 2e-5


def run(*command, stdin=""):
    return subprocess.run([str(part) for part in command], check=True, input=stdin, stdout=subprocess.PIPE, text=True).stdout


def checked(programs, folder, lines):
    """The largest distance of our logits from transformers', as a part of the largest logit."""
    model, info = AutoModelForSeq2SeqLM.from_pretrained(folder, output_loading_info=True, dtype="auto")
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not info[kind], f"{folder}: {kind} {info[kind]}"
    assert model.dtype == torch.float32, model.dtype
    if model.config.model_type == "umt5":
        # Version 5 scales its logits whatever the file says; the published models do not.
        model.config.tie_word_embeddings = False
    model.eval().double()
    requests = [{"input_ids": source, "decoder_input_ids": target} for source, target in lines]
    file = folder / "logits.safetensors"
    text = "\n".join(map(json.dumps, requests))
    run(programs / "generate", "--model", folder, "--logits", file, "--score", stdin=text)
    ours, worst = load_file(file), 0.0
    with torch.no_grad():
        for i, (source, target) in enumerate(lines):
            theirs = model(
                input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([target]), use_cache=False
            ).logits[0]
            found = ours[f"logits.{i}"]
            finite = torch.isfinite(theirs)
            assert found.shape == theirs.shape and (torch.isfinite(found) == finite).all()
            worst = max(worst, ((found.double() - theirs)[finite].abs().max() / theirs[finite].abs().max()).item())
    file.unlink()
    return worst


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--programs", type=pathlib.Path, default=ROOT / "target" / "release" / "examples")
    parser.add_argument("--work", type=pathlib.Path)
    args = parser.parse_args()
    work = args.work or pathlib.Path(tempfile.mkdtemp())
    work.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    cases = []
    for golden in sorted((HERE / "golden" / "gradients").iterdir()):
        kind = json.loads((golden / "config.json").read_text()).get("model_type", "")
        # torch.nn.Transformer has no class there.
        if kind and kind != "nn_transformer":
            cases.append((golden.name, golden / "batch.jsonl", ["--init-from", golden]))
    grammar = work / "sentences.jsonl"
    with (ROOT / "models" / "fr-en" / "held_out.jsonl").open(encoding="utf-8") as lines:
        rows = [json.loads(line) for _, line in zip(range(40), lines)]
    text = [json.dumps({"source_ids": row["source_ids"], "target_ids": row["greedy_ids"]}) for row in rows]
    grammar.write_text("\n".join(text) + "\n")
    cases.append(("from nothing", grammar, ["--config", ROOT / "models" / "fr-en"]))
    for name, data, begin in cases:
        folder = work / name.replace(" ", "-")
        run(
            args.programs / "train", "--data", data, "--validate", data, "--model", folder, *begin,
            "--steps", 3, "--batch-sentences", 3, "--dropout", 0, "--attention-dropout", 0, "--activation-dropout", 0,
            "--warmup-steps", 1, "--learning-rate", 0.01,
        )
        sentences = [json.loads(line) for line in data.read_text().splitlines()][:4]
        start = json.loads((folder / "config.json").read_text()).get("decoder_start_token_id")
        lines = [
            (row["source_ids"], [row["target_ids"][-1] if start is None else start] + row["target_ids"][:-1])
            for row in sentences
        ]
        worst = checked(args.programs, folder, lines)
        assert worst <= BOUND, f"{name}: {worst}"
        weights = load_file(folder / "model.safetensors")
        last = load_file(folder / "checkpoints" / "step-3" / "model.safetensors")
        assert weights.keys() == last.keys()
        moved = sum(not torch.equal(weights[key], last[key]) for key in weights)
        best = load_file(folder / "best" / "model.safetensors")
        assert all(torch.equal(weights[key], best[key]) for key in weights)
        print(f"{name}: logits within {worst:.1e} of the largest; {len(weights)} tensors, {moved} other than the last step's")


if __name__ == "__main__":
    main()
