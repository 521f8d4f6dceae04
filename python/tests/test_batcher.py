"""`Batcher`: many tasks, the answers that each sentence has alone; cancelling, streams, fork, closing."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

import simdformer
from simdformer import Batcher, Translator


@pytest.mark.parametrize("options", [{}, {"beams": 3}])
def test_1000_requests_of_32_tasks_are_those_of_each_alone(
    demo_model: str, sentences: list[str], options: dict[str, Any]
) -> None:
    translator = Translator(demo_model, **options)
    texts = (sentences * 4)[: 1000 if not options else 200]
    alone = {text: translator.translate(text, split=False) for text in set(texts)}

    async def task(batcher: Batcher, own: list[str]) -> None:
        for text in own:
            assert await batcher.asubmit(text) == alone[text]

    async def tasks(batcher: Batcher) -> None:
        await asyncio.gather(*(task(batcher, texts[first::32]) for first in range(32)))

    with Batcher(translator, slots=7) as batcher:
        asyncio.run(tasks(batcher))
        assert len(batcher) == 0


def test_samples_depend_on_their_stream_alone(demo_model: str, sentences: list[str]) -> None:
    translator = Translator(demo_model, sample=True, temperature=1.5, seed=5)
    texts = sentences[:20]
    alone = [translator.translate(text, split=False, stream=number) for number, text in enumerate(texts)]
    with Batcher(translator) as batcher:
        futures = [batcher.submit(text, stream=number) for number, text in enumerate(texts)]
        assert [future.result(60) for future in futures] == alone


def test_threads_submit_and_wait(translator: Translator, sentences: list[str]) -> None:
    texts = sentences[:64]
    alone = translator.translate(texts, split=False)
    with Batcher(translator, threads=2) as batcher:
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            assert list(pool.map(lambda text: batcher.submit(text).result(60), texts)) == alone


def test_cancelled_futures_end_and_others_do_not_change(
    translator: Translator, sentences: list[str]
) -> None:
    chosen = random.Random(1)
    alone = translator.translate(sentences[:200], split=False)
    with Batcher(translator, slots=3) as batcher:
        futures = [batcher.submit(text) for text in sentences[:200]]
        cancelled = {index for index in range(200) if chosen.random() < 0.5 and futures[index].cancel()}
        assert cancelled
        done, left = concurrent.futures.wait(futures, timeout=60)
        assert not left and len(done) == 200
        for index, future in enumerate(futures):
            assert future.cancelled() == (index in cancelled)
            if index not in cancelled:
                assert future.result() == alone[index]
        assert futures[next(iter(cancelled))].cancel()
        finished = next(future for future in futures if not future.cancelled())
        assert not finished.cancel()


def test_a_cancelled_task_ends_its_sentence(translator: Translator, sentences: list[str]) -> None:
    async def run(batcher: Batcher) -> None:
        tasks = [asyncio.create_task(batcher.asubmit(text)) for text in sentences[:40]]
        await asyncio.sleep(0)
        for task in tasks[1:]:
            task.cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert found[0] == translator.translate(sentences[0], split=False)
        assert sum(isinstance(one, asyncio.CancelledError) for one in found) > 10

    with Batcher(translator, slots=2) as batcher:
        asyncio.run(run(batcher))


def test_streams_are_the_translation(translator: Translator, sentences: list[str]) -> None:
    text = max(sentences[:40], key=len)
    alone = translator.translate(text, split=False)

    async def pieces(batcher: Batcher) -> list[str]:
        return [piece async for piece in batcher.astream(text)]

    with Batcher(translator) as batcher:
        found = list(batcher.stream(text))
        assert len(found) > 3 and "".join(found) == alone
        assert asyncio.run(pieces(batcher)) == found
        half = batcher.stream(text)
        assert next(half) == found[0]
        half.close()  # type: ignore[attr-defined]  # a generator
        wait_until(lambda: len(batcher) == 0)
        assert batcher.submit(text).result(60) == alone


def wait_until(condition: Any) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.01)


def test_blank_and_too_long_sentences(demo_model: str) -> None:
    with Batcher(Translator(demo_model)) as batcher:
        assert batcher.submit("  ").result(60) == "  "
        error = batcher.submit("la maison " * 400).exception(60)
        assert isinstance(error, simdformer.LimitError) and error.found > error.expected
        with pytest.raises(simdformer.LanguageError):
            batcher.submit("la maison", target_lang="xx")
        with pytest.raises(TypeError):
            batcher.submit(3)  # type: ignore[arg-type]
        assert batcher.submit("il fait froid").result(60) == "it is cold"


def test_closing(translator: Translator, sentences: list[str]) -> None:
    batcher = Batcher(translator, slots=2)
    assert "0 unfinished" in repr(batcher)
    futures = [batcher.submit(text) for text in sentences[:50]]
    batcher.close()
    assert all(future.done() and not future.cancelled() for future in futures)
    with pytest.raises(simdformer.ClosedError):
        batcher.submit("il fait froid")
    assert "closed" in repr(batcher)
    with pytest.raises(KeyError), Batcher(translator, slots=1) as other:
        # More than it translates meanwhile, even if this thread has to wait for a processor.
        futures = [other.submit(text) for text in sentences * 20]
        raise KeyError
    assert all(future.done() for future in futures)
    # A sentence that was waiting has an error and no empty translation.
    assert isinstance(futures[-1].exception(), simdformer.ClosedError)
    for future in futures:
        assert isinstance(future.exception(), simdformer.ClosedError) or future.result()
    batcher.close()


def test_an_unused_batcher_starts_no_thread_and_none_is_left(translator: Translator) -> None:
    before = threading.active_count()
    batcher = Batcher(translator)
    assert threading.active_count() == before
    assert batcher.submit("il fait froid").result(60) == "it is cold"
    del batcher
    wait_until(lambda: threading.active_count() == before)


def test_pickles_its_translator(demo_model: str) -> None:
    with Batcher(Translator(demo_model, beams=2), slots=3) as batcher:
        data = pickle.dumps(batcher)
        assert len(data) <= 500
        with pickle.loads(data) as again:
            assert again.submit("il fait froid").result(60) == "it is cold"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_after_a_fork_it_starts_again(translator: Translator, sentences: list[str]) -> None:
    texts = sentences[:30]
    alone = translator.translate(texts, split=False)
    with Batcher(translator) as batcher:
        futures = [batcher.submit(text) for text in texts]
        child = os.fork()
        if child == 0:
            code = 1
            try:
                # What the parent waits for is an error here.
                lost = [future for future in futures if not isinstance(future.exception(10), simdformer.ForkError) and future.result(0) not in alone]
                found = [future.result(60) for future in [batcher.submit(text) for text in texts]]
                batcher.close()
                code = 0 if found == alone and not lost else 2
            finally:
                os._exit(code)
        assert [future.result(60) for future in futures] == alone
        end = time.monotonic() + 60
        while (status := os.waitpid(child, os.WNOHANG))[0] == 0:
            if time.monotonic() > end:
                os.kill(child, signal.SIGKILL)
                pytest.fail("the child hangs")
            time.sleep(0.02)
        assert os.waitstatus_to_exitcode(status[1]) == 0


PROGRAM = """
import sys, simdformer
batcher = simdformer.Batcher(simdformer.Translator(sys.argv[1]))
futures = [batcher.submit(text) for text in ["il fait froid"] * 200]
print(futures[0].result(60))
"""


def test_a_program_ends_while_sentences_are_decoded(demo_model: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, demo_model], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "it is cold\n", "")
