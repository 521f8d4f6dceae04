"""Time `simdformer serve` beside CTranslate2 behind ct2_front.py, with many clients, and print one table.

Usage: python compare_serve.py [--translation HF CT2] [--embedding HF CT2] [--threads 1] [--clients 32] [--requests 2000]
                               [--rounds 3] [--binary PATH] [--write ../results/MACHINE.tsv]

--translation takes an OPUS-MT model, as transformers and as CTranslate2 keep it (source.spm and target.spm beside model.bin),
--embedding what make_minilm.py wrote and its folder ct2. Both services decode greedily in f32. A client has one connection
and one request of one sentence at a time. The services take turns in a round; a ratio is taken within a round. The front
alone, without a model, says how much of CTranslate2's time the front is. What was answered is compared, too.

A second table is of the service alone: how soon a full queue refuses, its memory after requests, and the CPU time that it
takes without requests.
Run it where nothing else runs.
"""

import argparse
import base64
import datetime
import http.client
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import threading
import time

import results

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
HEADERS = {"content-type": "application/json"}
# A text that takes longer than the measurement of refusals.
LONG = "La vieille maison blanche est belle. " * 5000
REFUSALS, IDLE_SECONDS = 200, 20


class Service:
    """A process that prints where it listens."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        line = self.process.stdout.readline()
        while line and not line.strip().rsplit(":", 1)[-1].isdigit():
            line = self.process.stdout.readline()
        assert line, f"{command} has ended"
        self.port = int(line.strip().rsplit(":", 1)[-1])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def client(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)

    def cpu_seconds(self):
        with open(f"/proc/{self.process.pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident(self):
        with open(f"/proc/{self.process.pid}/smaps_rollup") as memory:
            return next(int(line.split()[1]) for line in memory if line.startswith("Rss:")) / 1024


def ours(folder, a, *more):
    command = [a.binary, "serve", "--model", folder, "--threads", str(a.threads), "--address", "127.0.0.1:0", *more]
    return Service(command)


def theirs(what, folder, a):
    return Service([sys.executable, str(HERE / "ct2_front.py"), what, folder, "--threads", str(a.threads)])


def ask(client, path, body=None):
    client.request("POST" if body else "GET", path, body, HEADERS)
    response = client.getresponse()
    return response.status, response.read()


def load(service, path, bodies, a):
    """All answers, requests per second, and the seconds of each request, with all clients at the same time."""
    answers, seconds, lock, todo = [None] * len(bodies), [], threading.Lock(), iter(enumerate(bodies))

    def work():
        client = service.client()
        while True:
            with lock:
                one = next(todo, None)
            if one is None:
                return
            start = time.perf_counter()
            status, answer = ask(client, path, one[1])
            seconds.append(time.perf_counter() - start)
            assert status == 200, answer
            answers[one[0]] = json.loads(answer)

    threads = [threading.Thread(target=work) for _ in range(a.clients)]
    start = time.perf_counter()
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    rate = len(bodies) / (time.perf_counter() - start)
    assert None not in answers, "a client has ended early"
    return answers, rate, sorted(seconds)


def share(sorted_seconds, part):
    """The milliseconds that `part` of the requests do not exceed."""
    return 1e3 * sorted_seconds[math.ceil(part * len(sorted_seconds)) - 1]


def is_same(one, other):
    if "translatedText" in one:
        return one["translatedText"] == other["translatedText"]
    import numpy as np

    vectors = [np.frombuffer(base64.b64decode(answer["data"][0]["embedding"]), "<f4") for answer in (one, other)]
    return float(np.abs(vectors[0] - vectors[1]).max()) < 1e-4


def sentences(count):
    lines = list(open(ROOT / "models" / "fr-en" / "held_out.jsonl"))
    return [json.dumps({"q": json.loads(lines[i % len(lines)])["source"], "target": "en"}) for i in range(count)]


def compare(a):
    works = []
    if a.translation:
        works.append(("translate", "/translate", a.translation, sentences(a.requests)))
    if a.embedding:
        given = json.load(open(os.path.join(a.embedding[0], "sentences.json")))["ids"]
        bodies = [json.dumps({"input": ids, "encoding_format": "base64"}) for ids in given]
        bodies = [bodies[i % len(bodies)] for i in range(a.requests)]
        works.append(("embed", "/v1/embeddings", a.embedding, bodies))
    table = [
        f"{datetime.date.today()}: {a.clients} clients, {a.requests} requests of one sentence, medians of {a.rounds} rounds, f32, "
        f"greedy. CTranslate2 behind ct2_front.py, {a.threads} of one thread each. Clients run on the same cores. The front alone "
        "sends each text back.",
        "",
        "| work | service | requests/s | p50 ms | p99 ms | ours over it | same answers |",
        "|---|---|---|---|---|---|---|",
    ]
    for what, path, (hf, ct2), bodies in works:
        echo = [json.dumps({"q": "a" * len(body)}) for body in bodies]
        services = {
            "simdformer serve": (lambda: ours(hf, a), bodies),
            "CTranslate2 behind a front": (lambda: theirs(what, ct2, a), bodies),
            "the front alone": (lambda: theirs("none", ct2, a), echo),
        }
        found = {name: [] for name in services}
        same = []
        for round_ in range(a.rounds):
            print(f"{what}, round {round_ + 1} of {a.rounds}", file=sys.stderr, flush=True)
            answers = {}
            for name, (start, bodies_) in services.items():
                with start() as service:
                    load(service, path, bodies_[: 2 * a.clients], a)
                    answers[name], *times = load(service, path, bodies_, a)
                    found[name].append(times)
            pairs = zip(answers["simdformer serve"], answers["CTranslate2 behind a front"])
            same.append(sum(is_same(*pair) for pair in pairs) / len(bodies))
        for name, rounds in found.items():
            rate = statistics.median(rate for rate, _ in rounds)
            p50, p99 = (statistics.median(share(seconds, part) for _, seconds in rounds) for part in (0.5, 0.99))
            ratio = statistics.median(o[0] / t[0] for o, t in zip(found["simdformer serve"], rounds))
            told = f"{statistics.median(same):.3f}" if name.startswith("CT") else ""
            table.append(f"| {what} | {name} | {rate:.1f} | {p50:.1f} | {p99:.1f} | {ratio:.2f} | {told} |")
    return table


def limits(a):
    """What a full queue and an idle service cost, and whether memory grows."""
    table = [
        f"{datetime.date.today()}: the service alone. A full queue is to refuse within 5 ms, resident memory to be equal within 1 %, "
        "an idle service to take less than 0.1 % of a core.",
        "",
        "| what | found |",
        "|---|---|",
    ]
    with ours(a.translation[0], a, "--queue-tokens", "60") as service:
        # Each counts as half of the queue.
        body = json.dumps({"q": LONG, "target": "en"})
        busy = [service.client() for _ in range(2)]
        for client in busy:
            client.request("POST", "/translate", body, HEADERS)
        client, seconds = service.client(), []
        small = json.dumps({"q": "je suis étudiant"})
        patience = time.monotonic() + 60
        while b"\nsimdformer_queue_tokens 60\n" not in ask(client, "/metrics")[1]:
            assert time.monotonic() < patience, "the queue is not full"
        for _ in range(REFUSALS):
            start = time.perf_counter()
            status, answer = ask(client, "/translate", small)
            seconds.append(time.perf_counter() - start)
            assert status == 429, answer
        seconds.sort()
        told = f"p50 {share(seconds, 0.5):.2f} ms, p99 {share(seconds, 0.99):.2f} ms, longest {share(seconds, 1):.2f} ms"
        table.append(f"| {REFUSALS} refusals of a full queue while it decodes | {told} |")
    with ours(a.translation[0], a) as service:
        memory, bodies = [], sentences(1000)
        for part in (bodies[:100], bodies[100:]):
            load(service, "/translate", part, a)
            # Until connections and what they held are gone.
            time.sleep(1)
            memory.append(service.resident())
        told = f"{memory[0]:.1f} and {memory[1]:.1f} MiB, {100 * (memory[1] / memory[0] - 1):+.1f} %"
        table.append(f"| resident memory after 100 and 1000 requests | {told} |")
        start = service.cpu_seconds()
        time.sleep(IDLE_SECONDS)
        used = service.cpu_seconds() - start
        told = f"{used:.2f} s of {IDLE_SECONDS}, {100 * used / IDLE_SECONDS:.2f} %"
        table.append(f"| CPU time of the idle service after them | {told} |")
    return table


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--translation", nargs=2, metavar=("HF", "CT2"))
    parser.add_argument("--embedding", nargs=2, metavar=("HF", "CT2"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--binary", help="simdformer, if it is not to be compiled")
    parser.add_argument("--write")
    a = parser.parse_args()
    if not a.translation and not a.embedding:
        parser.error("expected --translation or --embedding, found neither")
    if not a.binary:
        subprocess.run(["cargo", "build", "--release", "-q", "-p", "simdformer-cli"], cwd=ROOT, check=True)
        a.binary = str(ROOT / "target" / "release" / "simdformer")
    tables = {"Service": compare, "Service, its limits": limits}
    if not a.translation:
        del tables["Service, its limits"]
    for name, table in tables.items():
        text = "\n".join(table(a)) + "\n"
        print(text)
        if a.write:
            results.put(a.write, results.title(name, a.threads), text)


if __name__ == "__main__":
    main()
