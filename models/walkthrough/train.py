"""Trains a model like that of the walkthrough with PyTorch: two sentences, 6 dimensions.

    python models/walkthrough/train.py DIRECTORY

Writes config.json, that of the walkthrough, and model.safetensors there. The vocabularies, the batch
and the true output are those of tests/golden/walkthrough/navigate_trace.json. Ten seconds on one core.
"""

import json
import sys
from pathlib import Path

import torch
from transformers import MarianConfig, MarianMTModel

HERE = Path(__file__).resolve().parent
TRACE = HERE.parents[1] / "tests/golden/walkthrough/navigate_trace.json"


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    trace = json.loads(TRACE.read_text())
    batch, words = trace["batch"], trace["vocabulary"]
    blank = batch["blank_target"]
    config = MarianConfig(
        vocab_size=len(words["source"]), decoder_vocab_size=len(words["target"]),
        share_encoder_decoder_embeddings=False, tie_word_embeddings=False,
        d_model=6, encoder_layers=1, decoder_layers=1, encoder_attention_heads=3,
        decoder_attention_heads=3, encoder_ffn_dim=12, decoder_ffn_dim=12,
        activation_function="relu", max_position_embeddings=16, scale_embedding=True,
        dropout=0.0, attention_dropout=0.0, activation_dropout=0.0, init_std=0.4,
        pad_token_id=batch["blank_source"], decoder_start_token_id=words["target"].index("<s>"),
        eos_token_id=words["target"].index("</s>"), bos_token_id=None, forced_eos_token_id=None,
    )
    model = MarianMTModel(config)
    # The id that pads a source is a word of the target.
    model.model.decoder.embed_tokens.padding_idx = None
    with torch.no_grad():
        model.model.decoder.embed_tokens.weight.normal_(0.0, 0.4)
    source, target = torch.tensor(batch["source"]), torch.tensor(batch["target"])
    true = torch.tensor(batch["target_true"])
    mask = (source != batch["blank_source"]).long()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for step in range(401):
        logits = model(input_ids=source, attention_mask=mask, decoder_input_ids=target).logits
        loss = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), true.flatten(), ignore_index=blank, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}")
    model.eval()
    print("argmax", model(input_ids=source, attention_mask=mask,
                          decoder_input_ids=target).logits.argmax(-1).tolist())
    print("true  ", true.tolist())
    model.save_pretrained(sys.argv[1])


main()
