"""What the golden generators share: random weights worth testing with, and the checks that make a golden worth keeping.

A model with the usual tiny initialisation gives nearly uniform logits and repeats one token, so that a wrong engine
passes by luck and a right one fails by rounding. Here the scales are chosen so that outputs depend on everything, norms
and biases are far from one and zero, and each greedy choice must win by a margin.
"""

import json
import os

import torch
from safetensors.torch import save_file


def quiet_and_deterministic():
    """One thread and no warnings: the same bytes at every run on one machine."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


def fill(model, seed, last_norm, attention=0.7, ffn=0.8, embedding=0.3, last_bias=0.1, sinusoidal=True):
    """Fill every parameter from `seed`, in the order of names, whatever torch initialised it with.

    Matrices `[out, in]` get standard deviation `gain / sqrt(in)`: gain 2 for queries and keys, so that attention
    chooses, `attention` for values and outputs, `ffn` elsewhere; embeddings `embedding`; norm weights 1 +- 0.25, biases
    +- 0.1. Values and outputs stay below gain 1 because above it a random decoder forgets its input and says one token
    for ever. `last_norm` names the norm before the head: its weights get random signs, so that a
    token does not predict itself through a tied embedding. Sinusoidal position tables are left alone.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in sorted(model.named_parameters()):
            if sinusoidal and "embed_positions" in name:
                continue
            noise = torch.randn(p.shape, generator=generator)
            signs = torch.randint(0, 2, p.shape, generator=generator) * 2 - 1
            if p.dim() == 1 and name.endswith("weight"):
                p.copy_((1 + 0.25 * noise) * (signs if name == last_norm + ".weight" else 1))
            elif p.dim() == 1:
                p.copy_((last_bias if name == last_norm + ".bias" else 0.1) * noise)
            elif "embed" in name or "shared" in name:
                p.copy_(embedding * noise)
            else:
                gain = ffn if any(part in name for part in ("fc", "linear", "generator")) else attention
                rows = torch.full((p.shape[0], 1), gain)
                if "q_proj" in name or "k_proj" in name:
                    rows[:] = 2
                elif "in_proj" in name:
                    rows[: p.shape[0] * 2 // 3] = 2
                p.copy_(rows / p.shape[1] ** 0.5 * noise)


def favour(model, last_norm, table, token, push):
    """Raise the logit of `token` by about `push` in a model without an output bias: its row of the (tied) embedding
    moves along the bias of the last norm. Only for a token that the decoder never reads."""
    with torch.no_grad():
        bias = dict(model.named_parameters())[last_norm + ".bias"]
        table[token] += push * bias / bias.dot(bias)


def ids(seed, lengths, low, high, first=(), last=()):
    """Random sentences of `lengths` ids in `low..high`, `first` and `last` counted in the length."""
    generator = torch.Generator().manual_seed(seed)
    inner = len(first) + len(last)
    assert all(n >= inner for n in lengths), "a length has no room for the first and last ids"
    return [[*first, *torch.randint(low, high, (n - inner,), generator=generator).tolist(), *last] for n in lengths]


def write_tensors(path, tensors):
    """Save as safetensors: floats as f32, ids as i64."""
    plain = {}
    for name, t in tensors.items():
        t = torch.as_tensor(t)
        plain[name] = t.to(torch.float32 if t.is_floating_point() else torch.int64).contiguous().clone()
    save_file(plain, path)


def write_json(path, value):
    with open(path, "w") as f:
        json.dump(value, f, indent=2, sort_keys=True)
        f.write("\n")


def check_close(what, f32, f64, bound):
    """The f32 result of the same model must lie well inside the bound of the tests, or the model is ill-conditioned."""
    error = float((f32.double() - f64).abs().max() / f64.abs().max())
    assert error <= bound, (
        f"{what}: f32 differs from f64 by {error:.2e} of the largest magnitude, more than {bound:.0e}"
    )
    return error


def check_margin(what, scores, chosen, least=1e-4):
    """`scores` `[steps, vocab]`: at each step `chosen` beats the next best by `least` of the largest magnitude."""
    scores = scores.clone()
    best = scores.gather(1, chosen[:, None])[:, 0]
    scale = scores[scores.isfinite()].abs().max()
    scores.scatter_(1, chosen[:, None], -torch.inf)
    margin = float(((best - scores.max(1).values) / scale).min())
    assert margin >= least, f"{what}: a choice wins by {margin:.1e} of the largest logit only; choose another seed"
    return margin


def check_greedy(what, sequences, eos, limit):
    """A batch of greedy results must end at different lengths and must not be constant."""
    ended = [len(s) for s in sequences if s[-1] == eos]
    distinct = len({t for s in sequences for t in s})
    assert len(ended) >= 5, f"{what}: only {len(ended)} sequences end before {limit} tokens"
    assert len({len(s) for s in sequences}) >= 5, f"{what}: too few different lengths"
    assert distinct >= 20, f"{what}: only {distinct} distinct tokens"
    assert len({tuple(s) for s in sequences}) == len(sequences), f"{what}: equal sequences"
    return {"lengths": [len(s) for s in sequences], "ended": len(ended), "distinct": distinct}
