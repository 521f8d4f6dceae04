"""Whisper as transformers runs it, on features of any length.

The library insists on exactly `2 * max_source_positions` frames. `memory` composes its own modules for any number of
them, and is the library's own forward where the number is that one.
"""

import torch
from transformers import LogitsProcessorList
from transformers.generation.logits_process import WhisperTimeStampLogitsProcessor
from transformers.generation.utils import GenerationMixin
from transformers.modeling_outputs import BaseModelOutput


def features(generator, frames, bins):
    """`[frames, bins]`, in the range of a log-mel spectrogram of speech."""
    return torch.rand(frames, bins, generator=generator) * 2 - 0.75


def memory(model, x):
    """`[positions, width]`: the encoder's output for the frames `x`, `[frames, bins]`."""
    encoder = model.model.encoder
    x = x.to(encoder.conv1.weight.dtype).T[None]
    if x.shape[-1] == 2 * encoder.config.max_source_positions:
        return encoder(x).last_hidden_state[0]
    hidden = torch.nn.functional.gelu(encoder.conv1(x))
    hidden = torch.nn.functional.gelu(encoder.conv2(hidden)).permute(0, 2, 1)
    hidden = hidden + encoder.embed_positions.weight[: hidden.shape[1]]
    for layer in encoder.layers:
        hidden = layer(hidden, None)
    return encoder.layer_norm(hidden)[0]


def outputs(encoded):
    return BaseModelOutput(last_hidden_state=encoded[None])


def logits(model, encoded, target):
    y = torch.tensor([target])
    return model(encoder_outputs=outputs(encoded), decoder_input_ids=y, use_cache=False).logits[0]


def search(model, encoded, prompt, timestamps, **options):
    """The sequences after `prompt`, each to its end, and the scores where there are any: the library's search itself,
    with the rules that its Whisper class adds."""
    settings = model.generation_config
    rules = LogitsProcessorList()
    if timestamps:
        rules.append(WhisperTimeStampLogitsProcessor(settings, begin_index=len(prompt)))
    out = GenerationMixin.generate(
        model,
        encoder_outputs=outputs(encoded),
        decoder_input_ids=torch.tensor([prompt]),
        logits_processor=rules,
        do_sample=False,
        return_dict_in_generate=True,
        output_scores=True,
        **options,
    )
    eos = settings.eos_token_id
    rows = [row[len(prompt) :].tolist() for row in out.sequences]
    rows = [row[: row.index(eos) + 1] if eos in row else row for row in rows]
    scores = out.sequences_scores.tolist() if out.get("sequences_scores") is not None else None
    return rows, scores
