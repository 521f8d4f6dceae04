"""What training writes, read by transformers: the same names, the same logits.

Usage: python train_parity.py [--programs ../target/release] [--work DIR]

Trains a few steps from each checkpoint of golden/gradients that transformers has a class for, and one model of models/fr-en
from nothing; then transformers loads the directory with nothing missing, nothing unexpected and nothing of another shape, and
its logits, in float64, are compared with those that `simdformer generate --logits` writes for the same directory: within 2e-5 of the
largest. The directory has the weights of `best`, bit by bit. Needs torch, transformers and
safetensors, and built programs: cargo build --release -p simdformer-train --example train, and
cargo build --release -p simdformer-cli
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSeq2SeqLM, AutoModelForSpeechSeq2Seq

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "golden"))
import whisper  # noqa: E402

ROOT = HERE.parent
# Of the largest logit.
BOUND = 2e-5


def run(*command, stdin=""):
    return subprocess.run([str(part) for part in command], check=True, input=stdin, stdout=subprocess.PIPE, text=True).stdout


def checked(programs, folder, lines):
    """The largest distance of our logits from transformers', as a part of the largest logit."""
    heard = isinstance(lines[0][0], torch.Tensor)
    kind = AutoModelForSpeechSeq2Seq if heard else AutoModelForSeq2SeqLM
    model, info = kind.from_pretrained(folder, output_loading_info=True, dtype="auto")
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not info[kind], f"{folder}: {kind} {info[kind]}"
    assert model.dtype == torch.float32, model.dtype
    if model.config.model_type == "umt5":
        # Version 5 scales its logits whatever the file says; the published models do not.
        model.config.tie_word_embeddings = False
    model.eval().double()
    requests = [({} if heard else {"input_ids": source}) | {"decoder_input_ids": target} for source, target in lines]
    file, more = folder / "logits.safetensors", []
    if heard:
        features = folder.parent / "some_features.safetensors"
        save_file({f"features.{i}": source for i, (source, _) in enumerate(lines)}, features)
        more = ["--features", features]
    text = "\n".join(map(json.dumps, requests))
    run(programs / "simdformer", "generate", "--model", folder, "--logits", file, "--score", *more, stdin=text)
    ours, worst = load_file(file), 0.0
    with torch.no_grad():
        for i, (source, target) in enumerate(lines):
            if heard:
                theirs = whisper.logits(model, whisper.memory(model, source), target)
            else:
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
    parser.add_argument("--programs", type=pathlib.Path, default=ROOT / "target" / "release")
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
        features = data.parent / "features.safetensors"
        heard = load_file(features) if features.exists() else None
        # Of features there is nothing to validate with, so no save is the best.
        validate = ["--features", features] if heard else ["--validate", data]
        run(
            args.programs / "examples" / "train", "--data", data, *validate, "--model", folder, *begin,
            "--steps", 3, "--batch-sentences", 3, "--dropout", 0, "--attention-dropout", 0, "--activation-dropout", 0,
            "--warmup-steps", 1, "--learning-rate", 0.01,
        )
        sentences = [json.loads(line) for line in data.read_text().splitlines()][:4]
        start = json.loads((folder / "config.json").read_text()).get("decoder_start_token_id")
        lines = [
            (heard[f"features.{i}"] if heard else row["source_ids"], [row["target_ids"][-1] if start is None else start] + row["target_ids"][:-1])
            for i, row in enumerate(sentences)
        ]
        worst = checked(args.programs, folder, lines)
        assert worst <= BOUND, f"{name}: {worst}"
        weights = load_file(folder / "model.safetensors")
        last = load_file(folder / "checkpoints" / "step-3" / "model.safetensors")
        assert weights.keys() == last.keys()
        moved = sum(not torch.equal(weights[key], last[key]) for key in weights)
        best = weights if heard else load_file(folder / "best" / "model.safetensors")
        assert all(torch.equal(weights[key], best[key]) for key in weights)
        print(f"{name}: logits within {worst:.1e} of the largest; {len(weights)} tensors, {moved} other than the last step's")


if __name__ == "__main__":
    main()
