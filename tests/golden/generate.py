"""Write the goldens of the whole model, from transformers and from torch.nn.Transformer.

Usage: python generate.py [NAME ...]      (all of them without a name; the files go beside this script)

Each folder holds a checkpoint in the layout of its library and `expected.safetensors`: for each sentence i of a ragged
batch `input_ids.{i}`, `encoder.{i}` [source length, d_model], `decoder_input_ids.{i}`, the teacher-forced `logits.{i}`
[target length, target vocabulary] and `greedy.{i}`, the ids after the decoder start, end of sentence included.
Encoder outputs and logits are computed in float64, each sentence alone, from the reloaded checkpoint.
"""

import math
import os
import sys

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import GenerationConfig, MarianConfig, MarianMTModel

import golden

HERE = os.path.dirname(os.path.abspath(__file__))
MAX_NEW_TOKENS = 40
SOURCE_LENGTHS = [7, 1, 13, 2, 23, 5, 17, 3]
TARGET_LENGTHS = [5, 9, 1, 14, 3, 11, 7, 2]
# What tests hold an f32 engine to, and what we ask of torch's own f32.
BOUND = 2e-5 / 4


def marian(name, config, seed, eos_push, pad_push=None):
    """A random MarianMTModel saved by `save_pretrained`. `pad_push` None: no `final_logits_bias` in the file."""
    folder = os.path.join(HERE, name)
    model = MarianMTModel(config).eval()
    last_norm = f"model.decoder.layers.{config.decoder_layers - 1}.final_layer_norm"
    golden.fill(model, seed, last_norm, last_bias=0.5 if pad_push is None else 0.1)
    with torch.no_grad():
        if pad_push is None:
            golden.favour(model, last_norm, model.lm_head.weight, config.eos_token_id, eos_push)
        else:
            bias = torch.randn(model.final_logits_bias.shape, generator=torch.Generator().manual_seed(seed + 1))
            model.final_logits_bias.copy_(bias)
            model.final_logits_bias[0, config.eos_token_id] = eos_push
            model.final_logits_bias[0, config.pad_token_id] = pad_push
    model.generation_config = GenerationConfig(
        bad_words_ids=[[config.pad_token_id]],
        decoder_start_token_id=config.decoder_start_token_id,
        eos_token_id=config.eos_token_id,
        pad_token_id=config.pad_token_id,
        max_length=512,
        num_beams=1,
    )
    model.save_pretrained(folder)
    weights = os.path.join(folder, "model.safetensors")
    if pad_push is None:
        tensors = load_file(weights)
        del tensors["final_logits_bias"]
        save_file(tensors, weights, metadata={"format": "pt"})

    single = MarianMTModel.from_pretrained(folder, dtype=torch.float32).eval()
    double = MarianMTModel.from_pretrained(folder, dtype=torch.float32).eval().double()
    target_vocab = double.lm_head.out_features
    sources = golden.ids(seed + 2, SOURCE_LENGTHS, 1, config.vocab_size - 1, last=[config.eos_token_id])
    targets = golden.ids(seed + 3, TARGET_LENGTHS, 1, target_vocab - 1, first=[config.decoder_start_token_id])
    expected, greedy, errors, margins, bans = {}, [], [], [], 0
    for i, (source, target) in enumerate(zip(sources, targets)):
        x, y = torch.tensor([source]), torch.tensor([target])
        mask = torch.ones_like(x)
        out, rough = (m(input_ids=x, attention_mask=mask, decoder_input_ids=y) for m in (double, single))
        errors.append(
            golden.check_close(
                f"{name} encoder {i}", rough.encoder_last_hidden_state, out.encoder_last_hidden_state, BOUND
            )
        )
        errors.append(golden.check_close(f"{name} logits {i}", rough.logits, out.logits, BOUND))
        answers = [
            m.generate(x, attention_mask=mask, max_new_tokens=MAX_NEW_TOKENS, do_sample=False)[0]
            for m in (single, double)
        ]
        assert answers[0].tolist() == answers[1].tolist(), f"{name} {i}: float32 and float64 decode differently"
        answer = answers[0]
        assert answer[0] == config.decoder_start_token_id
        scores = double(input_ids=x, attention_mask=mask, decoder_input_ids=answer[None, :-1]).logits[0]
        bans += int((scores.argmax(1) == config.pad_token_id).sum())
        scores[:, config.pad_token_id] = -torch.inf
        margins.append(golden.check_margin(f"{name} greedy {i}", scores, answer[1:]))
        greedy.append(answer[1:].tolist())
        expected |= {
            f"input_ids.{i}": source,
            f"encoder.{i}": out.encoder_last_hidden_state[0],
            f"decoder_input_ids.{i}": target,
            f"logits.{i}": out.logits[0],
            f"greedy.{i}": greedy[-1],
        }
    if pad_push is not None:
        assert bans >= 1, f"{name}: the pad never wins, so nothing shows that it is banned"
    told = golden.check_greedy(name, greedy, config.eos_token_id, MAX_NEW_TOKENS)
    golden.write_tensors(os.path.join(folder, "expected.safetensors"), expected)
    print(
        f"{name}: torch f32 error {max(errors):.1e}, smallest margin {min(margins):.1e}, "
        f"steps where the banned pad leads {bans}, greedy {told}"
    )


