"""Write the goldens of the search: what transformers' `generate` answers, for three families, two seeds each.

Usage: python generate_search.py [NAME ...]     (all of them without a name; the files go to search/NAME)

Each folder holds a tiny checkpoint, `sources.json` (a ragged batch), `expected.safetensors` (encoder and teacher-forced
logits, as in generate.py, so that a wrong model is not taken for a wrong search) and `cases.jsonl`: one line a case,
`{"options": {...}, "results": [{"sentence": i, "sequences": [[...], ...], "scores": [...]}, ...]}`. Options carry the
names of `GenerationConfig` and are complete: nothing else was in force. Ids are those after the decoder start, end of
sentence included; scores are `sequences_scores`, null where one beam has none.

The reference runs in float64. A sentence is left out of a case when float32, or weights moved by a millionth, give
another answer: such a sentence tests rounding, not search.
"""

import json
import os
import sys
from collections import Counter

import torch
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    GenerationConfig,
    M2M100Config,
    M2M100ForConditionalGeneration,
    MarianConfig,
    MarianMTModel,
)

import golden

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "search")
MAX_NEW_TOKENS = 24
SOURCE_LENGTHS = [6, 2, 11, 4, 17, 8, 3, 13, 5]
TARGET_LENGTHS = [3, 7, 1, 9, 4, 2, 6, 5, 8]
BOUND = 2e-5 / 4


def dims(width, heads, encoder_layers, decoder_layers, ffn):
    return dict(
        d_model=width,
        encoder_attention_heads=heads,
        decoder_attention_heads=heads,
        encoder_layers=encoder_layers,
        decoder_layers=decoder_layers,
        encoder_ffn_dim=ffn,
        decoder_ffn_dim=ffn + 6,
        dropout=0.0,
        attention_dropout=0.0,
        activation_dropout=0.0,
        encoder_layerdrop=0.0,
        decoder_layerdrop=0.0,
        max_position_embeddings=48,
    )


def marian(seed, vocab, push, **d):
    config = MarianConfig(
        vocab_size=vocab,
        activation_function="swish",
        scale_embedding=True,
        pad_token_id=vocab - 1,
        eos_token_id=0,
        decoder_start_token_id=vocab - 1,
        bos_token_id=None,
        forced_eos_token_id=None,
        **d,
    )
    model = MarianMTModel(config).eval()
    last_norm = f"model.decoder.layers.{config.decoder_layers - 1}.final_layer_norm"
    golden.fill(model, seed, last_norm)
    bias_end(model, seed, push)
    return model, {}, dict(last=[0]), (1, vocab - 1)


def bart(seed, vocab, push, **d):
    config = BartConfig(
        vocab_size=vocab,
        activation_function="gelu",
        scale_embedding=False,
        pad_token_id=1,
        bos_token_id=0,
        eos_token_id=2,
        decoder_start_token_id=2,
        forced_eos_token_id=None,
        **d,
    )
    model = BartForConditionalGeneration(config).eval()
    last_norm = f"model.decoder.layers.{config.decoder_layers - 1}.final_layer_norm"
    golden.fill(model, seed, last_norm, sinusoidal=False)
    bias_end(model, seed, push)
    return model, {"forced_eos_token_id": 2}, dict(first=[0], last=[2]), (3, vocab)


def m2m(seed, vocab, push, **d):
    config = M2M100Config(
        vocab_size=vocab,
        activation_function="relu",
        scale_embedding=True,
        pad_token_id=1,
        bos_token_id=0,
        eos_token_id=2,
        decoder_start_token_id=2,
        **d,
    )
    model = M2M100ForConditionalGeneration(config).eval()
    golden.fill(model, seed, "model.decoder.layer_norm", last_bias=0.5)
    golden.favour(model, "model.decoder.layer_norm", model.lm_head.weight, 2, push)
    source, target = vocab - 2, vocab - 1
    return model, {"forced_bos_token_id": target}, dict(first=[source], last=[2]), (3, vocab - 2)


def bias_end(model, seed, push):
    with torch.no_grad():
        bias = torch.randn(model.final_logits_bias.shape, generator=torch.Generator().manual_seed(seed + 1))
        model.final_logits_bias.copy_(0.5 * bias)
        model.final_logits_bias[0, model.config.eos_token_id] = push


