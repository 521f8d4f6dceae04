"""Writes t5_buckets.txt: the relative position bias that T5 of transformers 5.23 makes of a weight which
names its own bucket.

    python t5_buckets.py > t5_buckets.txt

A line: `bidirectional` or `causal`, buckets, largest distance, positions, then the buckets of the distances
from key - query = -(positions - 1) on, as `bucket*count`. The attention's own `compute_bias` makes the
matrix for all queries and keys; that it depends on the distance alone, and on the head as the weight
does, is checked here.
"""

import torch
import transformers
from transformers.models.t5.modeling_t5 import T5Attention, T5Config

assert transformers.__version__.startswith("5.23"), transformers.__version__

SETTINGS = [
    (32, 128, 700),
    (32, 128, 1),
    (32, 128, 2),
    (16, 64, 300),
    (64, 256, 900),
    (8, 20, 90),
    (10, 50, 200),
    (13, 77, 200),
    (4, 3, 30),
    (48, 1000, 1500),
    (100, 512, 1100),
]

for bidirectional in (True, False):
    for buckets, max_distance, positions in SETTINGS:
        config = T5Config(
            d_model=6,
            d_kv=2,
            num_heads=3,
            relative_attention_num_buckets=buckets,
            relative_attention_max_distance=max_distance,
            is_decoder=not bidirectional,
        )
        attention = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
        with torch.no_grad():
            weight = torch.arange(buckets)[:, None] + 1000.0 * torch.arange(3)[None, :]
            attention.relative_attention_bias.weight.copy_(weight)
            bias = attention.compute_bias(positions, positions)[0]
        for head in (1, 2):
            assert torch.equal(bias[head], bias[0] + 1000.0 * head)
        bias = bias[0].to(torch.int64)
        last = bias[positions - 1].tolist()
        ahead = bias[0, 1:].tolist() if bidirectional else []
        line = last + ahead
        for i in range(positions):
            end = positions if bidirectional else i + 1
            assert bias[i, :end].tolist() == line[positions - 1 - i :][:end], i
        runs = []
        for bucket in line:
            if runs and runs[-1][0] == bucket:
                runs[-1][1] += 1
            else:
                runs.append([bucket, 1])
        kind = "bidirectional" if bidirectional else "causal"
        print(kind, buckets, max_distance, positions, *(f"{b}*{n}" for b, n in runs))
