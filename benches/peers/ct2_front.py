"""CTranslate2 behind a small HTTP front, with the routes that compare_serve.py asks for.

Usage: python ct2_front.py {translate,embed,none} [DIR] [--threads 1]    (prints the port, and serves until it is ended)

`translate`: DIR is a directory of CTranslate2 with source.spm and target.spm, as the converter makes it of OPUS-MT. `embed`:
DIR is an encoder as make_minilm.py writes it. `none` runs no model and sends each text back, which is what the front alone
costs. A thread for each connection puts its requests into a queue; `--threads` threads, each with a replica of the model on
one thread, take up to 32 that wait at a time: several replicas of one thread are CTranslate2's fastest for many requests.
"""

import argparse
import base64
import concurrent.futures
import http.server
import json
import queue
import socket
import threading

BATCH = 32


def translate(folder, threads):
    import ctranslate2
    import sentencepiece

    read, write = (sentencepiece.SentencePieceProcessor(f"{folder}/{side}.spm") for side in ("source", "target"))
    model = ctranslate2.Translator(folder, inter_threads=threads, intra_threads=1)

    def run(requests):
        pieces = read.encode([request["q"] for request in requests], out_type=str)
        found = model.translate_batch(pieces, beam_size=1, max_batch_size=0)
        return [{"translatedText": write.decode(one.hypotheses[0])} for one in found]

    return run


def embed(folder, threads):
    import ctranslate2
    import numpy as np

    model = ctranslate2.Encoder(folder, inter_threads=threads, intra_threads=1)

    def run(requests):
        ids = [request["input"] for request in requests]
        hidden = np.asarray(model.forward_batch(ids).last_hidden_state)
        answers = []
        for rows, sentence in zip(hidden, ids):
            vector = rows[: len(sentence)].mean(0)
            vector = (vector / np.linalg.norm(vector)).astype("<f4")
            text = base64.b64encode(vector.tobytes()).decode()
            answers.append({"data": [{"embedding": text}]})
        return answers

    return run


def none(folder, threads):
    return lambda requests: [{"translatedText": request["q"]} for request in requests]


def work(waiting, run):
    while True:
        batch = [waiting.get()]
        try:
            while len(batch) < BATCH:
                batch.append(waiting.get_nowait())
        except queue.Empty:
            pass
        try:
            for (_, result), answer in zip(batch, run([request for request, _ in batch])):
                result.set_result(answer)
        except Exception as error:
            for _, result in batch:
                result.set_exception(error)


def front(waiting):
    class Front(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            result = concurrent.futures.Future()
            waiting.put((request, result))
            answer = json.dumps(result.result()).encode()
            head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(answer)}\r\n\r\n"
            # At once: of two writes the second would wait for the client's acknowledgement.
            self.wfile.write(head.encode() + answer)

        def setup(self):
            self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            super().setup()

    return Front


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=["translate", "embed", "none"])
    p.add_argument("folder", nargs="?")
    p.add_argument("--threads", type=int, default=1)
    a = p.parse_args()
    run, waiting = globals()[a.what](a.folder, a.threads), queue.SimpleQueue()
    for _ in range(a.threads):
        threading.Thread(target=work, args=(waiting, run), daemon=True).start()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), front(waiting))
    print(server.server_port, flush=True)
    server.serve_forever()
