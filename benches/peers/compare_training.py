"""Time training steps, ours and PyTorch's, in turn, and print one table of ratios.

Usage: python compare_training.py [--what demo,base] [--threads 1,2] [--rounds 3] [--work DIR]
                                  [--engines ours,eager,compile] [--write ../results/MACHINE.tsv]

demo: the model of models/fr-en (width 128, 3 + 2 layers, 2,318 ids) on sentences of its grammar, 192 a step.
base: Transformer-base (width 512, 6 + 6 layers, 8 heads, 2048, 32,000 ids, one table for all) on random sentences of 10 to
60 tokens, about 4,096 source tokens and as many target tokens a step.

A step is forward, label-smoothed loss, backward, the norm of all gradients clipped at 1, and Adam. Nobody uses dropout.
PyTorch runs transformers' MarianMTModel with its fused Adam, eagerly and compiled with dynamic shapes. It pads; so that it
pads little, its batches are cut from a pool of the sentences of 64 batches that is sorted by length and then shuffled. Ours takes the sentences as they come. Everybody sees the same sentences and
starts from the same weights, and counts tokens without padding. A ratio is the median over the rounds of our target tokens
a second over theirs, so above 1 we are faster. Run it where nothing else runs.

What is asked of our program, built once with `cargo build --release -p simdformer-train --example train`:

    train --benchmark --init-from DIR --data FILE.jsonl --batch-sentences N | --batch-tokens N --steps S --threads T
          --label-smoothing E --learning-rate R --clip-norm 1 --dropout 0

DIR holds config.json and model.safetensors as transformers writes them; a line of FILE.jsonl is
`{"source_ids": [...], "target_ids": [...]}`, ends included, the decoder start not. It takes S steps on the lines in any
order, from the first again when they end, and prints one line of JSON, the first steps included, which are dropped here:

    {"engine": "simdformer", "threads": T, "isa": "avx512", "seconds": [one number a step], "source_tokens": [one a step],
     "target_tokens": [one a step], "loss": [one a step], "plan_bytes": B, "allocations": 0}

A step's seconds go from its batch, as ids, to its updated parameters. `plan_bytes` is everything planned, parameters and
moments included, `allocations` those during the steps after the first.
"""

import argparse
import datetime
import json
import os
import pathlib
import random
import resource
import statistics
import subprocess
import sys
import time

import results

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
DEMO = ROOT / "models" / "fr-en"
SEED = 2017
# What every engine does before its steps count.
WARM = {"demo": 4, "base": 1}
STEPS = {"demo": 32, "base": 2}
POOL = 64
SENTENCES, TOKENS = 192, 4096
SMOOTHING = {"demo": 0.05, "base": 0.1}
RATE = 1e-4


def demo_sentences():
    """One more batch than counts."""
    pieces = json.loads((DEMO / "vocab.json").read_text(encoding="utf-8"))
    vocabulary = {piece.replace("▁", ""): number for piece, number in pieces.items()}
    command = [built(), "--sentences", str(SENTENCES * (POOL + 1)), "--seed", str(SEED)]
    lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, encoding="utf-8").stdout.splitlines()
    pairs = [(pair["source"], pair["target"]) for pair in map(json.loads, lines)]
    # A word that was not drawn when the vocabulary was made has no id.
    known = [pair for pair in pairs if all(word in vocabulary for text in pair for word in text.split())]
    return [tuple([vocabulary[word] for word in text.split()] + [0] for text in pair) for pair in known]


def base_sentences():
    rng, found, tokens = random.Random(SEED), [], 0
    while tokens < TOKENS * (POOL + 1):
        source = rng.randint(10, 60)
        target = min(60, max(10, round(source * rng.uniform(0.8, 1.25))))
        found.append(tuple([rng.randrange(2, 31_999) for _ in range(n - 1)] + [0] for n in (source, target)))
        tokens += source
    return found


