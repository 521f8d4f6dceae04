"""Writes audio/*: half a second of two chirps in every format that is read, by ffmpeg.

    python audio_files.py

The left channel is 0.4 sin(2 pi (300 t + 1500 t^2)), the right one 0.3 sin(2 pi (2000 t - 1000 t^2));
speech/tests/audio_files.rs computes them again. Needs ffmpeg (Debian's 5.1 was used) with its usual encoders.
"""

import math
import struct
import subprocess
import tempfile
from pathlib import Path

OUT = Path(__file__).parent / "audio"
# What a recorder in a browser writes: an index without samples, then fragments.
RECORDER = ["-movflags", "frag_keyframe+empty_moov", "-frag_duration", "100000"]
# Name, sample rate, channels, arguments of ffmpeg.
FILES = [
    ("mp3.mp3", 44100, 2, ["-c:a", "libmp3lame", "-b:a", "96k"]),
    ("mp3-mono-22050.mp3", 22050, 1, ["-c:a", "libmp3lame", "-b:a", "48k", "-metadata", "title=Two chirps"]),
    ("aac.m4a", 44100, 2, ["-c:a", "aac", "-b:a", "96k"]),
    ("aac-index-first.m4a", 48000, 1, ["-c:a", "aac", "-b:a", "64k", "-movflags", "+faststart"]),
    ("adts.aac", 44100, 2, ["-c:a", "aac", "-b:a", "96k"]),
    ("alac.m4a", 8000, 1, ["-c:a", "alac"]),
    ("flac.flac", 22050, 2, ["-c:a", "flac", "-sample_fmt", "s16"]),
    ("vorbis.ogg", 44100, 2, ["-c:a", "libvorbis", "-q:a", "4"]),
    ("vorbis-48000.ogg", 48000, 1, ["-c:a", "libvorbis", "-q:a", "4"]),
    ("aiff.aiff", 11025, 2, ["-c:a", "pcm_s16be"]),
    ("aiff-24.aiff", 8000, 1, ["-c:a", "pcm_s24be"]),
    ("sowt.aiff", 8000, 1, ["-c:a", "pcm_s16le"]),
    ("alaw.wav", 8000, 1, ["-c:a", "pcm_alaw"]),
    ("mulaw.wav", 8000, 2, ["-c:a", "pcm_mulaw"]),
    ("wave64.w64", 8000, 1, ["-c:a", "pcm_s16le"]),
    ("mp3-8000.mp3", 8000, 1, ["-c:a", "libmp3lame", "-b:a", "24k"]),
    ("mp3-no-header.mp3", 48000, 1, ["-c:a", "libmp3lame", "-b:a", "48k", "-write_xing", "0"]),
    ("adts-16000.aac", 16000, 1, ["-c:a", "aac", "-b:a", "32k"]),
    ("aac-dash.m4a", 44100, 1, ["-c:a", "aac", "-b:a", "48k", "-movflags", "dash", "-frag_duration", "100000"]),
    ("aac-fragments.m4a", 16000, 2, ["-c:a", "aac", "-b:a", "48k", "-movflags", "frag_keyframe", "-frag_duration", "100000"]),
    ("aac-recorder.mp4", 48000, 1, ["-c:a", "aac", "-b:a", "48k", *RECORDER]),
    ("opus-recorder.mp4", 48000, 1, ["-c:a", "libopus", "-b:a", "32k", *RECORDER]),
    ("alac-recorder.mp4", 8000, 1, ["-c:a", "alac", *RECORDER]),
    ("opus.mp4", 48000, 2, ["-c:a", "libopus", "-b:a", "48k"]),
    ("opus.ogg", 48000, 2, ["-c:a", "libopus", "-b:a", "64k"]),
    ("opus-voice.ogg", 16000, 1, ["-c:a", "libopus", "-b:a", "24k", "-application", "voip"]),
    ("vorbis-8000.ogg", 8000, 1, ["-c:a", "libvorbis", "-q:a", "4"]),
    ("flac.ogg", 16000, 1, ["-c:a", "flac"]),
    ("opus.webm", 48000, 1, ["-c:a", "libopus", "-b:a", "32k"]),
    ("opus-live.webm", 48000, 2, ["-c:a", "libopus", "-b:a", "48k", "-live", "1"]),
    ("vorbis.webm", 44100, 1, ["-c:a", "libvorbis", "-q:a", "4"]),
    ("aac.mkv", 22050, 1, ["-c:a", "aac", "-b:a", "48k"]),
    ("pcm-live.mkv", 8000, 2, ["-c:a", "pcm_s16le", "-live", "1"]),
    ("mp3.mp4", 44100, 1, ["-c:a", "libmp3lame", "-b:a", "48k"]),
    ("mp3.mkv", 48000, 2, ["-c:a", "libmp3lame", "-b:a", "64k"]),
]


def samples(rate):
    for i in range(rate // 2):
        t = i / rate
        yield 0.4 * math.sin(2 * math.pi * (300 * t + 1500 * t * t)), 0.3 * math.sin(2 * math.pi * (2000 * t - 1000 * t * t))


def main():
    OUT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, rate, channels, arguments in FILES:
            raw = Path(folder) / "raw"
            raw.write_bytes(b"".join(struct.pack("<2d", *pair)[: 8 * channels] for pair in samples(rate)))
            source = ["-f", "f64le", "-ar", str(rate), "-ac", str(channels), "-i", raw]
            exact = ["-fflags", "+bitexact", "-flags:a", "+bitexact"]
            subprocess.run(["ffmpeg", "-v", "error", "-y", *source, *exact, *arguments, OUT / name], check=True)
            print(f"{name}: {(OUT / name).stat().st_size} bytes")


main()
