"""Compare every family at its published base dimensions: random weights, made, compared with transformers and deleted.

Usage: python published.py [--generate PROGRAM] [--new-tokens 8] [NAME ...]     (all of them without a name)

As ../parity.py: sentences of 1, 7 and 40 tokens go through `generate` and through transformers in float64, and a row of a
Markdown table is printed for each model. Widths, heads and vocabularies are the published ones; so are the layers, but for
models of more than 700 MB, of which two layers of each stack are made and the row says so, except the T5s and XLM-R. Errors are
shares of the largest magnitude, scores absolute; beside them what transformers' own float32 is off its float64,
and where a score is off by more than 1e-5, what its own scores are. (Its log-probabilities are float32's in either case.) Weights are
wide enough that greedy search has opinions.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time

import torch
import transformers
from transformers import GenerationConfig

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import generate_families
import golden
import parity
import whisper

LENGTHS = [1, 7, 40]


def bert(vocab, layers=12, positions=514, types=1, eps=1e-5, **more):
    return dict(
        vocab_size=vocab,
        hidden_size=768,
        num_hidden_layers=layers,
        num_attention_heads=12,
        intermediate_size=3072,
        max_position_embeddings=positions,
        type_vocab_size=types,
        layer_norm_eps=eps,
        **more,
    )


def bart(width, layers, heads, ffn, vocab=None, positions=1024, **more):
    encoder, decoder = layers
    return dict(
        d_model=width,
        encoder_layers=encoder,
        decoder_layers=decoder,
        encoder_attention_heads=heads,
        decoder_attention_heads=heads,
        encoder_ffn_dim=ffn,
        decoder_ffn_dim=ffn,
        max_position_embeddings=positions,
        **({} if vocab is None else {"vocab_size": vocab}),
        **more,
    )


def t5(vocab, layers, ffn, **more):
    sizes = dict(d_model=768, d_kv=64, num_heads=12, num_layers=layers, num_decoder_layers=layers, d_ff=ffn)
    return dict(vocab_size=vocab, decoder_start_token_id=0, **sizes, **more)


GATED = dict(feed_forward_proj="gated-gelu", tie_word_embeddings=False)
SEAMLESS = {k: v for k, v in bart(0, (2, 2), 16, 4096, 256206).items() if k != "d_model"}

# Name: classes, configuration, layers of the published model where fewer are made. Smallest first.
MODELS = {
    "distilbert-base-uncased": ("DistilBert", "Model", dict(), ""),
    "bert-base-uncased": ("Bert", "Model", bert(30522, positions=512, types=2, eps=1e-12), ""),
    "mpnet-base": ("MPNet", "Model", bert(30527), ""),
    "camembert-base": ("Camembert", "Model", bert(32005), ""),
    "roberta-base": ("Roberta", "Model", bert(50265), ""),
    "whisper-tiny": (
        "Whisper",
        "ForConditionalGeneration",
        {k: v for k, v in bart(384, (4, 4), 6, 1536, 51865).items() if k != "max_position_embeddings"}
        | dict(begin_suppress_tokens=None, suppress_tokens=None),
        "4 + 4",
    ),
    "opus-mt-en-fr": (
        "Marian",
        "MTModel",
        bart(
            512,
            (6, 6),
            8,
            2048,
            59514,
            512,
            activation_function="swish",
            scale_embedding=True,
            pad_token_id=59513,
            eos_token_id=0,
            bos_token_id=None,
            decoder_start_token_id=59513,
            forced_eos_token_id=0,
        ),
        "",
    ),
    "sentence-t5-base": ("T5", "EncoderModel", t5(32128, 12, 3072), ""),
    "blenderbot_small-90M": ("BlenderbotSmall", "ForConditionalGeneration", bart(512, (8, 8), 16, 2048, 54944, 512), ""),
    "plbart-base": (
        "PLBart",
        "ForConditionalGeneration",
        bart(768, (6, 6), 12, 3072, 50005, decoder_start_token_id=50004),
        "",
    ),
    "bart-base": ("Bart", "ForConditionalGeneration", bart(768, (6, 6), 12, 3072, 50265), ""),
    "t5-base": ("T5", "ForConditionalGeneration", t5(32128, 12, 3072), "12 + 12"),
    "flan-t5-base": ("T5", "ForConditionalGeneration", t5(32128, 12, 2048, **GATED), "12 + 12"),
    "mvp": ("Mvp", "ForConditionalGeneration", bart(1024, (2, 2), 16, 4096, 50267), "12 + 12"),
    "blenderbot-400M-distill": (
        "Blenderbot",
        "ForConditionalGeneration",
        bart(1280, (2, 2), 32, 5120, 8008, 128),
        "2 + 12",
    ),
    "wmt19-ru-en": (
        "FSMT",
        "ForConditionalGeneration",
        bart(1024, (2, 2), 16, 4096, src_vocab_size=31232, tgt_vocab_size=31640, langs=["ru", "en"]),
        "6 + 6",
    ),
    "pegasus-large": (
        "Pegasus",
        "ForConditionalGeneration",
        bart(1024, (2, 2), 16, 4096, 96103, scale_embedding=True, activation_function="relu"),
        "16 + 16",
    ),
    "m2m100_418M": ("M2M100", "ForConditionalGeneration", bart(1024, (2, 2), 16, 4096, 128112), "12 + 12"),
    "xlm-roberta-base": ("XLMRoberta", "Model", bert(250002), "12"),
    "mbart-large-cc25": (
        "MBart",
        "ForConditionalGeneration",
        bart(1024, (2, 2), 16, 4096, 250027, decoder_start_token_id=250020),
        "12 + 12",
    ),
    "nllb-200-distilled-600M": ("M2M100", "ForConditionalGeneration", bart(1024, (2, 2), 16, 4096, 256206), "12 + 12"),
    "seamless-m4t-medium": ("SeamlessM4T", "ForTextToText", dict(hidden_size=1024, **SEAMLESS), "12 + 12"),
    "mt5-base": ("MT5", "ForConditionalGeneration", t5(250112, 2, 2048, **GATED), "12 + 12"),
    "umt5-base": ("UMT5", "ForConditionalGeneration", t5(256384, 2, 2048, **GATED), "12 + 12"),
}
# What the tables above hold in full although the model is larger: their layers are narrow.
WHOLE = ("whisper-tiny", "t5-base", "flan-t5-base", "xlm-roberta-base")
SECOND = {"m2m100_418M", "nllb-200-distilled-600M"}


def make(name, folder):
    family, kind, settings, _ = MODELS[name]
    if name in SECOND:
        settings = settings | dict(scale_embedding=True, activation_function="relu", decoder_start_token_id=2)
    config = getattr(transformers, f"{family}Config")(**settings)
    torch.manual_seed(0)
    model = getattr(transformers, family + kind)(config).eval()
    # Tables of a formula, which nobody trains.
    sinusoidal = family in ("Marian", "FSMT", "Pegasus", "Whisper")
    formula = {n: p.detach().clone() for n, p in model.named_parameters() if "embed_positions" in n and sinusoidal}
    # Version 5 makes its configurations forget it.
    untied = settings.get("tie_word_embeddings") is False
    generate_families.fill(model, 1)
    with torch.no_grad():
        for n, p in model.named_parameters():
            if n in formula:
                p.copy_(formula[n])
            elif "embed" in n or "shared" in n:
                # Logits as wide as those of trained models: `fill` is for narrow ones. T5 divides its own by the root.
                p.mul_(1 / 0.3 if family == "T5" and not untied else 2 / config.hidden_size**0.5 / 0.3)
            elif n.rsplit(".", 2)[-2] in ("q_proj", "k_proj", "query", "key", "q_lin", "k_lin", "q", "k"):
                p.mul_(0.6)
    if hasattr(model, "generate") and model.can_generate():
        if untied and family in ("T5", "MT5", "UMT5"):
            generate_families.untie(model)
        generate_families.push_end(model, config.eos_token_id, 1)
        more = {"bad_words_ids": [[config.pad_token_id]]} if family in ("Marian", "FSMT") else {}
        model.generation_config = GenerationConfig(
            decoder_start_token_id=config.decoder_start_token_id,
            eos_token_id=config.eos_token_id,
            pad_token_id=config.pad_token_id,
            **more,
        )
    model.save_pretrained(folder)
    return sum(p.numel() for p in model.parameters())


def own_rounding(folder, decodes):
    """What float32 costs transformers: the largest errors for a sentence of 40 tokens, as shares of the largest number."""
    exact, _ = parity.load(folder)
    rough = parity.load(folder)[0].float()
    if exact.config.model_type == "whisper":
        generator = torch.Generator().manual_seed(0)
        sound = whisper.features(generator, 2 * exact.config.max_source_positions, exact.config.num_mel_bins)
        target = parity.ids(generator, LENGTHS[-1], 1000, None)
        memories = [whisper.memory(model, sound) for model in (rough, exact)]
        logits = [whisper.logits(model, memory, target) for model, memory in zip((rough, exact), memories)]
        return [parity.difference(*memories), parity.difference(*logits)]
    x = torch.tensor([parity.ids(torch.Generator().manual_seed(0), LENGTHS[-1], 1000, None)])
    more = dict(decoder_input_ids=x, use_cache=False) if decodes else {}
    outs = [model(input_ids=x, attention_mask=torch.ones_like(x), **more) for model in (rough, exact)]
    names = ("encoder_last_hidden_state", "logits") if decodes else ("last_hidden_state",)
    return [parity.difference(*(getattr(out, name) for out in outs)) for name in names]


def own_scores(folder, new_tokens):
    """What float32 costs transformers in the scores of four beams, where it finds the same ones."""
    exact, _ = parity.load(folder)
    rough = parity.load(folder)[0].float()
    worst, settings = 0.0, exact.generation_config
    generator = torch.Generator().manual_seed(0)
    for length in LENGTHS:
        x = torch.tensor([parity.ids(generator, length, exact.config.vocab_size, parity.first(settings.eos_token_id))])
        more = dict(num_beams=4, num_return_sequences=4, max_new_tokens=new_tokens, do_sample=False)
        more |= dict(return_dict_in_generate=True, output_scores=True, attention_mask=torch.ones_like(x))
        a, b = (model.generate(x, **more) for model in (rough, exact))
        if torch.equal(a.sequences, b.sequences):
            worst = max(worst, float((a.sequences_scores - b.sequences_scores).abs().max()))
    return worst


def row(name, program, new_tokens):
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        parameters = make(name, folder)
        model, decodes = parity.load(folder)
        worst, wrong = parity.measure(program, folder, model, decodes, LENGTHS, new_tokens)
        model_type = model.config.model_type
        del model
        note = "; ".join(wrong)
        own = own_rounding(folder, decodes)
        if not worst.get("scores", 0.0) <= parity.SCORE and model_type != "whisper":
            own.append(own_scores(folder, new_tokens))
    searched = {beams: not any(w.startswith(f"{beams} beams") for w in wrong) for beams in (1, 4)}
    told = {True: "same", False: "OTHER"}
    published = MODELS[name][3] if name not in WHOLE else ""
    layers = f"2 of {published.replace(' + ', ' and 2 of ')} layers" if published else "all layers"
    cells = [
        name,
        f"{parameters / 1e6:.0f} M, {layers}",
        f"{worst['encoder']:.1e}",
        f"{worst['logits']:.1e}" if decodes else "",
        told[searched[1]] if decodes else "",
        told[searched[4]] if decodes else "",
        f"{worst['scores']:.1e}" if decodes else "",
        ", ".join(f"{error:.1e}" for error in own),
        note,
    ]
    print("| " + " | ".join(cells) + " |", flush=True)
    print(f"{name}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    return not wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--generate", help="the program; built from this repository without it")
    parser.add_argument("--new-tokens", type=int, default=8)
    parser.add_argument("names", nargs="*", metavar="NAME")
    arguments = parser.parse_args()
    program = [arguments.generate] if arguments.generate else parity.built()
    golden.quiet_and_deterministic()
    torch.use_deterministic_algorithms(False)
    print("| model | parameters | encoder | logits | greedy | 4 beams | scores | transformers' own float32 | |", flush=True)
    print("|---" * 9 + "|", flush=True)
    with torch.no_grad():
        good = [row(name, program, arguments.new_tokens) for name in arguments.names or MODELS]
    sys.exit(not all(good))


if __name__ == "__main__":
    main()
