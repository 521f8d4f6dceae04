"""Time other engines on the work this project does. One JSON object a line: engine, what, shape, threads, median
seconds, rate, unit.

Usage: python peers.py {gemm,attention,norm,encode,decode,all} [--threads 1] [--models DIR from make_marian_base.py]
                       [--engine NAME] [--runs 7] [--floor 0.1]

A time is the median of `--runs` rounds of at least `--floor` seconds. `--engine` keeps the engines whose name begins
with NAME. `encode` and `decode` need `--models`.
"""

import argparse
import copy
import importlib.util
import json
import logging
import os
import sys
import tempfile
import time

import numpy as np
import torch
import torch.nn.functional as F

GEMM_SHAPES = [
    (1024, 1024, 1024),
    (512, 512, 512),
    (256, 512, 512),
    (256, 2048, 512),
    (256, 512, 2048),
    (1, 512, 512),
    (1, 2048, 512),
    (1, 512, 2048),
    (4, 2048, 512),
    (8, 2048, 512),
    (16, 2048, 512),
    (1, 32000, 512),
    (8, 32000, 512),
    (64, 32000, 512),
]
# Of which only the largest column of each row is wanted.
SCREEN_SHAPES = [(1, 32000, 512), (8, 32000, 512), (32, 32000, 512)]
# Batch, heads, queries, keys, head size.
ATTENTION_SHAPES = [
    (1, 8, 128, 128, 64),
    (1, 8, 512, 512, 64),
    (1, 8, 1024, 1024, 64),
    (1, 8, 2048, 2048, 64),
    (8, 8, 128, 128, 64),
    (1, 8, 1, 512, 64),
    (32, 8, 1, 128, 64),
]
NORM_SHAPES = [(128, 512), (1024, 512), (4096, 1024)]
LOGITS_SHAPES = [(1, 32000), (8, 32000), (1, 256000)]