def configuration(what):
    from transformers import MarianConfig

    if what == "demo":
        return MarianConfig(**json.loads((DEMO / "config.json").read_text()))
    return MarianConfig(
        vocab_size=32_000,
        d_model=512,
        encoder_layers=6,
        decoder_layers=6,
        encoder_attention_heads=8,
        decoder_attention_heads=8,
        encoder_ffn_dim=2048,
        decoder_ffn_dim=2048,
        activation_function="relu",
        dropout=0.0,
        max_position_embeddings=512,
        scale_embedding=True,
        pad_token_id=31_999,
        eos_token_id=0,
        decoder_start_token_id=31_999,
        forced_eos_token_id=None,
        bos_token_id=None,
    )


def prepared(what, work):
    """The initial weights and the sentences, in DIR/what."""
    import torch
    from transformers import MarianMTModel

    folder = work / what
    data = folder / "data.jsonl"
    if not data.exists():
        torch.manual_seed(SEED)
        MarianMTModel(configuration(what)).save_pretrained(folder)
        sentences = demo_sentences() if what == "demo" else base_sentences()
        random.Random(SEED).shuffle(sentences)
        with data.open("w") as file:
            for source, target in sentences:
                file.write(json.dumps({"source_ids": source, "target_ids": target}) + "\n")
    lines = map(json.loads, data.read_text().splitlines())
    return folder, [(line["source_ids"], line["target_ids"]) for line in lines]


def sorted_batches(what, sentences):
    """Of like lengths, in random order."""
    pool = sorted(sentences, key=lambda pair: (len(pair[0]), len(pair[1])))
    batches, tokens = [[]], 0
    for pair in pool:
        full = len(batches[-1]) == SENTENCES if what == "demo" else tokens + len(pair[0]) > TOKENS
        if full:
            batches.append([])
            tokens = 0
        batches[-1].append(pair)
        tokens += len(pair[0])
    # The last one is what was left.
    batches.pop()
    random.Random(SEED).shuffle(batches)
    return batches


class PyTorch:
    """One model and one Adam, for eager steps and for compiled ones."""

    def __init__(self, what, folder, sentences, threads):
        import torch
        from transformers import MarianMTModel
        from transformers.utils import logging

        logging.set_verbosity_error()
        logging.disable_progress_bar()
        torch.set_num_threads(threads)
        self.torch, self.what = torch, what
        self.model = MarianMTModel.from_pretrained(folder, dtype=torch.float32).train()
        for part in (self.model.model.encoder, self.model.model.decoder):
            # Loading forgets that the sinusoids are frozen.
            part.embed_positions.requires_grad_(False)
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.Adam(self.parameters, lr=RATE, betas=(0.9, 0.98), eps=1e-9, fused=True)
        self.pad = self.model.config.pad_token_id
        self.batches = [self.tensors(batch) for batch in sorted_batches(what, sentences)]
        self.forward = {"eager": self.loss, "compile": torch.compile(self.loss, dynamic=True)}
        self.next = 0

    def padded(self, rows, fill):
        width = max(map(len, rows))
        return self.torch.tensor([row + [fill] * (width - len(row)) for row in rows])

    def tensors(self, batch):
        sources, targets = zip(*batch)
        x, y = self.padded(sources, self.pad), self.padded(targets, -100)
        fed = self.padded([[self.pad, *target[:-1]] for target in targets], self.pad)
        sizes = (sum(map(len, sources)), sum(map(len, targets)))
        return (x, (x != self.pad).long(), fed, y), sizes, x.numel() + y.numel()

    def loss(self, source, mask, fed, labels):
        logits = self.model(input_ids=source, attention_mask=mask, decoder_input_ids=fed, use_cache=False).logits
        return self.torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), labels.flatten(), ignore_index=-100, label_smoothing=SMOOTHING[self.what]
        )

    def steps(self, how, count):
        """(seconds, target tokens) of each step, and the share of its positions that are padding."""
        took, real, all_ = [], 0, 0
        for _ in range(count):
            inputs, sizes, positions = self.batches[self.next % len(self.batches)]
            self.next += 1
            start = time.perf_counter()
            loss = self.forward[how](*inputs)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
            self.optimizer.step()
            value = loss.item()
            took.append((time.perf_counter() - start, sizes[1]))
            assert value == value, "the loss is no number"
            real += sum(sizes)
            all_ += positions
        return took, 1 - real / all_


