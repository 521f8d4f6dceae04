"""Write the goldens of training: gradients of whole models from PyTorch's autograd, and ten losses of Adam.

Usage: python gradients.py [NAME ...]     (all of them without a name; the files go to gradients/NAME)

Each folder holds a tiny random checkpoint, `batch.jsonl`, whose lines are `{"source_ids": [...], "target_ids": [...]}`
with the end of the sentence and without the decoder start (Whisper's have no source: `features.safetensors` has
`features.{i}`, `[frames, bins]`, of line i), `gradients.safetensors`, the gradient in float64 of every
parameter of the file that learns, under its name there, and `expected.json`:

    label_smoothing           of the gradients and of the run: PyTorch's, q = (1 - s) [the target] + s / vocabulary
    loss                      for smoothing 0 and 0.1, in float32 and float64: the mean over the target tokens
    target_tokens             how many these are
    decoder_input_ids         what the decoder was fed, sentence by sentence
    frozen                    what the file holds besides: no gradient, never moved
    lookups_without_gradient  tables of which a row gets no gradient from its lookups (`padding_idx`): table, row
    zero_but_for_rounding     the keys' biases: they move every score of a query alike
    gradients                 of each parameter: `largest`, the largest magnitude; `f32_error`, the largest difference
                              of float32's gradient of the padded batch; `f32_error_worst`, the largest of those of
                              eight orders of the sentences and of the sentences one by one: float32 is no single number;
                              `f32_distance`, the largest Euclidean distance of those
    run                       ten steps of Adam without clipping: `orders`, the order of the lines of each step, and
                              `losses`, each before its update

The decoder's inputs are those that the library itself makes of the labels, and the loss at smoothing 0 is its own.
Every gradient is held to central differences in float64, along itself and a random direction, to 1e-6 of its norm. No
hidden unit of a ReLU is close to its kink.
"""

import json
import os
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    M2M100Config,
    M2M100ForConditionalGeneration,
    MarianMTModel,
    MBartConfig,
    MBartForConditionalGeneration,
    PegasusConfig,
    PegasusForConditionalGeneration,
    T5Config,
    T5ForConditionalGeneration,
    UMT5Config,
    UMT5ForConditionalGeneration,
    WhisperConfig,
    WhisperForConditionalGeneration,
)
from transformers.models.t5 import modeling_t5
from transformers.models.umt5 import modeling_umt5

import generate_families as families
import golden
import whisper
from generate import Translator, marian_config
from generate_families import Refused, stacks, t5, untie

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "gradients")
SOURCE_LENGTHS = [7, 1, 21, 2, 11, 4]
# Of which an encoder of features makes as many positions.
FRAMES = [13, 1, 42, 4, 21, 8]
TARGET_LENGTHS = [5, 9, 1, 6, 3, 19]
LONGEST = 24
SMOOTHINGS = (0.0, 0.1)
STEPS, ORDERS = 10, 8
IGNORED = -100
# Of the largest hidden value of a ReLU: none is closer to zero.
KINK = 1e-4


def mean_square_norm(self, x):
    """As the library's, but in the type of its input: its own rounds the variance to float32."""
    return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))


for norm in (modeling_t5.T5LayerNorm, modeling_umt5.UMT5LayerNorm):
    norm.forward = mean_square_norm


def plain(**changes):
    return {
        "model_type": "nn_transformer",
        "layer_norm_eps": 1e-5,
        "positions": "interleaved",
        "scale_embedding": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
    } | changes


def relative(kind, *sizes, **more):
    return kind(**t5(*sizes, dropout_rate=0.0, **more))


def still(width, layers, heads, ffn, **more):
    """The sizes of a model without dropout; its decoder's hidden layers are wider by six."""
    return dict(dropout=0.0, **stacks(width, layers, heads, ffn, max_position_embeddings=LONGEST, **more))


