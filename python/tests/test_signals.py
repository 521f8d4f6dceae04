"""Ctrl-C ends any call, and the next call gives the same result."""

from __future__ import annotations

import os
import random
import signal
import statistics
import threading
import time
from collections.abc import Callable

import pytest

from simdformer import Limits, Model, Session, Translator

# A call that is never interrupted runs for minutes.
ROWS = 200_000


def interrupted_after(seconds: float, call: Callable[[], object]) -> float:
    """How long `call` ran after the signal, in seconds."""
    sent = [0.0]

    def send() -> None:
        time.sleep(seconds)
        sent[0] = time.perf_counter()
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=send)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        call()
    ended = time.perf_counter()
    thread.join()
    return ended - sent[0]


def calls(demo_model: str, threads: int) -> dict[str, Callable[[], object]]:
    translator = Translator(demo_model, threads=threads)
    beams = Translator(demo_model, threads=threads, beams=4)
    # An encoder pass of many tokens, which takes a second.
    model = Model(demo_model)
    limits = Limits(sentences=256, source_tokens=128, target_tokens=1)
    session = Session(model, limits, threads=threads)
    texts = ["il fait froid . je suis étudiant ."] * ROWS
    ids = [[6, 11, 0]] * ROWS
    document = "\n\n".join(texts)
    long = [[5 + i % 100 for i in range(128)]] * 256
    return {
        "translate": lambda: translator.translate(texts),
        "generate": lambda: beams.generate(ids),
        "score": lambda: translator.score(ids, ids),
        "translate_document": lambda: translator.translate_document(document),
        "encoder_output": lambda: [session.encoder_output(long) for _ in range(ROWS)],
        "score, texts": lambda: translator.score(texts, texts),
        "encode": lambda: [translator.encode(texts) for _ in range(ROWS)],
        "decode": lambda: [translator.decode(ids) for _ in range(ROWS)],
        "stream": lambda: [list(translator.stream("je suis étudiant")) for _ in range(ROWS)],
    }


def check(demo_model: str, threads: int, times: int) -> list[float]:
    translator = Translator(demo_model, threads=threads)
    expected = translator.translate("il fait froid")
    delays = []
    chosen = random.Random(threads)
    for name, call in calls(demo_model, threads).items():
        for _ in range(times):
            delay = interrupted_after(chosen.uniform(0.1, 0.4), call)
            print(f"{name}, {threads} threads: {1e3 * delay:.0f} ms")
            delays.append(delay)
        assert translator.translate("il fait froid") == expected
    return sorted(delays)


@pytest.mark.parametrize("threads", [1, 2])
def test_ctrl_c_ends_a_call(demo_model: str, threads: int) -> None:
    delays = check(demo_model, threads, 1)
    # 50 ms between two looks, and the step that runs. Other programs may use the processors.
    assert statistics.median(delays) <= 0.1 and delays[-1] <= 5.0, delays


@pytest.mark.slow
def test_a_hundred_interrupts_end_within_100_ms(demo_model: str) -> None:
    delays = sorted(check(demo_model, 1, 9) + check(demo_model, 2, 8))
    print(f"{len(delays)} interrupts: median {delays[len(delays) // 2]:.3f} s, p99 {delays[-2]:.3f} s")
    assert len(delays) >= 100 and delays[-2] <= 0.1


def test_a_handler_that_raises_nothing_ends_nothing(demo_model: str) -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: seen.append(number))
    try:
        timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1))
        timer.start()
        found = Translator(demo_model).generate([[6, 11, 0]] * 3000)
        timer.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(found) == 3000 and seen == [signal.SIGUSR1]


def test_another_thread_does_not_see_the_signal(demo_model: str) -> None:
    translator, found = Translator(demo_model), []
    worker = threading.Thread(target=lambda: found.append(translator.generate([[6, 11, 0]] * 3000)))
    worker.start()

    def wait() -> None:
        while worker.is_alive():
            time.sleep(0.01)

    interrupted_after(0.05, wait)
    worker.join()
    assert len(found[0]) == 3000


def test_a_stream_that_is_closed_ends(demo_model: str) -> None:
    translator = Translator(demo_model)
    with translator.stream("je suis étudiant") as parts:
        assert next(iter(parts)) == "i"
    assert list(parts) == []
    assert "".join(translator.stream("je suis étudiant")) == "i am a student"
