"""Time other engines on the vectors of ragged sentences. One JSON object a line: engine, what, setting, threads, median
seconds, tokens per second.

Usage: python sentences.py DIR [--threads 1] [--runs 3] [--engine NAME]    (DIR from make_minilm.py)

Each engine at its best: sentences sorted by length and padded to the longest of their batch, a line for each size of batch,
of which the reader takes the fastest. ONNX Runtime runs the graph that its own optimizer fuses (attention, bias + gelu,
add + norm, embedding + norm), made once and kept in DIR/onnx, and also one session a thread where there are several; and,
a row of its own, the graph as it is exported, with all that a session optimises by itself; then both with weights of eight
bits, for each column, and inputs that are rounded as they come (`quantize_dynamic`).
PyTorch runs its fused attention, CTranslate2 its encoder, which drops the padding itself, in f32 and in eight bits. Every
vector is held to transformers' in float64 before anything is timed.
"""

import argparse
import concurrent.futures
import json
import os
import time
import warnings

import ctranslate2
import numpy as np
import onnxruntime
import torch
from peers import ort_session
from transformers import BertModel
from transformers.utils import logging

BATCHES = (1, 4, 8, 16, 32, 64)
# How far a vector of length 1 may be from transformers' in any of its numbers.
BOUND = {"f32": 1e-5, "int8": 2e-2}


class Vectors(torch.nn.Module):
    """The mean over the tokens of each sentence, made of length 1."""

    def __init__(self, bert):
        super().__init__()
        self.bert = bert

    def forward(self, input_ids, attention_mask):
        hidden = self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        mask = attention_mask.unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * mask).sum(1) / mask.sum(1)
        return mean / mean.norm(dim=1, keepdim=True)


def bert(folder, attention):
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    kind = dict(dtype=torch.float32, attn_implementation=attention, local_files_only=True)
    return BertModel.from_pretrained(folder, add_pooling_layer=False, **kind).eval()


def exported(folder):
    """The graph of `folder` as torch's tracing exporter writes it, with attention written out."""
    path = os.path.join(folder, "onnx", f"exported-{torch.__version__}.onnx")
    if os.path.exists(path):
        return path
    os.makedirs(os.path.dirname(path), exist_ok=True)
    x = torch.randint(1000, 30000, (3, 11))
    names, axes = ["input_ids", "attention_mask"], {0: "sentences", 1: "tokens"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Vectors(bert(folder, "eager")),
            (x, torch.ones_like(x)),
            path,
            dynamo=False,
            opset_version=17,
            input_names=names,
            output_names=["vectors"],
            dynamic_axes={name: axes for name in names},
        )
    return path


def fused(folder):
    """The same, fused by ONNX Runtime's own optimizer."""
    path = os.path.join(folder, "onnx", f"fused-{onnxruntime.__version__}-{torch.__version__}.onnx")
    if os.path.exists(path):
        return path
    from onnxruntime.transformers import optimizer

    config = json.load(open(os.path.join(folder, "config.json")))
    sizes = dict(num_heads=config["num_attention_heads"], hidden_size=config["hidden_size"])
    graph = optimizer.optimize_model(exported(folder), model_type="bert", **sizes)
    found = graph.get_fused_operator_statistics()
    layers = config["num_hidden_layers"]
    expected = dict(EmbedLayerNormalization=1, Attention=layers, BiasGelu=layers, SkipLayerNormalization=2 * layers)
    assert all(found[name] == count for name, count in expected.items()), found
    graph.save_model_to_file(path)
    return path


def rounded(path):
    """The graph at `path` with weights of eight bits."""
    if not os.path.exists(path + ".int8"):
        import onnx
        from onnxruntime.quantization import QuantType, quantize_dynamic

        # The type of what the fused operators give, which the shapes' inference does not know.
        extra = {"DefaultTensorType": onnx.TensorProto.FLOAT}
        quantize_dynamic(path, path + ".int8", per_channel=True, weight_type=QuantType.QInt8, extra_options=extra)
    return path + ".int8"