# name: configuration, class, what the gradients are smoothed by, languages at the end of each sentence.
MODELS = {
    "marian_silu": (
        marian_config(
            **{k: v for k, v in still(12, (2, 2), (3, 2), 18, vocab_size=41).items() if k != "dropout"},
            activation_function="swish",
            eos_token_id=0,
            pad_token_id=40,
            decoder_start_token_id=40,
        ),
        MarianMTModel,
        0.1,
    ),
    "marian_relu_untied": (
        marian_config(
            **{k: v for k, v in still(16, (1, 1), (4, 2), 33, vocab_size=43).items() if k != "dropout"},
            decoder_vocab_size=37,
            share_encoder_decoder_embeddings=False,
            activation_function="relu",
            eos_token_id=0,
            pad_token_id=36,
            decoder_start_token_id=36,
        ),
        MarianMTModel,
        0.0,
    ),
    "bart": (BartConfig(**still(18, (1, 1), (2, 3), 25, vocab_size=29)), BartForConditionalGeneration, 0.1),
    "mbart": (
        MBartConfig(**still(12, (2, 1), (3, 2), 23, vocab_size=53), scale_embedding=True),
        MBartForConditionalGeneration,
        0.0,
    ),
    "m2m100": (
        M2M100Config(
            **still(12, (1, 2), (2, 3), 19, vocab_size=61),
            encoder_layerdrop=0.0,
            decoder_layerdrop=0.0,
            attention_dropout=0.0,
        ),
        M2M100ForConditionalGeneration,
        0.1,
    ),
    "pegasus": (
        PegasusConfig(**still(18, (1, 1), (3, 2), 33, vocab_size=31), scale_embedding=True, activation_function="relu"),
        PegasusForConditionalGeneration,
        0.0,
    ),
    "t5": (relative(T5Config, 37, 20, 3, 4, (2, 1), 18), T5ForConditionalGeneration, 0.1),
    "t5_v1_1": (
        relative(T5Config, 41, 12, 5, 2, (2, 2), 23, feed_forward_proj="gated-gelu", tie_word_embeddings=False),
        T5ForConditionalGeneration,
        0.0,
    ),
    "umt5": (relative(UMT5Config, 29, 12, 4, 3, (2, 2), 18), UMT5ForConditionalGeneration, 0.0),
    "whisper": (
        WhisperConfig(
            dropout=0.0,
            **stacks(18, (1, 1), (2, 3), 25, vocab_size=31, num_mel_bins=5),
            max_source_positions=LONGEST,
            max_target_positions=LONGEST,
            bos_token_id=0,
            pad_token_id=1,
            eos_token_id=2,
            decoder_start_token_id=30,
            begin_suppress_tokens=None,
        ),
        WhisperForConditionalGeneration,
        0.1,
    ),
    "nn_transformer_pre": (
        plain(
            d_model=12,
            nhead=3,
            num_encoder_layers=2,
            num_decoder_layers=1,
            dim_feedforward=40,
            activation="gelu",
            norm_first=True,
            src_vocab_size=37,
            tgt_vocab_size=29,
        ),
        Translator,
        0.0,
    ),
    "nn_transformer_post": (
        plain(
            d_model=14,
            nhead=2,
            num_encoder_layers=1,
            num_decoder_layers=1,
            dim_feedforward=17,
            activation="relu",
            norm_first=False,
            src_vocab_size=31,
            tgt_vocab_size=33,
        ),
        Translator,
        0.1,
    ),
}


def is_plain(config):
    return isinstance(config, dict)


def is_whisper(config):
    return not is_plain(config) and config.model_type == "whisper"


def setting(config, name):
    return config[name] if is_plain(config) else getattr(config, name)