class Bench:
    def __init__(self, options):
        self.threads, self.models = options.threads, options.models
        self.runs, self.floor, self.engine = options.runs, options.floor, options.engine

    def wants(self, engine):
        return engine.startswith(self.engine)

    def time(self, engine, what, shape, f, amount, unit, runs=None):
        """Print one line: `amount` of `unit` done by one call of `f`."""
        if not self.wants(engine):
            return
        seconds = self.median_seconds(f, min(self.runs, runs or self.runs))
        line = {
            "engine": engine,
            "what": what,
            "shape": list(shape),
            "threads": self.threads,
            "seconds": seconds,
            "rate": round(amount / seconds, 2),
            "unit": unit,
        }
        print(json.dumps(line), flush=True)

    def median_seconds(self, f, runs):
        f()
        f()
        times = []
        for _ in range(runs):
            start, count = time.perf_counter(), 0
            while True:
                f()
                count += 1
                if time.perf_counter() - start > self.floor:
                    break
            times.append((time.perf_counter() - start) / count)
        return sorted(times)[runs // 2]


def ort_session(model, threads):
    """ONNX Runtime with its full graph optimisation, on `threads` threads that do not spin between calls."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 3
    if threads > 1:
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def bound(session, inputs, output):
    """A call without arguments that runs `session` on `inputs` into `output`, both numpy, with nothing copied."""
    import onnxruntime

    binding = session.io_binding()
    for name, value in inputs.items():
        binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(value))
    # On the CPU this is a view of `output`, so the result can be read there.
    result = onnxruntime.OrtValue.ortvalue_from_numpy(output)
    binding.bind_ortvalue_output(session.get_outputs()[0].name, result)
    return lambda: session.run_with_iobinding(binding)


def check(engine, found, expected):
    error = float(np.abs(found - expected).max() / np.abs(expected).max())
    assert error <= 1e-4, f"{engine} computes something else: relative error {error:.1e}"


def ort_gemm(x, w, b, threads, largest=False):
    """One Gemm node, the weight an initializer that the runtime packs when it loads, as `F.linear(x, w, b)`; with
    `largest`, the index of the largest element of each row."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    m, n, k = x.shape[0], *w.shape
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["y"], transB=1)]
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, [m, n])
    if largest:
        nodes.append(helper.make_node("ArgMax", ["y"], ["i"], axis=1, keepdims=0))
        out = helper.make_tensor_value_info("i", TensorProto.INT64, [m])
    graph = helper.make_graph(
        nodes,
        "gemm",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [m, k])],
        [out],
        [numpy_helper.from_array(w.numpy(), "w"), numpy_helper.from_array(b.numpy(), "b")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    output = np.zeros(m, np.int64) if largest else np.zeros((m, n), np.float32)
    f = bound(ort_session(model.SerializeToString(), threads), {"x": x.numpy()}, output)
    f()
    expected = F.linear(x, w, b)
    if largest:
        # The values at both indices: two elements that are nearly equal may change places.
        found = expected.gather(1, torch.from_numpy(output)[:, None])[:, 0]
        check("onnxruntime", found.numpy(), expected.max(1).values.numpy())
    else:
        check("onnxruntime", output, expected.numpy())
    return f


def gemm(bench):
    for m, n, k in GEMM_SHAPES:
        work = 2e-9 * m * n * k
        x, w, b = torch.randn(m, k), torch.randn(n, k), torch.randn(n)
        bench.time("torch-mkl", "linear f32", (m, n, k), lambda: F.linear(x, w, b), work, "GFLOP/s")
        xb, wb, bb = x.bfloat16(), w.bfloat16(), b.bfloat16()
        bench.time("torch-onednn", "linear bf16", (m, n, k), lambda: F.linear(xb, wb, bb), work, "GFLOP/s")
        if bench.wants("onnxruntime"):
            bench.time("onnxruntime", "linear f32", (m, n, k), ort_gemm(x, w, b, bench.threads), work, "GFLOP/s")


def argmax(bench):
    for m, n, k in SCREEN_SHAPES:
        work = 2e-9 * m * n * k
        x, w, b = torch.randn(m, k), torch.randn(n, k), torch.randn(n)
        what = "largest of linear f32"
        bench.time("torch-mkl", what, (m, n, k), lambda: F.linear(x, w, b).argmax(1), work, "GFLOP/s")
        if bench.wants("onnxruntime"):
            f = ort_gemm(x, w, b, bench.threads, largest=True)
            bench.time("onnxruntime", what, (m, n, k), f, work, "GFLOP/s")


def attention(bench):
    sdpa = F.scaled_dot_product_attention
    for b, h, q, k, d in ATTENTION_SHAPES:
        Q, K, V = torch.randn(b, h, q, d), torch.randn(b, h, k, d), torch.randn(b, h, k, d)
        work, shape, square = 4e-9 * b * h * q * k * d, (b, h, q, k, d), "GFLOP/s of the full square"
        bench.time("torch-sdpa", "attention f32", shape, lambda: sdpa(Q, K, V), work, "GFLOP/s")
        if q > 1:
            bench.time("torch-sdpa", "attention f32 causal", shape, lambda: sdpa(Q, K, V, is_causal=True), work, square)
            mask = torch.ones(b, 1, 1, k, dtype=torch.bool)
            mask[..., k * 3 // 4 :] = False
            padded = "attention f32, last quarter padded"
            bench.time("torch-sdpa", padded, shape, lambda: sdpa(Q, K, V, attn_mask=mask), work, square)


def norm(bench):
    for r, c in NORM_SHAPES:
        x, y, w, b = torch.randn(r, c), torch.randn(r, c), torch.ones(c), torch.zeros(c)
        bytes_once = 4e-9 * r * c
        bench.time("torch", "layer_norm", (r, c), lambda: F.layer_norm(x, (c,), w, b), 2 * bytes_once, "GB/s")
        bench.time("torch", "add + layer_norm", (r, c), lambda: F.layer_norm(x + y, (c,), w, b), 3 * bytes_once, "GB/s")
        bench.time("torch", "softmax", (r, c), lambda: F.softmax(x, -1), 2 * bytes_once, "GB/s")
        bench.time("torch", "gelu", (r, c), lambda: F.gelu(x), 2 * bytes_once, "GB/s")
        bench.time("torch", "silu", (r, c), lambda: F.silu(x), 2 * bytes_once, "GB/s")
    for r, c in LOGITS_SHAPES:
        x = torch.randn(r, c)
        bench.time("torch", "log_softmax", (r, c), lambda: F.log_softmax(x, -1), 8e-9 * r * c, "GB/s")


def ids(batch, length, vocab):
    return [[int(t) for t in np.random.RandomState(i).randint(2, vocab - 2, length - 1)] + [0] for i in range(batch)]


def ort_encoder(encoder, x, threads, int8=False):
    """The encoder as ONNX for the shape of `x`, exported by torch, checked against torch; with `int8` with the weights of
    its linear layers in bytes, one scale a column, as ONNX Runtime's own tool makes them."""

    class Encoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = encoder

        def forward(self, input_ids):
            return self.encoder(input_ids=input_ids).last_hidden_state

    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode(False), torch.no_grad():
        path = os.path.join(folder, "encoder.onnx")
        # Inference tensors cannot be exported, so the ids are copied outside inference mode.
        example = torch.tensor(x.tolist())
        torch.onnx.export(
            Encoder().eval(),
            (example,),
            path,
            dynamo=True,
            verbose=False,
            input_names=["input_ids"],
            output_names=["memory"],
        )
        if int8:
            from onnxruntime.quantization import QuantType, quantize_dynamic

            quantize_dynamic(path, path + ".int8", per_channel=True, weight_type=QuantType.QInt8)
            path += ".int8"
        session = ort_session(path, threads)
        expected = Encoder()(example).numpy()
    output = np.zeros(expected.shape, np.float32)
    f = bound(session, {"input_ids": x.numpy()}, output)
    f()
    if not int8:
        check("onnxruntime", output, expected)
    return f


def can_export():
    if importlib.util.find_spec("onnxscript"):
        return True
    print("no encoder for onnxruntime: torch.onnx.export needs onnxscript (requirements.txt)", file=sys.stderr)
    return False


def load(models):
    from transformers import MarianMTModel
    from transformers.utils import logging as hf_logging

    hf_logging.disable_progress_bar()
    # Outside inference mode, so that the weights can also be exported.
    with torch.inference_mode(False):
        return MarianMTModel.from_pretrained(f"{models}/hf", dtype=torch.float32).eval()


def encode(bench):
    model = load(bench.models)
    vocab = model.config.vocab_size
    for b, s in [(1, 32), (8, 128)]:
        x = torch.tensor(ids(b, s, vocab))
        bench.time("hf-torch", "encode f32", (b, s), lambda: model.model.encoder(x), b * s, "tok/s")
        if bench.wants("onnxruntime") and can_export():
            f = ort_encoder(model.model.encoder, x, bench.threads)
            bench.time("onnxruntime", "encode f32", (b, s), f, b * s, "tok/s")
        if bench.wants("onnxruntime") and can_export():
            f = ort_encoder(model.model.encoder, x, bench.threads, int8=True)
            bench.time("onnxruntime", "encode int8", (b, s), f, b * s, "tok/s")
        if bench.wants("ctranslate2"):
            import ctranslate2

            for kind, compute in (("f32", "float32"), ("int8", "int8")):
                translator = ctranslate2.Translator(
                    f"{bench.models}/ct2_{kind}",
                    device="cpu",
                    inter_threads=1,
                    intra_threads=bench.threads,
                    compute_type=compute,
                )
                tokens = [[f"t{t}" for t in row[:-1]] for row in ids(b, s, vocab)]
                run = lambda: translator.translate_batch(tokens, beam_size=1, max_decoding_length=1, max_batch_size=0)
                bench.time("ctranslate2", f"encode {kind}", (b, s), run, b * s, "tok/s")
                del translator
    if bench.wants("oneDNN"):
        # Rows are rounded with one scale a tensor, as oneDNN's linear layers in PyTorch are.
        torch.backends.quantized.engine = "onednn"
        with torch.inference_mode(False), torch.no_grad():
            bytes_ = torch.ao.quantization.quantize_dynamic(copy.deepcopy(model.model.encoder), {torch.nn.Linear})
        x = torch.tensor(ids(8, 128, vocab))
        bench.time("oneDNN in PyTorch", "encode int8", (8, 128), lambda: bytes_(x), 8 * 128, "tok/s")
    if bench.wants("hf-torch"):
        half = model.to(torch.bfloat16)
        x = torch.tensor(ids(8, 128, vocab))
        bench.time("hf-torch", "encode bf16", (8, 128), lambda: half.model.encoder(x), 8 * 128, "tok/s")


def decode(bench, source=32, target=64):
    import ctranslate2

    model = load(bench.models)
    vocab = model.config.vocab_size
    for b in (1, 8, 32):
        tokens = [[f"t{t}" for t in s[:-1]] for s in ids(b, source, vocab)]
        for kind, compute in (("f32", "float32"), ("int8", "int8")):
            if not bench.wants("ctranslate2"):
                continue
            translator = ctranslate2.Translator(
                f"{bench.models}/ct2_{kind}",
                device="cpu",
                inter_threads=1,
                intra_threads=bench.threads,
                compute_type=compute,
            )
            for beams in (1, 4):
                run = lambda: translator.translate_batch(
                    tokens, beam_size=beams, min_decoding_length=target, max_decoding_length=target, max_batch_size=0
                )
                what = f"decode {kind}, {beams} beam(s)"
                bench.time("ctranslate2", what, (b, source, target), run, b * target, "tok/s", runs=3)
            del translator
        if b <= 8:
            x = torch.tensor(ids(b, source, vocab))
            run = lambda: model.generate(
                x,
                attention_mask=torch.ones_like(x),
                num_beams=1,
                do_sample=False,
                min_new_tokens=target,
                max_new_tokens=target,
            )
            bench.time("hf-torch", "decode f32, 1 beam(s)", (b, source, target), run, b * target, "tok/s", runs=3)


if __name__ == "__main__":
    kernels = {"gemm": gemm, "argmax": argmax, "attention": attention, "norm": norm}
    families = {**kernels, "encode": encode, "decode": decode}
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=[*families, "all"])
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--models")
    p.add_argument("--engine", default="")
    p.add_argument("--runs", type=int, default=7)
    p.add_argument("--floor", type=float, default=0.1)
    options = p.parse_args()
    if options.what in ("encode", "decode") and not options.models:
        p.error(f"{options.what} needs --models")
    torch.set_num_threads(options.threads)
    with torch.inference_mode():
        for name, family in families.items():
            if options.what == name or options.what == "all" and (options.models or name not in ("encode", "decode")):
                family(Bench(options))