def marian_config(**changes):
    return MarianConfig(scale_embedding=True, bos_token_id=None, forced_eos_token_id=None, dropout=0.0, **changes)


def marian_odd():
    marian(
        "marian_odd",
        marian_config(
            vocab_size=997,
            d_model=48,
            encoder_layers=3,
            decoder_layers=2,
            encoder_attention_heads=6,
            decoder_attention_heads=6,
            encoder_ffn_dim=101,
            decoder_ffn_dim=107,
            activation_function="swish",
            max_position_embeddings=64,
            eos_token_id=0,
            pad_token_id=996,
            decoder_start_token_id=996,
        ),
        seed=975,
        eos_push=5.0,
        pad_push=4.0,
    )


def marian_untied():
    marian(
        "marian_untied",
        marian_config(
            vocab_size=211,
            decoder_vocab_size=173,
            share_encoder_decoder_embeddings=False,
            d_model=40,
            encoder_layers=2,
            decoder_layers=3,
            encoder_attention_heads=5,
            decoder_attention_heads=5,
            encoder_ffn_dim=93,
            decoder_ffn_dim=77,
            activation_function="relu",
            max_position_embeddings=64,
            eos_token_id=0,
            pad_token_id=172,
            decoder_start_token_id=172,
        ),
        seed=30,
        eos_push=3.5,
    )


class Translator(nn.Module):
    """`nn.Transformer` with what it leaves out: embeddings scaled by sqrt(d_model), the paper's positions, a head."""

    def __init__(self, c):
        super().__init__()
        self.scale = math.sqrt(c["d_model"])
        self.src_embed = nn.Embedding(c["src_vocab_size"], c["d_model"])
        self.tgt_embed = nn.Embedding(c["tgt_vocab_size"], c["d_model"])
        self.transformer = nn.Transformer(
            c["d_model"],
            c["nhead"],
            c["num_encoder_layers"],
            c["num_decoder_layers"],
            c["dim_feedforward"],
            0.0,
            c["activation"],
            layer_norm_eps=c["layer_norm_eps"],
            batch_first=True,
            norm_first=c["norm_first"],
        )
        self.generator = nn.Linear(c["d_model"], c["tgt_vocab_size"])

    def embed(self, table, tokens):
        """PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos of the same angle (Vaswani et al. 2017, 3.5)."""
        d = table.embedding_dim
        angle = torch.arange(tokens.shape[1], dtype=torch.float64)[:, None] / 10000 ** (
            torch.arange(0, d, 2, dtype=torch.float64) / d
        )
        position = torch.stack([angle.sin(), angle.cos()], -1).flatten(1)
        return table(tokens) * self.scale + position.to(table.weight.dtype)

    def forward(self, source, target):
        memory = self.transformer.encoder(self.embed(self.src_embed, source))
        causal = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).triu(1)
        hidden = self.transformer.decoder(self.embed(self.tgt_embed, target), memory, tgt_mask=causal)
        return memory, self.generator(hidden)

    def greedy(self, source, bos, eos):
        answer = [bos]
        while len(answer) <= MAX_NEW_TOKENS and (len(answer) == 1 or answer[-1] != eos):
            answer.append(int(self(source, torch.tensor([answer]))[1][0, -1].argmax()))
        return answer


