"""Hold the cache of `simdformer get` to that of the Python client huggingface_hub: each reads what the other downloaded.

Usage: python tests/real/hub_cache.py [--simdformer PROGRAM]

A hub on the loopback interface has a model of four needed files and three others. Nothing leaves this machine. Checked:

1. simdformer downloads, Python reads: without a network, and with one, where it downloads no file again.
2. Python downloads, simdformer reads: the same.
3. Two processes of each download into one cache at once: all succeed, and every file is right.
4. Python downloads a file that simdformer has begun, and simdformer one that Python has begun.

huggingface_hub is to be installed; its version is printed.
"""

import argparse
import hashlib
import http.server
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

import huggingface_hub

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
NAME = "test/model"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
LARGE = (".safetensors", ".bin", ".spm", ".h5", ".onnx")
NEEDED = ["config.json", "model.safetensors", "source.spm", "vocab.json"]

NOISE = random.Random(36)
FILES = {
    "README.md": b"# A model",
    "config.json": b'{"model_type": "marian"}',
    "model.safetensors": NOISE.randbytes(3_000_000),
    "onnx/model.onnx": NOISE.randbytes(100),
    "source.spm": NOISE.randbytes(50_000),
    "tf_model.h5": NOISE.randbytes(100),
    "vocab.json": b'{"a": 0}',
}


