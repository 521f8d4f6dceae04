"""Memory, the GIL, the cost of a call and of the import, and pickling."""

from __future__ import annotations

import copy
import json
import os
import pickle
import re
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import simdformer
from simdformer import Ragged, Translator

linux = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux")


def resident() -> int:
    """The resident memory of this process in bytes."""
    found = re.search(r"^VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found
    return 1024 * int(found[1])


GROWTH = """
import sys, json
sys.path.insert(0, sys.argv[2])
from test_resources import resident
import simdformer
translator = simdformer.Translator(sys.argv[1])
texts = ["il fait froid", "je suis étudiant", "qui coupe le beurre ?"]
def run(count):
    for _ in translator.translate_iter((texts[i % 3] for i in range(count)), split=False):
        pass
    return resident()
run(1000)
print(json.dumps([run(1000), run(int(sys.argv[3]))]))
"""


def growth(demo_model: str, count: int) -> float:
    folder = str(Path(__file__).parent)
    found = subprocess.run(
        [sys.executable, "-c", GROWTH, demo_model, folder, str(count)],
        check=True,
        capture_output=True,
        text=True,
    )
    before, after = json.loads(found.stdout)
    print(f"{before} bytes after 1,000 sentences, {after} after {count} more")
    return float(after) / float(before)


@linux
def test_memory_does_not_grow(demo_model: str) -> None:
    assert growth(demo_model, 10_000) <= 1.01


@linux
@pytest.mark.slow
def test_memory_does_not_grow_over_100_000_sentences(demo_model: str) -> None:
    assert growth(demo_model, 100_000) <= 1.01


def test_a_model_is_read_once(demo_model: str) -> None:
    first, second = Translator(demo_model), Translator(demo_model, beams=2)
    started = time.perf_counter()
    for _ in range(20):
        Translator(demo_model, beams=3)
    assert time.perf_counter() - started < 2.0
    assert first.model_bytes == second.model_bytes


IMPORT = """
import sys, time
started = time.perf_counter()
import simdformer
elapsed = time.perf_counter() - started
assert "numpy" not in sys.modules and "pyarrow" not in sys.modules
simdformer.Translator, simdformer.SimdformerError
print(1e3 * elapsed)
"""


def test_the_import_is_short_and_imports_no_numpy() -> None:
    command = [sys.executable, "-c", IMPORT]
    times = [
        float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        for _ in range(5)
    ]
    print(f"import: {min(times):.2f} ms")
    # 5 ms on an idle machine, from a warm file cache.
    assert min(times) <= 15.0


def busy(seconds: float) -> int:
    count, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        count += 1
    return count


def test_other_threads_run_during_a_call(demo_model: str) -> None:
    """A call that held the GIL would stop the counter for its whole duration."""
    translator = Translator(demo_model)
    rows = Ragged.from_rows([[6, 11, 0, 9, 14]] * 4000)
    pauses: list[float] = []
    stop = threading.Event()

    def count() -> None:
        before = time.perf_counter()
        while not stop.is_set():
            time.sleep(0.001)
            now = time.perf_counter()
            pauses.append(now - before)
            before = now

    counter = threading.Thread(target=count)
    started = time.perf_counter()
    counter.start()
    translator.generate(rows)
    elapsed = time.perf_counter() - started
    stop.set()
    counter.join()
    print(f"call of {elapsed:.2f} s, longest pause of another thread {max(pauses):.3f} s")
    assert max(pauses) <= max(0.25, 0.5 * elapsed)


@pytest.mark.slow
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="needs two processors")
def test_two_threads_with_one_translator(demo_model: str) -> None:
    """Only on an idle machine: two calls at the same time take as long as one."""
    translator = Translator(demo_model)
    rows = Ragged.from_rows([[6, 11, 0, 9, 14, 32, 0]] * 3000)
    ratios = []
    for _ in range(5):
        started = time.perf_counter()
        translator.generate(rows)
        one = time.perf_counter() - started
        threads = [threading.Thread(target=translator.generate, args=(rows,)) for _ in range(2)]
        started = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        ratios.append(2 * one / (time.perf_counter() - started))
    print(f"two threads: {statistics.median(ratios):.2f} times one")
    assert statistics.median(ratios) >= 1.8


def test_every_object_is_pickled_and_copied(demo_model: str) -> None:
    options = simdformer.TranslatorOptions(beams=4, target_lang=None, max_new_tokens=30)
    objects = [
        Translator(demo_model, threads=2, sessions=1, beams=4, max_new_tokens=30),
        options,
        simdformer.Limits(sentences=3),
        simdformer.Model(demo_model),
        simdformer.Finish.END,
        Ragged.from_rows([[1, 2], []]),
    ]
    for one in objects:
        data = pickle.dumps(one)
        # A name and a value for each option, and no weights.
        assert len(data) <= 600, (one, len(data))
        again = pickle.loads(data)
        assert type(again) is type(one) and repr(again) == repr(one)
        assert repr(copy.deepcopy(one)) == repr(one)


def test_cloudpickle(demo_model: str) -> None:
    cloudpickle = pytest.importorskip("cloudpickle")
    translator = Translator(demo_model)
    again = pickle.loads(cloudpickle.dumps(translator))
    assert again.translate("il fait froid") == "it is cold"


def test_fingerprints(demo_model: str) -> None:
    one = Translator(demo_model)
    assert one.fingerprint == Translator(demo_model, threads=2, slots=5).fingerprint
    assert one.fingerprint != Translator(demo_model, beams=2).fingerprint
    assert one.fingerprint != Translator(demo_model, dtype="int8").fingerprint
    assert re.fullmatch("[0-9a-f]{64}", one.fingerprint)


def test_says_what_it_plans(demo_model: str) -> None:
    translator = Translator(demo_model)
    assert translator.plan == []
    translator.generate([[6, 11, 0]])
    [plan] = translator.plan
    assert plan.bytes > 0 and "bytes" in plan.table and plan.table in repr(translator)
    assert translator.plan_for(4, 64).bytes > translator.plan_for(2, 64).bytes


def test_a_call_costs_little(demo_model: str) -> None:
    """A call without rows has the whole cost of the binding, and none of the model."""
    translator = Translator(demo_model)
    none = Ragged.from_rows([])
    times = []
    for _ in range(30):
        started = time.perf_counter()
        for _ in range(200):
            translator.generate(none.ids, none.offsets)
        times.append((time.perf_counter() - started) / 200)
    print(f"a call without rows: {1e6 * min(times):.1f} us")
    # 5 us with an optimized build on an idle machine.
    assert min(times) <= 100e-6
