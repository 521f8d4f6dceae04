"""Subtitles of `simdformer transcribe`, read by the parsers of other projects.

    python tests/real/subtitles.py MODEL FILE...

Needs srt, webvtt-py and pysubs2 from PyPI, and a built command (SIMDFORMER names another than target/release/simdformer).
Each file is written as SRT and as WebVTT, with and without a width. The parsers must find the same cues; their texts together
must be that of the plain transcription, lines must fit, and no cue may begin before the end of the one before it.
"""

import os
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pysubs2
import srt
import webvtt

COMMAND = os.environ.get("SIMDFORMER", str(Path(__file__).resolve().parents[2] / "target/release/simdformer"))


def transcribed(model, file, *more):
    done = subprocess.run([COMMAND, "transcribe", "--quiet", "--model", model, *more, file], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def main():
    model, *files = sys.argv[1:]
    assert files, __doc__
    for file in files:
        text = transcribed(model, file).split()
        for width in (None, 16, 42):
            options = ["--max-line-width", str(width)] if width else []
            subrip, vtt = (transcribed(model, file, kind, *options) for kind in ("--srt", "--vtt"))
            found = {
                "srt": [(c.start.total_seconds(), c.end.total_seconds(), c.content) for c in srt.parse(subrip)],
                "webvtt-py": [(c.start_in_seconds, c.end_in_seconds, c.raw_text) for c in webvtt.from_buffer(StringIO(vtt))],
                "pysubs2": [(c.start / 1000, c.end / 1000, c.plaintext) for c in pysubs2.SSAFile.from_string(subrip)],
            }
            cues = found["srt"]
            seconds = [round(1000 * time) for start, end, _ in cues for time in (start, end)]
            assert seconds == sorted(seconds) and all(start < end for start, end, _ in cues), file
            for name, other in found.items():
                assert " ".join(cue[2] for cue in other).split() == text, (file, name, width)
                # Some versions of webvtt-py round to seconds.
                starts = [round(1000 * cue[0]) for cue in other]
                assert len(other) == len(cues) and (name == "webvtt-py" or starts == seconds[::2]), (file, name)
            lines = [line for _, _, cue in cues for line in cue.splitlines()]
            assert width is None or max(map(len, lines), default=0) <= width, file
            print(f"{Path(file).name}, width {width}: {len(cues)} cues in every parser")


if __name__ == "__main__":
    main()