def git_sha1(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def etag(path):
    content = FILES[path]
    return hashlib.sha256(content).hexdigest() if path.endswith(LARGE) else git_sha1(content)


def entry(path):
    content = FILES[path]
    found = {"type": "file", "path": path, "size": len(content), "oid": git_sha1(content)}
    if path.endswith(LARGE):
        found["lfs"] = {"oid": etag(path), "size": len(content), "pointerSize": 130}
    return found


class Handler(http.server.BaseHTTPRequestHandler):
    """The hub, and under /blob/ the storage of large files."""

    bodies = []
    pause = 0.0

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.do_GET(head=True)

    def answer(self, status, body=b"", headers=(), head=False):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        try:
            for at in range(0, 0 if head else len(body), 100_000):
                self.wfile.write(body[at : at + 100_000])
                time.sleep(self.pause)
        except ConnectionError:
            # The other process was killed.
            self.close_connection = True

    def do_GET(self, head=False):
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        if path == f"/api/models/{NAME}/revision/main":
            about = {"_id": "0", "id": NAME, "sha": COMMIT, "private": False, "gated": False, "disabled": False}
            about |= {"downloads": 0, "likes": 0, "tags": [], "siblings": [{"rfilename": name} for name in FILES]}
            return self.answer(200, json.dumps(about).encode(), [("Content-Type", "application/json")], head)
        if path == f"/api/models/{NAME}/tree/{COMMIT}":
            files = json.dumps([entry(path) for path in FILES]).encode()
            return self.answer(200, files, [("Content-Type", "application/json")], head)
        for revision in (COMMIT, "main"):
            file = path.removeprefix(f"/{NAME}/resolve/{revision}/")
            if file not in FILES:
                continue
            headers = [("X-Repo-Commit", COMMIT), ("ETag", f'"{etag(file)}"')]
            if file.endswith(LARGE):
                linked = [("X-Linked-Etag", f'"{etag(file)}"'), ("X-Linked-Size", str(len(FILES[file])))]
                location = f"http://localhost:{self.server.server_port}/blob/{file}"
                return self.answer(302, b"", [*headers[:1], *linked, ("Location", location)], head)
            if not head:
                self.bodies.append(file)
            return self.answer(200, FILES[file], headers, head)
        file = path.removeprefix("/blob/")
        if file in FILES:
            self.bodies.append(file)
            content, status, headers = FILES[file], 200, []
            if range_ := self.headers.get("Range"):
                start = int(range_.removeprefix("bytes=").split("-")[0])
                headers = [("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")]
                content, status = content[start:], 206
            return self.answer(status, content, headers, head)
        return self.answer(404, headers=[("X-Error-Code", "EntryNotFound")])


PYTHON = """
import sys, huggingface_hub
print(huggingface_hub.snapshot_download(sys.argv[1], allow_patterns=sys.argv[2:]))
"""


class Place:
    """A cache, and both programs."""

    def __init__(self, simdformer, endpoint):
        self.simdformer, self.home = simdformer, tempfile.TemporaryDirectory()
        self.variables = {
            "HF_ENDPOINT": endpoint,
            "HF_HOME": self.home.name,
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_XET": "1",
            "PATH": os.environ["PATH"],
            "HOME": os.environ.get("HOME", "/"),
        }

    def start(self, command, **variables):
        return subprocess.Popen(command, env=self.variables | variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def ours(self, **variables):
        return self.start([self.simdformer, "get", NAME, "--quiet"], **variables)

    def python(self, **variables):
        return self.start([sys.executable, "-c", PYTHON, NAME, *NEEDED], **variables)

    def folder(self, *parts):
        return os.path.join(self.home.name, "hub", "models--test--model", *parts)

    def check(self, process, downloaded):
        """The process printed the directory, whose files are right, and exactly `downloaded` were sent (None: any)."""
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        assert out.strip() == self.folder("snapshots", COMMIT), out
        self.files()
        if downloaded is not None:
            assert sorted(Handler.bodies) == sorted(downloaded), Handler.bodies
        Handler.bodies.clear()

    def begun(self, file):
        """Whether a part of the file has arrived."""
        try:
            blobs = os.scandir(self.folder("blobs"))
            return any(blob.name.startswith(etag(file)) and blob.stat().st_size > 100_000 for blob in blobs)
        except FileNotFoundError:
            # There is no blob yet, or it was renamed meanwhile.
            return False

    def files(self):
        for name in NEEDED:
            path = self.folder("snapshots", COMMIT, name)
            assert os.readlink(path) == f"../../blobs/{etag(name)}", os.readlink(path)
            with open(path, "rb") as file:
                assert file.read() == FILES[name], name
        with open(self.folder("refs", "main")) as file:
            assert file.read() == COMMIT
        report = huggingface_hub.scan_cache_dir(os.path.join(self.home.name, "hub"))
        assert not report.warnings, report.warnings
        (model,) = report.repos
        assert model.repo_id == NAME and model.size_on_disk == sum(len(FILES[name]) for name in NEEDED)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--simdformer", default=os.path.join(ROOT, "target", "debug", "simdformer"))
    simdformer = os.path.abspath(parser.parse_args().simdformer)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    endpoint = f"http://127.0.0.1:{server.server_port}"
    print(f"huggingface_hub {huggingface_hub.__version__}")

    place = Place(simdformer, endpoint)
    place.check(place.ours(), NEEDED)
    place.check(place.python(HF_HUB_OFFLINE="1"), [])
    place.check(place.python(), [])
    print("Python reads what simdformer downloaded, and downloads nothing again")

    place = Place(simdformer, endpoint)
    place.check(place.python(), NEEDED)
    place.check(place.ours(HF_HUB_OFFLINE="1"), [])
    place.check(place.ours(), [])
    print("simdformer reads what Python downloaded, and downloads nothing again")

    Handler.pause = 0.01
    place = Place(simdformer, endpoint)
    for process in [start() for start in (place.ours, place.python) * 2]:
        place.check(process, None)
    print("two of each at once are right")

    for first, second in ((Place.ours, Place.python), (Place.python, Place.ours)):
        place = Place(simdformer, endpoint)
        process = first(place)
        while process.poll() is None and not place.begun("model.safetensors"):
            time.sleep(0.005)
        assert process.poll() is None, "it was too fast to be interrupted"
        process.kill()
        process.communicate()
        Handler.bodies.clear()
        place.check(second(place), None)
        place.check(first(place), [])
    print("what one has begun, the other completes")


if __name__ == "__main__":
    main()
