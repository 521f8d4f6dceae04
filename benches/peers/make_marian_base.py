"""Write a random-weight Marian "base" checkpoint (512 wide, 8 heads, 6+6 layers, 32000 tokens) in two layouts:
OUT/hf (config.json + model.safetensors, Hugging Face) and OUT/ct2_f32, OUT/ct2_int8 (CTranslate2).

Random weights make every engine do the full work of the published OPUS-MT shape without its download.
Usage: python make_marian_base.py OUT [--width 512 --heads 8 --ffn 2048 --layers 6 --vocab 32000]
"""

import argparse
import os

import torch
from ctranslate2.converters import transformers as ct2_hf
from transformers import MarianConfig, MarianMTModel

p = argparse.ArgumentParser()
p.add_argument("out")
p.add_argument("--width", type=int, default=512)
p.add_argument("--heads", type=int, default=8)
p.add_argument("--ffn", type=int, default=2048)
p.add_argument("--layers", type=int, default=6)
p.add_argument("--vocab", type=int, default=32000)
a = p.parse_args()

torch.manual_seed(0)
pad = a.vocab - 1
config = MarianConfig(
    vocab_size=a.vocab,
    d_model=a.width,
    encoder_layers=a.layers,
    decoder_layers=a.layers,
    encoder_attention_heads=a.heads,
    decoder_attention_heads=a.heads,
    encoder_ffn_dim=a.ffn,
    decoder_ffn_dim=a.ffn,
    activation_function="relu",
    max_position_embeddings=512,
    scale_embedding=True,
    pad_token_id=pad,
    eos_token_id=0,
    decoder_start_token_id=pad,
    forced_eos_token_id=None,
    bos_token_id=None,
)
model = MarianMTModel(config).eval()
model.save_pretrained(os.path.join(a.out, "hf"))

# CTranslate2 reads tokens, not ids, so every id gets a name.
vocab = [f"t{i}" for i in range(a.vocab - 1)]
vocab[0], vocab[1] = "</s>", "<unk>"
loader = ct2_hf._MODEL_LOADERS["MarianConfig"]
for quantization in (None, "int8"):
    spec = loader.get_model_spec(model)
    spec.register_source_vocabulary(vocab)
    spec.register_target_vocabulary(vocab)
    spec.config.add_source_eos = True
    spec.config.eos_token = "</s>"
    spec.config.unk_token = "<unk>"
    spec.validate()
    spec.optimize(quantization=quantization)
    directory = os.path.join(a.out, f"ct2_{quantization or 'f32'}")
    os.makedirs(directory, exist_ok=True)
    spec.save(directory)
