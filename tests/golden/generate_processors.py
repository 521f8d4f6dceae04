"""Write the goldens of the logits processors: what transformers makes of random logits, alone and combined.

Usage: python generate_processors.py      (writes search/processors.jsonl beside this script)

One line a case: `{"options": {...}, "vocab": n, "eos": id or ids, "max_length": n, "history": [...], "scores": [...],
"expected": [...], "order_matters": bool}`. Options carry the names of `GenerationConfig`, plus `allowed`: the ids that
the allowed-prefix function returns. `history` is what the decoder has read, decoder start included (prompt length 1);
minus infinity is null. The list of processors and its order are transformers' own (`_get_logits_processor`), so a line
with several options also tests the order. `order_matters` marks a case where equal logits straddle the threshold of
top-p: the reference leaves their ranking to an unstable sort, so it is made stable here (ascending, ids in order among
equals), and only the sorted values of `expected` are the reference's own.
"""

import contextlib
import json
import os

import torch
from transformers import GenerationConfig, MarianConfig, MarianMTModel

import golden

HERE = os.path.dirname(os.path.abspath(__file__))
VOCAB, EOS, PAD, MAX_LENGTH = 47, 2, 1, 12
SAMPLERS = {"temperature", "top_h", "top_k", "top_p", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff"}
HISTORY = [PAD, 5, 9, 5, 9, 30, 5, 9, 31, 5]  # 5 9 came three times; 30 or 31 may follow, 9 repeats the pair

ALONE = [
    {"repetition_penalty": 1.3},
    {"repetition_penalty": 0.7},
    {"no_repeat_ngram_size": 1},
    {"no_repeat_ngram_size": 2},
    {"no_repeat_ngram_size": 3},
    {"bad_words_ids": [[7], [40]]},
    {"bad_words_ids": [[31, 5, 11], [9, 31, 5, 12], [5, 13], [9, 14], [7]]},
    {"bad_words_ids": [[EOS], [8]]},
    {"sequence_bias": [[[7], -3.5], [[8], 2.25]]},
    {"sequence_bias": [[[31, 5, 11], 4.0], [[5, 11], -1.5], [[11], 0.5], [[9, 12], 9.0], [[12], -1.0]]},
    {"min_length": 11},
    {"min_new_tokens": 10},
    {"allowed": [3, 17, 29]},
    {"forced_bos_token_id": 21},
    {"forced_eos_token_id": EOS},
    {"forced_eos_token_id": [EOS, 33]},
    {"suppress_tokens": [0, 6, 46]},
    {"begin_suppress_tokens": [6, EOS]},
    {"exponential_decay_length_penalty": [3, 1.2]},
    {"exponential_decay_length_penalty": [8, 1.5]},
    {"exponential_decay_length_penalty": [9, 1.5]},
    {"temperature": 0.7},
    {"temperature": 3.0},
    {"top_k": 1},
    {"top_k": 5},
    {"top_k": 46},
    {"top_p": 0.1},
    {"top_p": 0.75},
    {"top_p": 0.95},
    {"top_p": 0.999},
    {"min_p": 0.02},
    {"min_p": 0.3},
    {"min_p": 1.0},
    {"typical_p": 0.1},
    {"typical_p": 0.5},
    {"typical_p": 0.9},
    {"epsilon_cutoff": 0.01},
    {"epsilon_cutoff": 0.05},
    {"epsilon_cutoff": 0.9},
    {"eta_cutoff": 0.001},
    {"eta_cutoff": 0.02},
    {"eta_cutoff": 0.3},
    {"renormalize_logits": True},
    {"repetition_penalty": 1.3, "eos_token_id": [EOS, 33], "min_length": 20},
    {"eos_token_id": [EOS, 33], "exponential_decay_length_penalty": [2, 1.1]},
]
# One step short of acting: an implementation that is off by one acts here.
IDLE = [
    {"no_repeat_ngram_size": 12},
    {"min_length": 10},
    {"min_new_tokens": 9},
    {"top_k": 500},
    {"sequence_bias": [[[30, 5, 11], 4.0]]},
]
TOGETHER = [
    {"repetition_penalty": 1.3, "no_repeat_ngram_size": 2},
    {"sequence_bias": [[[5], -2.0], [[30], 3.0]], "repetition_penalty": 1.7, "no_repeat_ngram_size": 3},
    {"sequence_bias": [[[EOS], 6.0]], "min_length": 20, "exponential_decay_length_penalty": [2, 1.5]},
    {"repetition_penalty": 1.2, "exponential_decay_length_penalty": [2, 1.3], "bad_words_ids": [[9], [5, 30]]},
    {"forced_eos_token_id": EOS, "min_length": 20, "suppress_tokens": [9]},
    {"forced_bos_token_id": 21, "bad_words_ids": [[20]], "begin_suppress_tokens": [6]},
    {"allowed": [3, 9, 17, EOS], "no_repeat_ngram_size": 2, "min_new_tokens": 20},
    {"allowed": [9], "no_repeat_ngram_size": 1, "temperature": 0.5},
    {"allowed": [4, 9, 30], "forced_eos_token_id": EOS, "repetition_penalty": 1.4},
    {"temperature": 0.6, "top_k": 10, "top_p": 0.8},
    {"temperature": 1.8, "top_k": 20, "min_p": 0.1},
    {"top_p": 0.9, "typical_p": 0.7},
    {"temperature": 1.5, "top_p": 0.9, "epsilon_cutoff": 0.02, "eta_cutoff": 0.05},
    {"top_k": 12, "typical_p": 0.6, "eta_cutoff": 0.01, "temperature": 0.9},
    {
        "temperature": 0.8,
        "top_k": 25,
        "top_p": 0.95,
        "min_p": 0.02,
        "typical_p": 0.95,
        "epsilon_cutoff": 0.001,
        "eta_cutoff": 0.0005,
    },
    {"repetition_penalty": 1.3, "no_repeat_ngram_size": 3, "temperature": 0.7, "top_k": 8},
    {"repetition_penalty": 1.5, "suppress_tokens": [3, 4], "temperature": 1.3, "top_p": 0.7},
    {"bad_words_ids": [[7], [5, 13]], "min_length": 20, "temperature": 0.9, "top_k": 6, "min_p": 0.05},
    {
        "sequence_bias": [[[5, 13], 5.0], [[40], -4.0]],
        "repetition_penalty": 1.1,
        "no_repeat_ngram_size": 2,
        "bad_words_ids": [[8]],
        "min_new_tokens": 20,
        "exponential_decay_length_penalty": [1, 1.05],
        "suppress_tokens": [44],
        "temperature": 1.2,
        "top_k": 30,
        "top_p": 0.9,
        "renormalize_logits": True,
    },
    {"top_h": 0.05},
    {"top_h": 0.4},
    {"top_h": 0.9},
    {"temperature": 1.6, "top_h": 0.5, "top_k": 4},
    {"temperature": 0.8, "top_h": 0.7, "top_p": 0.6, "min_p": 0.03},
]


def logits(kind, seed):
    """`plain`: normal. `ties`: multiples of a half, many equal. `banned`: ties, and a third already minus infinity."""
    x = 2.5 * torch.randn(VOCAB, generator=torch.Generator().manual_seed(seed))
    if kind != "plain":
        x = (2 * x).round() / 2
    if kind == "banned":
        x[torch.randperm(VOCAB, generator=torch.Generator().manual_seed(seed + 1))[: VOCAB // 3]] = -torch.inf
        x[EOS] = -1.5
    if kind == "log-probabilities":
        x = x.log_softmax(0)
    return x


def process(model, options, history, scores):
    plain = {k: v for k, v in options.items() if k != "allowed"}
    ids = {"eos_token_id": EOS, "pad_token_id": PAD, "decoder_start_token_id": PAD}
    # The library's own defaults for sampling (top_k 50 among them) are not part of a case.
    config = GenerationConfig(
        **(
            ids
            | {"max_length": MAX_LENGTH, "do_sample": bool(SAMPLERS & set(options)), "top_k": 0, "num_beams": 1}
            | plain
        )
    )
    model._prepare_special_tokens(config, kwargs_has_attention_mask=True, device="cpu")
    allowed = (lambda batch, sentence: options["allowed"]) if "allowed" in options else None
    processors = model._get_logits_processor(
        config, input_ids_seq_length=1, prefix_allowed_tokens_fn=allowed, device="cpu"
    )
    names = [type(p).__name__ for p in processors]
    return processors(torch.tensor([history]), scores[None].clone())[0], names


unstable_sort = torch.sort


def equals_in_order(x, descending=False):
    return unstable_sort(x, descending=descending, stable=True)


def equals_reversed(x, descending=False):
    values, indices = unstable_sort(x.flip(-1), descending=descending, stable=True)
    return values, x.shape[-1] - 1 - indices


@contextlib.contextmanager
def ranking(sort):
    """Let the library sort with `sort`, and take the best k by it."""

    def topk(x, k, dim=-1, largest=True, sorted=True):
        values, indices = sort(x, descending=largest)
        return torch.return_types.topk((values[..., :k], indices[..., :k]))

    before, torch.sort, torch.topk = (torch.sort, torch.topk), sort, topk
    try:
        yield
    finally:
        torch.sort, torch.topk = before


def plain_numbers(x):
    """Shortest decimal that reads back as the same f32; minus infinity as null."""
    return [None if v == -torch.inf else float(str(v)) for v in x.numpy()]


def main():
    model = MarianMTModel(
        MarianConfig(
            vocab_size=VOCAB,
            d_model=8,
            encoder_layers=1,
            decoder_layers=1,
            encoder_attention_heads=1,
            decoder_attention_heads=1,
            encoder_ffn_dim=8,
            decoder_ffn_dim=8,
            pad_token_id=PAD,
            decoder_start_token_id=PAD,
            eos_token_id=EOS,
            max_position_embeddings=8,
        )
    ).eval()
    lines, seen, left_out, seed = [], set(), 0, 0
    for options in ALONE + IDLE + TOGETHER:
        # Start of a sentence, its middle, and the step before the longest length.
        moments = (
            [HISTORY, HISTORY + [9]]
            if not {"forced_bos_token_id", "begin_suppress_tokens"} & set(options)
            else [[PAD], [PAD, 21], HISTORY]
        )
        changed = False
        for history in moments:
            for kind in ("plain", "ties", "banned") + (
                ("log-probabilities",) if "repetition_penalty" in options else ()
            ):
                seed += 1
                scores = logits(kind, seed)
                expected, names = process(model, options, history, scores)
                assert not expected.isnan().any(), (options, kind)
                double = process(model, options, history, scores.double())[0]
                with ranking(equals_reversed):
                    reversed_equals = process(model, options, history, scores)[0]
                # In float64 the same tokens must fall, or rounding decides at a threshold and the case is of no use.
                if not torch.equal(double.isneginf(), expected.isneginf()):
                    left_out += 1
                    continue
                changed |= not torch.equal(expected, scores)
                seen |= set(names)
                lines.append(
                    {
                        "options": options,
                        "vocab": VOCAB,
                        "eos": options.get("eos_token_id", EOS),
                        "max_length": MAX_LENGTH,
                        "history": history,
                        "scores": plain_numbers(scores),
                        "expected": plain_numbers(expected),
                        "order_matters": not torch.equal(reversed_equals, expected),
                    }
                )
        assert changed != (options in IDLE), f"{options}: changed anything: {changed}"
    os.makedirs(os.path.join(HERE, "search"), exist_ok=True)
    with open(os.path.join(HERE, "search", "processors.jsonl"), "w") as f:
        for line in lines:
            f.write(json.dumps(line, separators=(",", ":")) + "\n")
    ranked = sum(line["order_matters"] for line in lines)
    print(f"processors: {len(lines)} cases of {len(seen)} processors, {ranked} depend on the ranking of equal logits")
    print(f"{left_out} dropped because rounding decides")


if __name__ == "__main__":
    golden.quiet_and_deterministic()
    with torch.no_grad(), ranking(equals_in_order):
        main()