def built():
    build = ["cargo", "build", "--quiet", "--release", "-p", "simdformer-train", "--example", "train"]
    subprocess.run(build, cwd=ROOT, check=True)
    return os.path.join(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"), "release", "examples", "train")


def ours(program, what, folder, threads):
    size = ["--batch-sentences", str(SENTENCES)] if what == "demo" else ["--batch-tokens", str(TOKENS)]
    command = [program, "--benchmark", "--init-from", str(folder), "--data", str(folder / "data.jsonl"), *size]
    command += ["--steps", str(WARM[what] + STEPS[what]), "--threads", str(threads), "--dropout", "0"]
    command += ["--label-smoothing", str(SMOOTHING[what]), "--learning-rate", str(RATE), "--clip-norm", "1"]
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    row = next(json.loads(line) for line in out.splitlines() if line.startswith("{"))
    assert all(loss == loss for loss in row["loss"]), "the loss is no number"
    took = list(zip(row["seconds"], row["target_tokens"]))[WARM[what] :]
    return took, f"{row['plan_bytes'] / 2**20:.0f} MiB, {row['allocations']} allocations"


def compared(what, threads, engines, rounds, work, program):
    """Target tokens a second and seconds a step, round by round, and what there is to say of each engine."""
    folder, sentences = prepared(what, work)
    peers = [engine for engine in engines if engine != "ours"]
    torch = PyTorch(what, folder, sentences, threads) if peers else None
    rates, seconds, told = {}, {}, {}
    for engine in peers:
        start = time.perf_counter()
        torch.steps(engine, WARM[what])
        print(f"{engine} is warm after {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
    for round_ in range(rounds):
        print(f"{what}, round {round_ + 1} of {rounds}", file=sys.stderr, flush=True)
        for engine in engines:
            if engine == "ours":
                took, told[engine] = ours(program, what, folder, threads)
            else:
                # The same batches for each.
                torch.next = round_ * STEPS[what]
                took, padding = torch.steps(engine, STEPS[what])
                told[engine] = f"{padding:.1%} padding"
            rates.setdefault(engine, []).append(sum(n for _, n in took) / sum(s for s, _ in took))
            seconds.setdefault(engine, []).append(statistics.median(s for s, _ in took))
    if torch:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
        print(f"{what}: PyTorch's process has had {peak:.0f} MiB", file=sys.stderr, flush=True)
    return rates, seconds, told


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--what", default="demo,base")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--engines", default="ours,eager,compile")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "target" / "training")
    parser.add_argument("--write")
    a = parser.parse_args()
    engines = a.engines.split(",")
    program = built() if "ours" in engines else None
    names = {"ours": "simdformer", "eager": "PyTorch, eager", "compile": "PyTorch, compiled"}
    for threads in map(int, a.threads.split(",")):
        table = [
            f"{datetime.date.today()}: one training step, f32, no dropout; target tokens per second without padding, "
            f"medians of {a.rounds} rounds in turn. PyTorch is 2.15 with its fused Adam and batches of like lengths; "
            "ours takes the sentences as they come.",
            "",
            "| model | engine | ms a step | target tok/s | ours over theirs | |",
            "|---|---|---|---|---|---|",
        ]
        for what in a.what.split(","):
            rates, seconds, told = compared(what, threads, engines, a.rounds, a.work, program)
            for engine in engines:
                ratio = ""
                if engine != "ours" and "ours" in rates:
                    ratio = f"{statistics.median(x / y for x, y in zip(rates['ours'], rates[engine])):.2f}"
                step, rate = (statistics.median(table_[engine]) for table_ in (seconds, rates))
                row = [what, names[engine], f"{1e3 * step:.0f}", f"{rate:.0f}", ratio, told[engine]]
                table.append(f"| {' | '.join(row)} |")
        text = "\n".join(table) + "\n"
        print(text, flush=True)
        if a.write:
            results.put(a.write, results.title("Training", threads), text)


if __name__ == "__main__":
    main()