def padded(batch):
    longest = max(map(len, batch))
    ids = np.zeros((len(batch), longest), np.int64)
    mask = np.zeros_like(ids)
    for row, sentence in enumerate(batch):
        ids[row, : len(sentence)] = sentence
        mask[row, : len(sentence)] = 1
    return ids, mask


def ort(sessions):
    """Batches to vectors: each session on a thread of its own, which takes the next batch when it is free."""
    pool = concurrent.futures.ThreadPoolExecutor(len(sessions))

    def run(batches):
        results = [None] * len(batches)
        todo = iter(enumerate(batches))

        def work(session):
            # Several threads take from one iterator: the interpreter's lock makes each `next` whole.
            for i, batch in todo:
                ids, mask = padded(batch)
                results[i] = session.run(None, {"input_ids": ids, "attention_mask": mask})[0]

        for done in [pool.submit(work, session) for session in sessions]:
            done.result()
        return results

    return run


def pytorch(model):
    def call(batch):
        ids, mask = padded(batch)
        return model(torch.from_numpy(ids), torch.from_numpy(mask)).numpy()

    return lambda batches: [call(batch) for batch in batches]


def ct2(encoder):
    def call(batch):
        hidden = np.asarray(encoder.forward_batch(batch).last_hidden_state)
        mask = padded(batch)[1][:, :, None]
        mean = (hidden * mask).sum(1) / mask.sum(1)
        return mean / np.linalg.norm(mean, axis=1, keepdims=True)

    return lambda batches: [call(batch) for batch in batches]


def engines(folder, threads):
    """Name, form of the weights, setting, and how it is made."""
    kind = dict(device="cpu", inter_threads=1, intra_threads=threads)
    for form in ("f32", "int8"):
        stored = rounded if form == "int8" else str
        more = ", int8" if form == "int8" else ""

        def session(graph, threads, stored=stored):
            return ort_session(stored(graph(folder)), threads)

        yield "onnxruntime" + more, form, "", lambda: ort([session(fused, threads)])
        if threads > 1:
            several = lambda: ort([session(fused, 1) for _ in range(threads)])
            yield "onnxruntime" + more, form, f", {threads} sessions", several
        # What a session optimises by itself, all of it switched on.
        yield "onnxruntime, graph as exported" + more, form, "", lambda: ort([session(exported, threads)])
        compute = dict(kind, compute_type={"f32": "float32", "int8": "int8"}[form])
        yield "ctranslate2" + more, form, "", lambda: ct2(ctranslate2.Encoder(os.path.join(folder, "ct2"), **compute))
    yield "hf-torch", "f32", "", lambda: pytorch(Vectors(bert(folder, "sdpa")))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--engine", default="")
    a = parser.parse_args()
    torch.set_num_threads(a.threads)
    given = json.load(open(os.path.join(a.folder, "sentences.json")))
    ids, expected = given["ids"], np.array(given["vectors"])
    order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
    tokens = sum(map(len, ids))
    for engine, form, more, make in engines(a.folder, a.threads):
        if not engine.startswith(a.engine):
            continue
        run = make()
        for size in BATCHES:
            batches = [[ids[i] for i in order[at : at + size]] for at in range(0, len(ids), size)]
            error = np.abs(np.concatenate(run(batches)) - expected[order]).max()
            assert error <= BOUND[form], f"{engine} computes something else: off by {error:.1e}"
            seconds = []
            for _ in range(a.runs):
                start = time.perf_counter()
                run(batches)
                seconds.append(time.perf_counter() - start)
            median = sorted(seconds)[a.runs // 2]
            line = {
                "engine": engine,
                "what": f"embed {form}",
                "setting": f"sorted, {size} at a time{more}",
                "threads": a.threads,
                "seconds": median,
                "rate": round(tokens / median, 2),
                "unit": "tok/s",
                "error": float(error),
            }
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    with torch.inference_mode(False), torch.no_grad():
        main()