MODELS = {
    "marian_a": lambda: marian(89, 97, 3.0, **dims(24, 3, 2, 2, 40)),
    "marian_b": lambda: marian(133, 61, 2.5, **dims(32, 4, 1, 2, 45)),
    "bart_a": lambda: bart(599, 113, 2.0, **dims(20, 2, 2, 2, 35)),
    "bart_b": lambda: bart(151, 71, 3.0, **dims(32, 4, 2, 1, 33)),
    "m2m_a": lambda: m2m(468, 101, 2.0, **dims(24, 2, 2, 2, 41)),
    "m2m_b": lambda: m2m(513, 83, 1.5, **dims(30, 3, 1, 3, 37)),
}


class Runner:
    """One model three times: float64 (the reference), float32, and float64 with weights moved by a millionth."""

    def __init__(self, folder, kind, sources):
        load = lambda: kind.from_pretrained(folder, dtype=torch.float32).eval()
        self.double, self.single, self.jittered = load().double(), load(), load().double()
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for _, p in sorted(self.jittered.named_parameters()):
                p.mul_(1 + 1e-6 * torch.randn(p.shape, generator=generator, dtype=p.dtype))
        self.ids = {
            k: getattr(self.double.config, k) for k in ("pad_token_id", "eos_token_id", "decoder_start_token_id")
        }
        self.sources = sources

    def run(self, model, options, sources=None):
        """`[(sequences, scores, crossed)]` of each source; `crossed`: a path changed its beam after it began."""
        sources = sources or self.sources
        longest = max(map(len, sources))
        x = torch.tensor([s + [self.ids["pad_token_id"]] * (longest - len(s)) for s in sources])
        mask = torch.tensor([[1] * len(s) + [0] * (longest - len(s)) for s in sources])
        # From a fresh config, so that nothing of the folder's own is in force but what `options` say.
        model.generation_config = GenerationConfig(**self.ids)
        out = model.generate(
            x,
            attention_mask=mask,
            generation_config=GenerationConfig(**(self.ids | {"do_sample": False} | options)),
            return_dict_in_generate=True,
            output_scores=True,
        )
        n = options.get("num_return_sequences", 1)
        results = []
        for i in range(len(sources)):
            sequences, scores, crossed = [], [], False
            for row in range(i * n, (i + 1) * n):
                if options["num_beams"] > 1 and out.sequences_scores[row] < -1e8:
                    continue  # Fewer hypotheses exist than were asked for: the library fills up with impossible ones.
                sequence = out.sequences[row, 1:].tolist()
                while sequence[-1] == self.ids["pad_token_id"]:
                    sequence.pop()
                sequences.append(sequence)
                if options["num_beams"] > 1:
                    scores.append(round(float(out.sequences_scores[row]), 7))
                    path = [b for b in out.beam_indices[row, 1:].tolist() if b >= 0]
                    crossed |= len(set(path)) > 1
            results.append((sequences, scores or None, crossed))
        return results


