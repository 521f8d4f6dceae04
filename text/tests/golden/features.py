"""Writes features.safetensors: what transformers makes of audio.

    python features.py

transformers 5.23.0, its extractor of Whisper in numpy (that in torch is turned off). The audio is whole numbers by the
formulas below, which speech/tests/audio.rs has too, so that no file of it is kept. Of each case NAME:

NAME.values   float32 [bins, 24], the features of the frames FRAMES
NAME.means    float64 [bins], the mean of all frames, so that none is unseen
"""

from pathlib import Path

import numpy as np
import transformers
import transformers.models.whisper.feature_extraction_whisper as whisper
from safetensors.numpy import save_file

whisper.is_torch_available = lambda: False

assert transformers.__version__ == "5.23.0"
BITS = 2**64 - 1
# Where short audio ends, both ends of all, and a few between.
FRAMES = [0, 1, 2, 3, 28, 29, 30, 31, 32, 98, 99, 100, 101, 102, 777, 1234, 1499, 1500, 2222, 2801, 2996, 2997, 2998, 2999]
TONE = [0, 12539, 23170, 30273, 32767, 30273, 23170, 12539, 0, -12539, -23170, -30273, -32767, -30273, -23170, -12539]


def noise(samples):
    state, out = 1, []
    for _ in range(samples):
        state = state * 6364136223846793005 + 1442695040888963407 & BITS
        out.append((state >> 33) % 20001 - 10000)
    return out


def chirp(samples):
    """A triangle that becomes faster."""
    phase, out = 0, []
    for i in range(samples):
        phase = phase + 5_000_000 + 3_000 * i & 2**32 - 1
        out.append((abs((phase >> 15) - 65536) - 32768) // 4)
    return out


def tone(samples):
    """1000 Hz, a thousand times as loud every other half second."""
    return [TONE[i % 16] if i // 8000 % 2 == 0 else TONE[i % 16] // 1000 for i in range(samples)]


CASES = {
    "nothing": noise(0),
    "one": chirp(1),
    "short": noise(4800),
    "second": tone(16000),
    "whole": chirp(480_000),
    "long": tone(560_000),
}

tensors = {}
for bins in (80, 128):
    extractor = transformers.WhisperFeatureExtractor(feature_size=bins)
    for name, samples in CASES.items():
        audio = np.array(samples, np.float32) / np.float32(32768)
        features = np.asarray(extractor(audio, sampling_rate=16000)["input_features"])[0]
        assert features.shape == (bins, 3000) and features.dtype == np.float32
        tensors[f"{bins}.{name}.values"] = np.ascontiguousarray(features[:, FRAMES])
        tensors[f"{bins}.{name}.means"] = features.astype(np.float64).mean(1)
save_file(tensors, Path(__file__).parent / "features.safetensors")