def nn_transformer(name, seed, eos_push, **changes):
    folder = os.path.join(HERE, name)
    os.makedirs(folder, exist_ok=True)
    c = {
        "model_type": "nn_transformer",
        "layer_norm_eps": 1e-5,
        "positions": "interleaved",
        "scale_embedding": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
    } | changes
    model = Translator(c).eval()
    golden.fill(model, seed, "transformer.decoder.norm")
    with torch.no_grad():
        model.generator.bias[c["eos_token_id"]] = eos_push
    golden.write_json(os.path.join(folder, "config.json"), c)
    # The library's own key names, as a user who saves `transformer.state_dict()` has them.
    tensors = {k.removeprefix("transformer."): v.contiguous() for k, v in model.state_dict().items()}
    save_file(tensors, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})

    double = Translator(c).eval().double()
    double.load_state_dict(model.double().state_dict())
    model = model.float()
    sources = golden.ids(seed + 2, SOURCE_LENGTHS, 3, c["src_vocab_size"], last=[c["eos_token_id"]])
    targets = golden.ids(seed + 3, TARGET_LENGTHS, 3, c["tgt_vocab_size"], first=[c["bos_token_id"]])
    expected, greedy, errors, margins = {}, [], [], []
    for i, (source, target) in enumerate(zip(sources, targets)):
        x, y = torch.tensor([source]), torch.tensor([target])
        (memory, logits), rough = double(x, y), model(x, y)
        errors.append(golden.check_close(f"{name} encoder {i}", rough[0], memory, BOUND))
        errors.append(golden.check_close(f"{name} logits {i}", rough[1], logits, BOUND))
        answer = model.greedy(x, c["bos_token_id"], c["eos_token_id"])
        assert answer == double.greedy(x, c["bos_token_id"], c["eos_token_id"]), (
            f"{name} {i}: float32 and float64 decode differently"
        )
        margins.append(
            golden.check_margin(
                f"{name} greedy {i}", double(x, torch.tensor([answer[:-1]]))[1][0], torch.tensor(answer[1:])
            )
        )
        greedy.append(answer[1:])
        expected |= {
            f"input_ids.{i}": source,
            f"encoder.{i}": memory[0],
            f"decoder_input_ids.{i}": target,
            f"logits.{i}": logits[0],
            f"greedy.{i}": greedy[-1],
        }
    told = golden.check_greedy(name, greedy, c["eos_token_id"], MAX_NEW_TOKENS)
    golden.write_tensors(os.path.join(folder, "expected.safetensors"), expected)
    print(f"{name}: torch f32 error {max(errors):.1e}, smallest margin {min(margins):.1e}, greedy {told}")


def nn_transformer_post():
    nn_transformer(
        "nn_transformer_post",
        seed=194,
        eos_push=1.5,
        d_model=42,
        nhead=3,
        num_encoder_layers=2,
        num_decoder_layers=3,
        dim_feedforward=89,
        activation="relu",
        norm_first=False,
        src_vocab_size=139,
        tgt_vocab_size=151,
    )


def nn_transformer_pre():
    nn_transformer(
        "nn_transformer_pre",
        seed=662,
        eos_push=1.0,
        d_model=40,
        nhead=5,
        num_encoder_layers=3,
        num_decoder_layers=2,
        dim_feedforward=71,
        activation="gelu",
        norm_first=True,
        src_vocab_size=127,
        tgt_vocab_size=113,
    )


if __name__ == "__main__":
    golden.quiet_and_deterministic()
    every = {f.__name__: f for f in (marian_odd, marian_untied, nn_transformer_post, nn_transformer_pre)}
    with torch.no_grad():
        for wanted in sys.argv[1:] or every:
            every[wanted]()