def strategies(common, favourites, eos):
    """Every case's options. `favourites` are ids and pairs that this model likes to say, so that a ban bites."""
    base = {"max_new_tokens": MAX_NEW_TOKENS} | common
    greedy = base | {"num_beams": 1}
    beam4 = base | {"num_beams": 4, "num_return_sequences": 3, "length_penalty": 1.0, "early_stopping": False}
    yield greedy
    for beams in (2, 4, 5):
        for penalty in (0.6, 1.0, 2.0):
            for early in (False, True, "never"):
                yield base | {
                    "num_beams": beams,
                    "length_penalty": penalty,
                    "early_stopping": early,
                    "num_return_sequences": min(beams, 3),
                }
    for penalty in (0.0, -0.5):
        for early in (False, "never"):
            yield beam4 | {"length_penalty": penalty, "early_stopping": early}
    one, two, pair, triple, first = (favourites[k] for k in ("one", "two", "pair", "triple", "first"))
    bans = base["bad_words_ids"]
    extras = [
        {"repetition_penalty": 1.3},
        {"repetition_penalty": 0.8},
        {"no_repeat_ngram_size": 1},
        {"no_repeat_ngram_size": 2},
        {"no_repeat_ngram_size": 3},
        {"min_length": 12},
        {"min_new_tokens": 9},
        {"forced_bos_token_id": 7},
        {"forced_eos_token_id": eos},
        {"max_new_tokens": 5},
        {"max_new_tokens": 1},
        {"bad_words_ids": bans + [[one]]},
        {"bad_words_ids": bans + [pair, triple]},
        {"bad_words_ids": bans + [[one], pair, triple, [two]]},
        {"suppress_tokens": [one, two]},
        {"begin_suppress_tokens": first},
        {"sequence_bias": [[[one], -1.5], [pair, -2.5], [[two], 0.75]]},
        {"exponential_decay_length_penalty": [6, 1.15]},
        {"eos_token_id": [eos, two]},
        {"no_repeat_ngram_size": 2, "repetition_penalty": 1.3, "min_new_tokens": 6},
        {"no_repeat_ngram_size": 3, "bad_words_ids": bans + [[one], pair], "min_length": 8, "forced_bos_token_id": 7},
        {"repetition_penalty": 1.3, "suppress_tokens": [two], "forced_eos_token_id": eos, "max_new_tokens": 8},
    ]
    for extra in extras:
        yield greedy | extra
        yield beam4 | extra
    for extra, shape in zip(extras[-3:], ((2, 0.6, True), (5, 2.0, "never"), (5, 1.0, False))):
        yield (
            base
            | extra
            | dict(zip(("num_beams", "length_penalty", "early_stopping"), shape))
            | {"num_return_sequences": 2}
        )


def favourites_of(results, eos, forced):
    """Ids, pairs and triples that hypotheses say often, and the ids they begin with; never the end or a forced id."""
    winners = [[t for t in s if t not in (eos, forced)] for sequences, _, _ in results for s in sequences]
    grams = lambda n: Counter(tuple(s[i : i + n]) for s in winners for i in range(len(s) - n + 1))
    most = lambda counter: max(sorted(counter), key=counter.get)
    ones, pairs, triples = grams(1), grams(2), grams(3)
    one = most(ones)[0]
    del ones[one,]
    first = Counter(s[0] for s in winners if s)
    return {
        "one": one,
        "two": most(ones)[0],
        "pair": list(most(pairs)),
        "triple": list(most(triples)),
        "first": sorted(sorted(first), key=first.get)[-3:],
    }


def key_of(options):
    return json.dumps(options, sort_keys=True)