def save(folder, name, seed):
    """A random checkpoint, as its library writes it."""
    config, kind, _ = MODELS[name]
    torch.manual_seed(0)
    model = kind(config)
    if is_plain(config):
        golden.fill(model, seed, "transformer.decoder.norm")
        golden.write_json(os.path.join(folder, "config.json"), config)
        tensors = {k.removeprefix("transformer."): v.contiguous() for k, v in model.state_dict().items()}
        return save_file(tensors, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
    if name in ("t5_v1_1", "umt5"):
        untie(model)
    if kind is MarianMTModel:
        golden.fill(model, seed, f"model.decoder.layers.{config.decoder_layers - 1}.final_layer_norm")
    else:
        families.fill(model, seed)
    if hasattr(model, "final_logits_bias"):
        generator = torch.Generator().manual_seed(seed + 1)
        model.final_logits_bias.copy_(0.5 * torch.randn(model.final_logits_bias.shape, generator=generator))
    model.save_pretrained(folder)
    os.remove(os.path.join(folder, "generation_config.json"))


def load(folder, name, dtype):
    config, kind, _ = MODELS[name]
    if is_plain(config):
        model = kind(config)
        tensors = load_file(os.path.join(folder, "model.safetensors"))
        outside = ("src_embed", "tgt_embed", "generator")
        model.load_state_dict({k if k.startswith(outside) else f"transformer.{k}": v for k, v in tensors.items()})
    else:
        model = families.load(folder, kind)
        for module in model.modules():
            if "Sinusoidal" in type(module).__name__:
                # Read without gradients; loading forgets that they are frozen.
                module.requires_grad_(False)
        if is_whisper(config):
            model.model.encoder.embed_positions.requires_grad_(False)
    return model.train().to(dtype)


def sentences(config, seed):
    """Sources and targets, each with its end; mBART's end with their language, and Whisper's sources are features."""
    end = setting(config, "eos_token_id")
    languages = []
    if setting(config, "model_type") == "mbart":
        languages = [config.vocab_size - 2, config.vocab_size - 1]
    if is_plain(config):
        vocabs = config["src_vocab_size"], config["tgt_vocab_size"]
    else:
        vocabs = config.vocab_size, getattr(config, "decoder_vocab_size", None) or config.vocab_size
    low = 1 if end == 0 else 3
    generator = torch.Generator().manual_seed(seed + 2)
    sides = []
    for side, (lengths, vocab) in enumerate(zip((SOURCE_LENGTHS, TARGET_LENGTHS), vocabs)):
        rows = []
        for i, n in enumerate(lengths):
            last = [end, *languages[(i + side) % 2 :][:1]][-n:]
            high = vocab - max(1, len(languages))
            rows.append(torch.randint(low, high, (n - len(last),), generator=generator).tolist() + last)
        sides.append(rows)
    if is_whisper(config):
        sides[0] = [whisper.features(generator, n, config.num_mel_bins) for n in FRAMES]
    return sides


def fed(name, model, targets):
    """What the decoder reads of each target, as the library shifts it."""
    config, _, _ = MODELS[name]
    if is_plain(config):
        return [[config["bos_token_id"], *target[:-1]] for target in targets]
    made = []
    for target in targets:
        labels = torch.tensor([target])
        if hasattr(model, "_shift_right"):
            row = model._shift_right(labels)
        else:
            module = sys.modules[type(model).__module__]
            start = [config.decoder_start_token_id] * (config.model_type != "mbart")
            row = module.shift_tokens_right(labels, config.pad_token_id, *start)
        made.append(row[0].tolist())
    return made


def padded(rows, fill):
    width = max(map(len, rows))
    return torch.tensor([row + [fill] * (width - len(row)) for row in rows])


def logits(model, config, sources, inputs):
    if is_whisper(config):
        # One by one: the library has no mask for frames.
        rows = [whisper.logits(model, whisper.memory(model, x), y) for x, y in zip(sources, inputs)]
        return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    pad = setting(config, "pad_token_id")
    x, y = padded(sources, pad), padded(inputs, pad)
    seen = padded([[1] * len(row) for row in sources], 0)
    if not is_plain(config):
        return model(input_ids=x, attention_mask=seen, decoder_input_ids=y, use_cache=False).logits
    hidden = seen == 0
    memory = model.transformer.encoder(model.embed(model.src_embed, x), src_key_padding_mask=hidden)
    causal = torch.ones(y.shape[1], y.shape[1], dtype=torch.bool).triu(1)
    out = model.transformer.decoder(
        model.embed(model.tgt_embed, y), memory, tgt_mask=causal, memory_key_padding_mask=hidden
    )
    return model.generator(out)


def own_loss(model, config, sources, targets):
    """What the library itself says, without smoothing."""
    if is_whisper(config):
        encoded = [whisper.outputs(whisper.memory(model, x)) for x in sources]
        losses = [model(encoder_outputs=e, labels=torch.tensor([y])).loss for e, y in zip(encoded, targets)]
        return sum(len(y) * loss for loss, y in zip(losses, targets)) / sum(map(len, targets))
    return model(
        input_ids=padded(sources, config.pad_token_id),
        attention_mask=padded([[1] * len(row) for row in sources], 0),
        labels=padded(targets, IGNORED),
    ).loss


def loss_of(model, config, batch, smoothing, tokens=None):
    """The mean over the target tokens; with `tokens`, the sum over this many."""
    sources, targets, inputs = zip(*batch)
    labels = padded(targets, IGNORED).flatten()
    rows = logits(model, config, sources, inputs).flatten(0, 1)
    how = dict(ignore_index=IGNORED, label_smoothing=smoothing)
    if tokens is None:
        return F.cross_entropy(rows, labels, **how)
    return F.cross_entropy(rows, labels, reduction="sum", **how) / tokens


def learned(folder, name, model):
    """The parameters under their names in the file, and what else is there."""
    config, _, _ = MODELS[name]
    every = dict(model.named_parameters(remove_duplicate=False))
    prefix = "transformer." if is_plain(config) else ""
    found, frozen = {}, []
    for key in sorted(load_file(os.path.join(folder, "model.safetensors"))):
        p = every.get(key, every.get(prefix + key))
        if p is not None and p.requires_grad:
            found[key] = p
        else:
            frozen.append(key)
    ids = {id(p) for p in found.values()}
    assert ids == {id(p) for p in model.parameters() if p.requires_grad}, "unnamed parameters"
    assert len(ids) == len(found), "one parameter under two names"
    return found, frozen


def gradients(folder, name, model, batches, smoothing):
    """Of the sum of the batches' losses, every one a mean over all of their tokens."""
    config, _, _ = MODELS[name]
    tokens = sum(len(target) for batch in batches for _, target, _ in batch)
    model.zero_grad(set_to_none=True)
    for batch in batches:
        loss_of(model, config, batch, smoothing, None if len(batches) == 1 else tokens).backward()
    return {key: p.grad.double().clone() for key, p in learned(folder, name, model)[0].items()}


def unlearned_rows(folder, name, model):
    """Of tables with a `padding_idx`: the row that gets nothing from its lookups, although they matter."""
    names = {id(p): key for key, p in learned(folder, name, model)[0].items()}
    tables = [m for m in model.modules() if isinstance(m, torch.nn.Embedding) and m.padding_idx is not None]
    return {names[id(m.weight)]: m.padding_idx for m in tables if id(m.weight) in names}


def check_differences(folder, name, model, batch, smoothing, expected):
    config, _, _ = MODELS[name]
    generator = torch.Generator().manual_seed(5)
    step = 1e-5
    rows = unlearned_rows(folder, name, model)
    for key, p in learned(folder, name, model)[0].items():
        g = expected[key]
        random = torch.randn(g.shape, generator=generator, dtype=torch.float64)
        along = g / max(float(g.norm()), 1e-30) + random / random.norm()
        if key in rows:
            along[rows[key]] = 0
        start = p.detach().clone()
        slopes = []
        with torch.no_grad():
            for size in (step, 2 * step):
                ends = []
                for sign in (1, -1):
                    p.copy_(start + sign * size * along)
                    ends.append(float(loss_of(model, config, batch, smoothing)))
                slopes.append((ends[0] - ends[1]) / (2 * size))
            p.copy_(start)
        # Two steps, so that the third derivative cancels.
        found, wanted = (4 * slopes[0] - slopes[1]) / 3, float((g * along).sum())
        bound = 1e-6 * max(float(g.norm()), 1e-3)
        assert abs(found - wanted) <= bound, f"{key}: differences say {found:.9e}, the gradient {wanted:.9e}"


def check_kinks(name, model, batch):
    """Of each ReLU the hidden value that is nearest to zero, as a share of the largest."""
    config, _, _ = MODELS[name]
    names = ("activation",) if is_plain(config) else ("activation_function", "dense_act_fn")
    if "relu" not in [config.get(n) if is_plain(config) else getattr(config, n, None) for n in names]:
        return 1.0
    found = []
    kept = lambda module, given, out: found.append(out.detach().abs())
    hooks = [
        m.register_forward_hook(kept) for n, m in model.named_modules() if n.endswith((".fc1", ".wi", ".linear1"))
    ]
    assert hooks, "no hidden layers"
    with torch.no_grad():
        for row in batch:
            loss_of(model, config, [row], 0.0)
    for hook in hooks:
        hook.remove()
    least = min(float(x.min() / x.max()) for x in found)
    if least < KINK:
        raise Refused(f"a hidden unit is {least:.1e} from its kink")
    return least


def run(folder, name, dtype, batch, orders, smoothing):
    config, _, _ = MODELS[name]
    model = load(folder, name, dtype)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.98), eps=1e-9)
    losses = []
    for order in orders:
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(model, config, [batch[i] for i in order], smoothing)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def write(name, seed):
    config, _, smoothing = MODELS[name]
    folder = os.path.join(HERE, name)
    os.makedirs(folder, exist_ok=True)
    save(folder, name, seed)
    single, double = load(folder, name, torch.float32), load(folder, name, torch.float64)
    sources, targets = sentences(config, seed)
    inputs = fed(name, double, targets)
    batch = list(zip(sources, targets, inputs))
    tokens = sum(map(len, targets))

    losses = {}
    for s in SMOOTHINGS:
        with torch.no_grad():
            losses[f"{s:g}"] = {
                kind: float(loss_of(m, config, batch, s)) for kind, m in (("f32", single), ("f64", double))
            }
    if not is_plain(config):
        own = own_loss(double, config, sources, targets)
        assert abs(float(own.detach()) - losses["0"]["f64"]) < 1e-12, "the library shifts otherwise"
    check_kinks(name, double, batch)

    exact = gradients(folder, name, double, [batch], smoothing)
    check_differences(folder, name, double, batch, smoothing, exact)
    generator = torch.Generator().manual_seed(seed + 3)
    orders = [torch.randperm(len(batch), generator=generator).tolist() for _ in range(max(STEPS, ORDERS))]
    alone = [[row] for row in batch]
    others = [[[batch[i] for i in order]] for order in orders[:ORDERS]] + [alone]
    first = gradients(folder, name, single, [batch], smoothing)
    more = [gradients(folder, name, single, way, smoothing) for way in others]
    per_tensor, nothing = {}, []
    for key, g in exact.items():
        errors = [float((found[key] - g).abs().max()) for found in (first, *more)]
        largest = float(g.abs().max())
        distance = max(float((found[key] - g).norm()) for found in (first, *more))
        told = {
            "largest": largest,
            "f32_error": errors[0],
            "f32_error_worst": max(errors),
            "f32_distance": distance,
        }
        per_tensor[key] = {what: float(f"{value:.4g}") for what, value in told.items()}
        if largest < 1e-12:
            assert key.endswith("k_proj.bias"), f"{key}: no gradient"
            nothing.append(key)
        elif largest < 1e-4:
            raise Refused(f"{key}: a gradient of {largest:.1e}")
        elif max(errors) > 1e-5 * largest:
            raise Refused(f"{key}: float32 is off by {max(errors) / largest:.1e}")

    losses_of_run = {
        kind: run(folder, name, dtype, batch, orders[:STEPS], smoothing)
        for kind, dtype in (("f32", torch.float32), ("f64", torch.float64))
    }
    apart = max(abs(a - b) for a, b in zip(*losses_of_run.values()))
    if apart > 2e-6:
        raise Refused(f"the losses of float32 and float64 part by {apart:.1e}")

    save_file(exact, os.path.join(folder, "gradients.safetensors"))
    with open(os.path.join(folder, "batch.jsonl"), "w") as f:
        for source, target in zip(sources, targets):
            source = {} if is_whisper(config) else {"source_ids": source}
            f.write(json.dumps(source | {"target_ids": target}) + "\n")
    if is_whisper(config):
        features = {f"features.{i}": x for i, x in enumerate(sources)}
        save_file(features, os.path.join(folder, "features.safetensors"))
    expected = {
        "label_smoothing": smoothing,
        "loss": losses,
        "target_tokens": tokens,
        "decoder_input_ids": inputs,
        "frozen": learned(folder, name, double)[1],
        "lookups_without_gradient": unlearned_rows(folder, name, double),
        "zero_but_for_rounding": nothing,
        "gradients": per_tensor,
        "run": {
            "learning_rate": 1e-3,
            "betas": [0.9, 0.98],
            "epsilon": 1e-9,
            "orders": orders[:STEPS],
            "losses": losses_of_run,
        },
    }
    with open(os.path.join(folder, "expected.json"), "w") as f:
        lines = ",\n".join(f'"{key}": {json.dumps(value)}' for key, value in expected.items())
        f.write("{\n" + lines.replace('}, "', '},\n "') + "\n}\n")
    size = sum(os.path.getsize(os.path.join(folder, f)) for f in os.listdir(folder))
    shares = [e["f32_error"] / e["largest"] for k, e in per_tensor.items() if k not in nothing]
    print(
        f"{name}: seed {seed}, {size} bytes, {sum(g.numel() for g in exact.values())} parameters, "
        f"loss {losses[f'{smoothing:g}']['f64']:.4f} to {losses_of_run['f64'][-1]:.4f}, float32 off by "
        f"{max(shares):.1e} of a gradient and {apart:.1e} of a loss",
        flush=True,
    )


if __name__ == "__main__":
    golden.quiet_and_deterministic()
    for wanted in sys.argv[1:] or MODELS:
        for seed in range(1, 200):
            try:
                write(wanted, seed)
                break
            except Refused as error:
                if seed % 20 == 0:
                    print(f"{wanted}: seed {seed}: {error}", flush=True)
        else:
            sys.exit(f"{wanted}: no seed will do")
