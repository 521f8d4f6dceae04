"""Write a sentence encoder of MiniLM-L6's shape with random weights, and sentences to put through it.

Usage: python make_minilm.py OUT [--sentences 256 --median 20]

OUT is a directory as sentence-transformers writes it: BERT, 384 wide, 6 layers of 12 heads, 1536, 30522 tokens, then the
mean over tokens and length 1. OUT/sentences.json holds `ids`, sentences of lengths drawn from a log-normal distribution
around the median, from 3 to 128 tokens, and `vectors`, what transformers makes of each alone in float64: every engine is
held to them before it is timed. OUT/ct2 is the same encoder for CTranslate2.

Random weights make every engine do the full work of the published shape without its download.
"""

import argparse
import json
import os

import numpy as np
import torch
from ctranslate2.converters import transformers as ct2_hf
from transformers import BertConfig, BertModel
from transformers.utils import logging

logging.set_verbosity_error()
logging.disable_progress_bar()
p = argparse.ArgumentParser()
p.add_argument("out")
p.add_argument("--sentences", type=int, default=256)
p.add_argument("--median", type=float, default=20)
a = p.parse_args()

torch.manual_seed(0)
# `initializer_range` is twice the published one, so that attention looks at something.
config = BertConfig(
    vocab_size=30522,
    hidden_size=384,
    num_hidden_layers=6,
    num_attention_heads=12,
    intermediate_size=1536,
    hidden_act="gelu",
    layer_norm_eps=1e-12,
    max_position_embeddings=512,
    type_vocab_size=2,
    initializer_range=0.04,
)
model = BertModel(config, add_pooling_layer=False).eval()
with torch.no_grad():
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            parameter.normal_(0, 0.02)
model.save_pretrained(a.out)


def write(name, content):
    path = os.path.join(a.out, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        json.dump(content, file)


kinds = ("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")
prefix = "sentence_transformers.models."
write(
    "modules.json",
    [{"idx": i, "name": str(i), "path": path, "type": prefix + kind} for i, (kind, path) in enumerate(kinds)],
)
# The service wants a tokenizer; ids do not pass through it.
named = {0: "[PAD]", 100: "[UNK]", 101: "[CLS]", 102: "[SEP]", 103: "[MASK]"}
with open(os.path.join(a.out, "vocab.txt"), "w") as file:
    file.writelines(named.get(i, f"t{i}") + "\n" for i in range(config.vocab_size))
write("tokenizer_config.json", {"tokenizer_class": "BertTokenizer"})
write("1_Pooling/config.json", {"word_embedding_dimension": 384, "pooling_mode_mean_tokens": True})

random = np.random.RandomState(0)
lengths = np.exp(random.normal(np.log(a.median), 0.6, a.sentences)).round().clip(3, 128).astype(int)
# Between [CLS] and [SEP], as the tokenizer of the published model would put them.
ids = [[101, *(int(t) for t in random.randint(1000, 30522, n - 2)), 102] for n in lengths]
double = BertModel.from_pretrained(a.out, add_pooling_layer=False, dtype=torch.float64, attn_implementation="eager").eval()
vectors = []
with torch.no_grad():
    for sentence in ids:
        x = torch.tensor([sentence])
        mean = double(input_ids=x, attention_mask=torch.ones_like(x)).last_hidden_state[0].mean(0)
        vectors.append([round(v, 9) for v in (mean / mean.norm()).tolist()])
write("sentences.json", {"ids": ids, "vectors": vectors})

# CTranslate2 reads ids as they are, but wants a name for each.
loader = ct2_hf._MODEL_LOADERS["BertConfig"]
# It wants a pooler, which it runs beside, and a key that transformers 5 no longer has.
pooled = BertModel.from_pretrained(a.out, dtype=torch.float32).eval()
pooled.config.position_embedding_type = "absolute"
spec = loader.get_model_spec(pooled)
spec.register_vocabulary(["[UNK]" if i == 100 else f"t{i}" for i in range(config.vocab_size)])
spec.config.unk_token = "[UNK]"
spec.config.layer_norm_epsilon = config.layer_norm_eps
spec.validate()
spec.optimize(quantization=None)
os.makedirs(os.path.join(a.out, "ct2"), exist_ok=True)
spec.save(os.path.join(a.out, "ct2"))
print(f"{a.sentences} sentences, {lengths.sum()} tokens, median {int(np.median(lengths))}, longest {lengths.max()}")
