"""Writes the model that copies its input: config.json, tokenizer files and weights. Needs only Python.

python models/copy/make.py [DIRECTORY]

No training: the weights are computed below. A vector has 40 numbers, all 1 or -1: 10 pairs for the bits of the
position, 10 pairs for the bits of the token. A bit is (1, -1) or (-1, 1), so every vector has mean 0 and variance 1, and
layer norm returns it.

- Encoder: its layer adds nothing. The output is the input, token and position.
- Decoder: self-attention adds nothing. Cross-attention compares the positions: query and key are the position bits, and
  the score of the equal position is 63 above the next one, so all others have the weight e^-63. The value is the token
  at that position, times 8, which outweighs the token that the decoder reads.
- Output: the product with each token's bits is greatest for the same token.

So step t returns token t of the source, <s> and </s> included.
"""

import json
import struct
import sys
from pathlib import Path

POSITIONS = 1024
BITS = 10
WIDTH = 4 * BITS
SPECIALS = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
QUERY_SCALE = 100.0
VALUE_SCALE = 8.0
LOGIT_SCALE = 8.0


def byte_characters():
    """The character that byte-level BPE has for each byte: the byte itself if it is printable, else one after U+0100."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(0x100 + i) for i, byte in enumerate(others)}


def pairs(number):
    """The bits of a number below 1024."""
    return [sign for bit in range(BITS) for sign in ((1, -1) if number >> bit & 1 else (-1, 1))]


def token(number):
    """9 bits and their parity, so that two tokens differ in at least two bits."""
    return [0] * (2 * BITS) + pairs(number | (number.bit_count() % 2) << 9)


def position(number):
    return pairs(number) + [0] * (2 * BITS)


def diagonal(positions, tokens):
    """A matrix that multiplies the position bits by one number and the token bits by another."""
    scales = [positions] * (2 * BITS) + [tokens] * (2 * BITS)
    return [[scale if row == column else 0 for column in range(WIDTH)] for row, scale in enumerate(scales)]


def main():
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent)
    vocabulary = SPECIALS + [byte_characters()[byte] for byte in range(256)]
    zeros = [0] * WIDTH
    tensors = {"model.shared.weight": [token(number) for number in range(len(vocabulary))]}

    def norm(name, scale=1.0):
        tensors[name + ".weight"] = [scale] * WIDTH
        tensors[name + ".bias"] = zeros

    def attention(name, query=0.0, key=0.0, value=0.0, out=0.0):
        scales = {"q": (query, 0), "k": (key, 0), "v": (0, value), "out": (0, out)}
        for projection, (positions, tokens) in scales.items():
            tensors[f"{name}.{projection}_proj.weight"] = diagonal(positions, tokens)
            tensors[f"{name}.{projection}_proj.bias"] = zeros
        norm(name + "_layer_norm")

    for stack in ("encoder", "decoder"):
        # BART's table begins with two rows that are not used.
        rows = [zeros, zeros] + [position(number) for number in range(POSITIONS)]
        tensors[f"model.{stack}.embed_positions.weight"] = rows
        norm(f"model.{stack}.layernorm_embedding")
        layer = f"model.{stack}.layers.0"
        attention(f"{layer}.self_attn")
        if stack == "decoder":
            attention(f"{layer}.encoder_attn", QUERY_SCALE, 1.0, VALUE_SCALE, 1.0)
        tensors[f"{layer}.fc1.weight"], tensors[f"{layer}.fc1.bias"] = [zeros], [0]
        tensors[f"{layer}.fc2.weight"], tensors[f"{layer}.fc2.bias"] = [[0] for _ in zeros], zeros
        norm(f"{layer}.final_layer_norm", LOGIT_SCALE if stack == "decoder" else 1.0)
    tensors["final_logits_bias"] = [[0] * len(vocabulary)]

    header, data = {}, bytearray()
    for name in sorted(tensors):
        value = tensors[name]
        rows = value if isinstance(value[0], list) else [value]
        shape = [len(rows), len(rows[0])] if rows is value else [len(value)]
        begin = len(data)
        for row in rows:
            data += struct.pack(f"<{len(row)}e", *row)
        header[name] = {"dtype": "F16", "shape": shape, "data_offsets": [begin, len(data)]}
    text = json.dumps(header, separators=(",", ":"))
    text += " " * (-len(text) % 8)
    (directory / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text.encode() + data)

    def write(name, value):
        (directory / name).write_text(json.dumps(value, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")

    write("config.json", {
        "model_type": "bart", "architectures": ["BartForConditionalGeneration"], "vocab_size": len(vocabulary),
        "d_model": WIDTH, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 1,
        "decoder_attention_heads": 1, "encoder_ffn_dim": 1, "decoder_ffn_dim": 1, "activation_function": "relu",
        "max_position_embeddings": POSITIONS, "scale_embedding": False, "tie_word_embeddings": True,
        "bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2,
        "forced_bos_token_id": None, "forced_eos_token_id": 2, "torch_dtype": "float16",
    })
    write("generation_config.json", {
        "bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2,
        "forced_eos_token_id": 2, "max_length": POSITIONS, "num_beams": 1,
    })
    # The decoder reads one token more: that with which it begins.
    write("tokenizer_config.json", {
        "tokenizer_class": "BartTokenizer", "add_prefix_space": False, "model_max_length": POSITIONS - 1,
    })
    write("vocab.json", {text: number for number, text in enumerate(vocabulary)})
    (directory / "merges.txt").write_text("#version: 0.2\n", encoding="utf-8")


if __name__ == "__main__":
    main()