def write(name):
    torch.manual_seed(0)
    model, common, ends, (low, high) = MODELS[name]()
    folder, config = os.path.join(HERE, name), model.config
    common = {"bad_words_ids": [[config.pad_token_id]]} | common
    ids = {k: getattr(config, k) for k in ("pad_token_id", "eos_token_id", "decoder_start_token_id")}
    model.generation_config = GenerationConfig(max_length=48, num_beams=1, **ids, **common)
    model.save_pretrained(folder)
    sources = golden.ids(900, SOURCE_LENGTHS, low, high, **ends)
    targets = golden.ids(901, TARGET_LENGTHS, low, high, first=[config.decoder_start_token_id])
    runner = Runner(folder, type(model), sources)

    expected, errors = {}, []
    for i, (source, target) in enumerate(zip(sources, targets)):
        x, y = torch.tensor([source]), torch.tensor([target])
        out, rough = (m(input_ids=x, decoder_input_ids=y) for m in (runner.double, runner.single))
        errors.append(
            golden.check_close(
                f"{name} encoder {i}", rough.encoder_last_hidden_state, out.encoder_last_hidden_state, BOUND
            )
        )
        errors.append(golden.check_close(f"{name} logits {i}", rough.logits, out.logits, BOUND))
        expected |= {
            f"input_ids.{i}": source,
            f"encoder.{i}": out.encoder_last_hidden_state[0],
            f"decoder_input_ids.{i}": target,
            f"logits.{i}": out.logits[0],
        }

    plain = {"max_new_tokens": MAX_NEW_TOKENS, "num_beams": 4, "num_return_sequences": 3} | common
    eos = config.eos_token_id
    favourites = favourites_of(runner.run(runner.double, plain), eos, common.get("forced_bos_token_id"))
    cases, told = list(strategies(common, favourites, eos)), Counter()
    lines, answers = [], {}
    for number, options in enumerate(cases):
        reference = runner.run(runner.double, options)
        rivals = [runner.run(m, options) for m in (runner.single, runner.jittered)]
        kept = [i for i, r in enumerate(reference) if all(r[0] == rival[i][0] for rival in rivals)]
        if number % 8 == 3:
            # Padding and neighbours must not matter, or the case would test them.
            for i, source in enumerate(sources):
                alone = runner.run(runner.double, options, [source])[0]
                assert alone[0] == reference[i][0] or i not in kept, (
                    f"{name} {options} {i}: alone {alone}, in the batch {reference[i]}"
                )
        answers[key_of(options)] = [r[0] for r in reference]
        lines.append(
            {
                "options": options,
                "results": [{"sentence": i, "sequences": reference[i][0], "scores": reference[i][1]} for i in kept],
            }
        )
        told["sentences"] += len(sources)
        told["left out"] += len(sources) - len(kept)
        if options["num_beams"] > 1:
            told["beam cases"] += 1
            best_greedy = answers[key_of(cases[0])]
            told["beam, winner is not greedy's"] += any(reference[i][0][0] != best_greedy[i][0] for i in kept)
            told["beam, lengths differ within an n-best"] += any(
                len({len(s) for s in reference[i][0]}) > 1 for i in kept
            )
            told["beam, paths cross"] += any(reference[i][2] for i in kept)
    check(name, told, answers[key_of(cases[0])])
    golden.write_tensors(os.path.join(folder, "expected.safetensors"), expected)
    golden.write_json(os.path.join(folder, "sources.json"), sources)
    with open(os.path.join(folder, "cases.jsonl"), "w") as f:
        for line in lines:
            f.write(json.dumps(line, separators=(",", ":")) + "\n")
    lengths = {k: [len(s[0]) for s in answers[key_of(c)]] for k, c in (("greedy", cases[0]), ("beam 5", cases[19]))}
    print(f"{name}: {len(cases)} cases, {dict(told)}, torch f32 error {max(errors):.1e}, lengths {lengths}")
    return effects(cases, answers, common)


def check(name, told, greedy):
    """Refuse a model whose answers a wrong search would also give."""
    for what, least in (
        ("winner is not greedy's", 0.8),
        ("lengths differ within an n-best", 0.6),
        ("paths cross", 0.8),
    ):
        assert told["beam, " + what] >= least * told["beam cases"], f"{name}: too few cases where {what}: {dict(told)}"
    assert told["left out"] <= 0.03 * told["sentences"], f"{name}: too many sentences depend on rounding: {dict(told)}"
    assert len({len(s[0]) for s in greedy}) >= 4, f"{name}: greedy lengths {[len(s[0]) for s in greedy]}"


def effects(cases, answers, common):
    """For each added option, with one beam and with more: does the answer differ from the one without it?"""
    seen, base = {}, {"max_new_tokens": MAX_NEW_TOKENS} | common
    for options in cases:
        bare = base | {k: options[k] for k in ("num_beams", "num_return_sequences") if k in options}
        if options["num_beams"] > 1:
            bare |= {"length_penalty": 1.0, "early_stopping": False}
        added = sorted(k for k, v in options.items() if bare.get(k) != v)
        if added and key_of(bare) in answers:
            name = (options["num_beams"] > 1, *added)
            seen[name] = seen.get(name, False) or answers[key_of(bare)] != answers[key_of(options)]
    return seen


if __name__ == "__main__":
    golden.quiet_and_deterministic()
    with torch.no_grad():
        every = {}
        for wanted in sys.argv[1:] or MODELS:
            for key, differs in write(wanted).items():
                every[key] = every.get(key, 0) + differs
        print("models in which an option changes an answer:")
        for (beams, *added), count in sorted(every.items()):
            print(f"  {'beam' if beams else 'greedy'} {' + '.join(added)}: {count}")
        assert sys.argv[1:] or all(every.values()), "an option changes nothing in any model: its cases prove nothing"
