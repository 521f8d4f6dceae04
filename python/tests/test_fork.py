"""`fork`, `spawn` and `forkserver`: a child gives the parent's results, and shares its weights."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import simdformer
from simdformer import Ragged, Translator

LIMIT = 10.0
ROWS = [[6, 11, 0], [8, 0], [9, 14, 32, 0]] * 20


def in_child(work: Callable[[], object]) -> object:
    """What `work` returns in a child of a fork. A child that hangs is killed."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(read)
            try:
                result: object = work()
            except BaseException as error:
                result = error
            with os.fdopen(write, "wb") as pipe:
                pipe.write(pickle.dumps(result))
        finally:
            os._exit(0)
    os.close(write)
    killer = threading.Timer(LIMIT, os.kill, (child, 9))
    killer.start()
    with os.fdopen(read, "rb") as pipe:
        data = pipe.read()
    os.waitpid(child, 0)
    killer.cancel()
    assert data, f"the child gave nothing within {LIMIT} s"
    result = pickle.loads(data)
    if isinstance(result, BaseException):
        raise result
    return result


def tokens(translator: Translator) -> list[list[int]]:
    return translator.generate(ROWS).tokens.to_list()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("used", [False, True])
def test_a_child_gives_the_same_result(demo_model: str, threads: int, used: bool) -> None:
    translator = Translator(demo_model, threads=threads, beams=2)
    expected = tokens(Translator(demo_model, beams=2))
    if used:
        # The pool has started, and its threads are idle.
        assert tokens(translator) == expected
        translator.translate("il fait froid")
    for _ in range(2):
        assert in_child(lambda: tokens(translator)) == expected
    assert in_child(lambda: in_child(lambda: tokens(translator))) == expected
    assert in_child(lambda: translator.translate("il fait froid")) == "it is cold"
    assert tokens(translator) == expected


def test_a_fork_while_another_thread_computes(demo_model: str) -> None:
    translator = Translator(demo_model, threads=2)
    expected = tokens(translator)
    stop = threading.Event()

    def compute() -> None:
        while not stop.is_set():
            translator.generate(ROWS)

    worker = threading.Thread(target=compute)
    worker.start()
    try:
        for _ in range(8):
            time.sleep(0.02)
            assert in_child(lambda: tokens(translator)) == expected
    finally:
        stop.set()
        worker.join()


def test_a_fork_from_a_thread(demo_model: str) -> None:
    translator, found = Translator(demo_model, threads=2), []
    expected = tokens(translator)
    worker = threading.Thread(target=lambda: found.append(in_child(lambda: tokens(translator))))
    worker.start()
    worker.join()
    assert found == [expected]


def test_a_stream_belongs_to_its_process(demo_model: str) -> None:
    translator = Translator(demo_model)
    stream = translator.stream("je suis étudiant")
    with pytest.raises(simdformer.ForkError):
        in_child(lambda: list(stream))
    assert in_child(lambda: "".join(translator.stream("il fait froid"))) == "it is cold"
    assert "".join(stream) == "i am a student"


def test_a_child_that_closes_and_exits(demo_model: str) -> None:
    translator = Translator(demo_model, threads=2)
    expected = tokens(translator)

    def close() -> list[list[int]]:
        translator.close()
        return tokens(Translator(demo_model, threads=2))

    assert in_child(close) == expected
    assert tokens(translator) == expected


def digest(translator: Translator) -> bytes:
    return translator.generate(ROWS).tokens.ids.tobytes()


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_of_multiprocessing(demo_model: str, method: str) -> None:
    translator = Translator(demo_model, beams=2)
    context = multiprocessing.get_context(method)
    with context.Pool(2) as pool:
        found = pool.map(digest, [translator] * 4)
    assert set(found) == {digest(translator)}


def proportional(process: int | str) -> int:
    """The proportional memory of a process in bytes."""
    rollup = Path(f"/proc/{process}/smaps_rollup").read_text()
    found = re.search(r"^Pss:\s+(\d+) kB", rollup, re.MULTILINE)
    assert found
    return 1024 * int(found[1])


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux")
def test_four_children_share_the_weights(demo_model: str) -> None:
    translator = Translator(demo_model)
    tokens(translator)
    plan = sum(plan.bytes for plan in translator.plan)
    before = proportional("self")
    children, pipes = [], []
    for _ in range(4):
        ready, write = os.pipe()
        read, done = os.pipe()
        child = os.fork()
        if child == 0:
            tokens(translator)
            os.write(write, b"!")
            os.read(read, 1)
            os._exit(0)
        os.read(ready, 1)
        children.append(child)
        pipes.append(done)
    together = proportional("self") + sum(proportional(child) for child in children)
    for child, done in zip(children, pipes, strict=True):
        os.write(done, b"!")
        os.waitpid(child, 0)
    limit = before + 4 * plan + 60_000_000
    print(f"{before} bytes alone, {together} with four children, plan {plan}, limit {limit}")
    assert together <= limit
