"""Writes every container and codec x rates x channels x whole, cut, piped, joined and tagged into a directory, by ffmpeg, and
`list.tsv`: each file, the seconds that ffmpeg decodes of it, those that are expected, and its kind. Takes some minutes and 100 MB.

What is expected is what ffmpeg decodes, except that
- a file of two joined ones has the sound of both; ffmpeg reads the first one of most containers. Of others it reads more than twice
  the seconds of one, because the header of the second one is a frame of MP3, and so is its delay;
- a file from a pipe of which ffmpeg reads nothing has the sound of the same file with its lengths;
- AAC without an edit list has 1024 samples less. They are the first frame, which overlaps with one that is not there: in them is the
  delay of the encoder, and with them the sound begins later than in the source.

    python sound_matrix.py DIR
    SOUND_MATRIX=DIR cargo test -p simdformer-speech --features files --test all matrix -- --ignored --nocapture
"""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

OUT = Path(sys.argv[1])
RATES = [8000, 11025, 16000, 24000, 44100, 48000]
SECONDS = 2.3
AAC, OPUS = ["-c:a", "aac", "-b:a", "64k"], ["-c:a", "libopus", "-b:a", "24k"]


def fragments(flags: str) -> list[str]:
    return ["-movflags", flags, "-frag_duration", "500000"]


# The end of the name, and arguments of ffmpeg.
FILES = {
    "plain.mp3": ["-c:a", "libmp3lame", "-b:a", "64k"],
    "no-header.mp3": ["-c:a", "libmp3lame", "-b:a", "64k", "-write_xing", "0"],
    "vbr.mp3": ["-c:a", "libmp3lame", "-q:a", "5"],
    "plain.aac": AAC,
    "plain.m4a": AAC,
    "index-first.m4a": [*AAC, "-movflags", "+faststart"],
    "dash.m4a": [*AAC, *fragments("dash")],
    "fragments.m4a": [*AAC, *fragments("frag_keyframe")],
    "recorder.mp4": [*AAC, *fragments("frag_keyframe+empty_moov")],
    "base.mp4": [*AAC, *fragments("empty_moov+default_base_moof+frag_keyframe")],
    "alac.m4a": ["-c:a", "alac"],
    "alac-recorder.mp4": ["-c:a", "alac", *fragments("empty_moov+frag_keyframe")],
    "plain.mov": AAC,
    "pcm.mov": ["-c:a", "pcm_s16le"],
    "mp3.mp4": ["-c:a", "libmp3lame"],
    "opus.mp4": OPUS,
    "opus-recorder.mp4": [*OPUS, *fragments("empty_moov+frag_keyframe")],
    "flac.mp4": ["-c:a", "flac", "-strict", "-2"],
    "plain.flac": ["-c:a", "flac"],
    "vorbis.ogg": ["-c:a", "libvorbis", "-q:a", "3"],
    "opus.ogg": OPUS,
    "flac.ogg": ["-c:a", "flac"],
    "opus.webm": OPUS,
    "vorbis.webm": ["-c:a", "libvorbis"],
    "live.webm": [*OPUS, "-live", "1"],
    "opus.mkv": OPUS,
    "aac.mkv": AAC,
    "aac-live.mkv": [*AAC, "-live", "1"],
    "mp3.mkv": ["-c:a", "libmp3lame"],
    "flac.mkv": ["-c:a", "flac"],
    "pcm.mkv": ["-c:a", "pcm_s16le"],
    "s16.wav": ["-c:a", "pcm_s16le"],
    "s24.wav": ["-c:a", "pcm_s24le"],
    "f32.wav": ["-c:a", "pcm_f32le"],
    "alaw.wav": ["-c:a", "pcm_alaw"],
    "rf64.wav": ["-c:a", "pcm_s16le", "-rf64", "always"],
    "plain.w64": ["-c:a", "pcm_s16le"],
    "plain.aiff": ["-c:a", "pcm_s16be"],
}
# AAC with an edit list.
EDITED = {"plain.m4a", "index-first.m4a", "plain.mov"}
CONTAINERS = {"m4a": "ipod", "mkv": "matroska", "aac": "adts"}


def ape(flags: int) -> bytes:
    numbers = [2000, 44, 1, flags]
    return b"APETAGEX" + b"".join(number.to_bytes(4, "little") for number in numbers) + bytes(8)


ID3V2 = b"ID3\x04\0\0\0\0\x07\x68" + b"\xff\xfb\x90\x64" * 250
ID3V1 = b"TAG" + b"x" * 125
APE = ape(0xA0000000) + b"\x03\0\0\0\0\0\0\0key\0abc"[:12] + ape(0x80000000)


def seconds(path: Path) -> float:
    command = ["ffmpeg", "-v", "quiet", "-nostdin", "-i", path, "-map", "0:a:0", "-f", "s16le", "-ac", "1", "-ar", "16000", "-"]
    return len(subprocess.run(command, stdout=subprocess.PIPE).stdout) / 32_000


def make(job: tuple[str, int, int]) -> list[str]:
    name, rate, channels = job
    start, extension = name.split(".")
    source = ["-f", "lavfi", "-i", f"sine=f=440:r={rate}:d={SECONDS},volume=0.5", "-ac", str(channels), "-ar", str(rate)]
    command = ["ffmpeg", "-v", "quiet", "-y", "-nostdin", *source, *FILES[name], "-metadata", "title=a tag"]
    rows: list[str] = []
    # Fragments, ADTS and Matroska have no edit list.
    delay = 1024 / rate if FILES[name][: len(AAC)] == AAC and name not in EDITED else 0.0

    def put(kind: str, data: bytes, least: float = 0.0, otherwise: float = 0.0) -> float:
        path = OUT / f"{start}-{rate}-{channels}-{kind}.{extension}"
        path.write_bytes(data)
        found = seconds(path)
        expected = max(found - delay, least) or otherwise
        rows.append(f"{path.name}\t{found:.3f}\t{expected:.3f}\t{kind}\n")
        return expected

    path = OUT / f"{start}-{rate}-{channels}.{extension}"
    # Not every encoder has every rate.
    if subprocess.run([*command, path]).returncode:
        return []
    data = path.read_bytes()
    whole = put("whole", data)
    put("cut", data[: len(data) * 2 // 3])
    piped = subprocess.run([*command, "-f", CONTAINERS.get(extension, extension), "pipe:1"], stdout=subprocess.PIPE)
    if piped.returncode == 0:
        put("piped", piped.stdout, otherwise=whole)
    joined = put("joined", data * 2, 2 * whole)
    if extension in ("mp3", "aac"):
        put("tagged", ID3V2 + data + APE + ID3V1)
        put("joined-tagged", (ID3V2 + data + APE + ID3V1) * 2, joined)
    if extension == "flac":
        put("tagged", ID3V2 + data + ID3V1)
        put("joined-tagged", (ID3V2 + data + ID3V1) * 2, joined)
    path.unlink()
    return rows


OUT.mkdir(exist_ok=True)
jobs = [(name, rate, channels) for name in FILES for rate in RATES for channels in (1, 2)]
with ThreadPoolExecutor() as pool:
    (OUT / "list.tsv").write_text("".join(row for rows in pool.map(make, jobs) for row in rows))
