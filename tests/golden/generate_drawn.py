"""Write the goldens of beam sampling: what transformers' `generate` answers when it draws the continuations of beams.

Usage: python generate_drawn.py      (writes drawn.jsonl into each folder that generate_search.py has made)

The lines are those of cases.jsonl, with `do_sample` understood and `seed` added. The only thing replaced in the
reference is its source of chance: `torch.multinomial` draws without replacement by inversion of the cumulative
distribution, in the order of beams and ids, with the numbers that the search documents: Philox4x32-10 of the key
`seed` and the counter (stream, draw, step), where the stream of sentence i is i. The filters, the sums, which
continuations end or go on, and when a sentence is done are its own.
"""

import json
import os
import sys

import torch
from transformers import AutoModelForSeq2SeqLM

import golden
from generate_search import HERE, MAX_NEW_TOKENS, MODELS, Runner

WORD = 2**32


def philox(counter, key):
    """Ten rounds of Philox4x32 (Salmon et al. 2011)."""
    for _ in range(10):
        first, second = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [
            second // WORD ^ counter[1] ^ key[0],
            second % WORD,
            first // WORD ^ counter[3] ^ key[1],
            first % WORD,
        ]
        key = [(key[0] + 0x9E3779B9) % WORD, (key[1] + 0xBB67AE85) % WORD]
    return counter


def uniform(seed, stream, sequence, step):
    high, low, *_ = philox([stream % WORD, stream // WORD, sequence, step], [seed % WORD, seed // WORD])
    return ((high * WORD + low) >> 11) / 2**53


class Draws:
    """Stands in for `torch.multinomial`: one call a step."""

    def __init__(self, seed, streams):
        self.seed, self.streams, self.step = seed, streams, 0

    def __call__(self, probabilities, num_samples):
        chosen = []
        for row, stream in zip(probabilities.double(), self.streams):
            row, ids = row.clone(), []
            for draw in range(num_samples):
                mass = row.cumsum(0)
                if mass[-1] > 0:
                    goal = uniform(self.seed, stream, draw, self.step) * mass[-1]
                    id = int(torch.searchsorted(mass, goal, right=True).clamp(max=int(row.nonzero().max())))
                else:
                    # Nothing is left: what comes now has no probability and never comes out.
                    id = next(i for i in range(len(row)) if i not in ids)
                ids.append(id)
                row[id] = 0
            chosen.append(ids)
        self.step += 1
        return torch.tensor(chosen)


def run(runner, model, options, sources=None, streams=None):
    options = dict(options)
    streams = streams or range(len(runner.sources))
    before, torch.multinomial = torch.multinomial, Draws(options.pop("seed"), streams)
    try:
        return runner.run(model, options | {"do_sample": True, "top_k": options.get("top_k", 0)}, sources)
    finally:
        torch.multinomial = before


def strategies(common, eos):
    base = {"max_new_tokens": MAX_NEW_TOKENS} | common
    beam = base | {"num_beams": 4, "num_return_sequences": 3, "length_penalty": 1.0, "early_stopping": False}
    yield beam | {"seed": 1, "temperature": 0.7}
    for seed in (2, 3):
        for beams, penalty, early in ((2, 0.6, False), (3, 1.0, True), (4, 2.0, "never"), (5, 1.0, False)):
            yield beam | {
                "num_beams": beams,
                "num_return_sequences": min(beams, 3),
                "length_penalty": penalty,
                "early_stopping": early,
                "temperature": 0.6,
                "seed": seed,
            }
    for extra in (
        {"top_k": 3},
        {"top_k": 1},
        {"top_p": 0.6},
        {"top_h": 0.5},
        {"min_p": 0.2},
        {"typical_p": 0.5},
        {"epsilon_cutoff": 0.05},
        {"eta_cutoff": 0.1},
        {"temperature": 1.4, "top_k": 8, "top_p": 0.9},
        {"temperature": 0.8, "repetition_penalty": 1.3},
        {"temperature": 0.8, "no_repeat_ngram_size": 2},
        {"temperature": 0.8, "min_new_tokens": 9},
        {"temperature": 0.8, "forced_bos_token_id": 7},
        {"temperature": 0.8, "forced_eos_token_id": eos, "max_new_tokens": 6},
        {"temperature": 0.8, "eos_token_id": [eos, 11]},
        {"temperature": 0.8, "max_new_tokens": 1},
        {"temperature": 0.8, "renormalize_logits": True},
    ):
        yield beam | {"seed": 2**40 + 5} | extra


def write(name):
    folder = os.path.join(HERE, name)
    with open(os.path.join(folder, "sources.json")) as f:
        sources = json.load(f)
    with open(os.path.join(folder, "generation_config.json")) as f:
        saved = json.load(f)
    common = {k: saved[k] for k in ("bad_words_ids", "forced_bos_token_id", "forced_eos_token_id") if saved.get(k)}
    runner = Runner(folder, AutoModelForSeq2SeqLM, sources)
    lines, sentences, kept_in_all, seen = [], 0, 0, set()
    for number, options in enumerate(strategies(common, saved["eos_token_id"])):
        reference = run(runner, runner.double, options)
        rivals = [run(runner, model, options) for model in (runner.single, runner.jittered)]
        kept = [i for i, r in enumerate(reference) if all(r[0] == rival[i][0] for rival in rivals)]
        if number % 8 == 3:
            for i, source in enumerate(sources):
                alone = run(runner, runner.double, options, [source], [i])[0]
                assert alone[0] == reference[i][0] or i not in kept, f"{name} {options} {i}: {alone}, {reference[i]}"
        sentences, kept_in_all = sentences + len(sources), kept_in_all + len(kept)
        seen.add(json.dumps([r[0] for r in reference]))
        results = [{"sentence": i, "sequences": reference[i][0], "scores": reference[i][1]} for i in kept]
        lines.append({"options": options, "results": results})
    assert kept_in_all >= 0.97 * sentences, f"{name}: too many depend on rounding: {kept_in_all} of {sentences}"
    assert len(seen) >= 0.9 * len(lines), f"{name}: {len(seen)} answers in {len(lines)} cases"
    with open(os.path.join(folder, "drawn.jsonl"), "w") as f:
        for line in lines:
            f.write(json.dumps(line, separators=(",", ":")) + "\n")
    print(f"{name}: {len(lines)} cases, {kept_in_all} of {sentences} sentences, {len(seen)} answers that differ")


if __name__ == "__main__":
    golden.quiet_and_deterministic()
    with torch.no_grad():
        for wanted in sys.argv[1:] or MODELS:
            write(wanted)
