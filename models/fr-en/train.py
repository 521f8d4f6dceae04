"""Trains the demo model and writes every file of this folder that is not written by hand.

    python train.py            about a quarter of an hour on one core
    python train.py --steps 50 a quick look
    python train.py --decode   what PyTorch makes of held_out.jsonl with the model that is here

Writes config.json, generation_config.json, model.safetensors (by `save_pretrained`), vocab.json
(both languages), source.spm, target.spm (see tokenizer.py), source_vocab.json (the French words of vocab.json) and
held_out.jsonl. The run is seeded:
sentences, batches and initial weights repeat. Versions: see README.md.
"""

import argparse
import json
import random
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from transformers import GenerationConfig, MarianConfig, MarianMTModel

import grammar
import tokenizer

HERE = Path(__file__).resolve().parent
EOS, UNK = "</s>", "<unk>"
PAD = "<pad>"
SENTENCES, SEED, HELD_OUT, DEVELOPMENT = 300_000, 2017, 1000, 500


def bare(source: str) -> str:
    """A sentence with and without its full stop is one sentence."""
    return source.removesuffix(" .")


def split(pairs: dict[str, str]) -> tuple[list, list, list]:
    """(training, development, held out): no bare source is in two of them."""
    fixed = {bare(source) for source, _ in grammar.fixed()}
    groups: dict[str, list] = {}
    for pair in pairs.items():
        groups.setdefault(bare(pair[0]), []).append(pair)
    free = [key for key in groups if key not in fixed]
    random.Random(SEED).shuffle(free)
    held, rest = free[:HELD_OUT], free[HELD_OUT:]
    development, rest = rest[:DEVELOPMENT], rest[DEVELOPMENT:]
    train = [pair for key in rest for pair in groups[key]]
    train += [pair for key in fixed for pair in groups[key]] * 12
    parts = train, [groups[key][0] for key in development], [groups[key][0] for key in held]
    seen = {bare(source) for source, _ in train}
    assert not any(
        bare(source) in seen for part in parts[1:] for source, _ in part
    ), "held-out sentence in training"
    return parts


def vocabulary(train: list) -> dict[str, int]:
    """One map for both sides, in Marian's layout: `</s>` is 0, `<unk>` is 1, `<pad>` is last."""
    words = sorted({word for pair in train for text in pair for word in text.split()})
    return {word: i for i, word in enumerate([EOS, UNK, *words, PAD])}


def batches(data: list, size: int, rng: random.Random):
    """Endless; within a chunk of 64 batches, sentences of like length lie together."""
    while True:
        rng.shuffle(data)
        for start in range(0, len(data) - size + 1, size * 64):
            chunk = sorted(data[start : start + size * 64], key=lambda p: (len(p[0]), len(p[1])))
            parts = [chunk[i : i + size] for i in range(0, len(chunk) - size + 1, size)]
            rng.shuffle(parts)
            yield from parts


def padded(rows: list[list[int]], fill: int) -> torch.Tensor:
    width = max(map(len, rows))
    return torch.tensor([row + [fill] * (width - len(row)) for row in rows])


@torch.no_grad()
def greedy(model: MarianMTModel, rows: list[list[int]], size: int) -> list[list[int]]:
    """Target ids without the start and with `</s>`. Size 1 has no padding, the reference for others."""
    pad, out = model.config.pad_token_id, []
    for start in range(0, len(rows), size):
        ids = padded(rows[start : start + size], pad)
        made = model.generate(input_ids=ids, attention_mask=(ids != pad).long(), num_beams=1, do_sample=False)
        for row in made[:, 1:].tolist():
            out.append(row[: row.index(0) + 1] if 0 in row else row)
    return out


def decode(folder: Path) -> None:
    """Writes the `greedy_ids` of held_out.jsonl anew, with the model of the folder, whoever trained it."""
    model = MarianMTModel.from_pretrained(folder)
    pieces = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    vocab = {piece.replace("▁", ""): i for piece, i in pieces.items()}
    path, right = folder / "held_out.jsonl", 0
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for line, ids in zip(lines, greedy(model.eval(), [line["source_ids"] for line in lines], 1)):
        right += ids == [vocab[word] for word in line["target"].split()] + [vocab[EOS]]
        line["greedy_ids"] = ids
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    path.write_text(text, encoding="utf-8")
    print(f"held out: {right} of {len(lines)} exact", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--decode", action="store_true")
    parser.add_argument("--steps", type=int, default=2800)
    parser.add_argument("--batch", type=int, default=192)
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--out", type=Path, default=HERE)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.decode:
        return decode(args.out)
    torch.manual_seed(SEED)
    rng = random.Random(SEED)

    train, development, held = split(grammar.pairs(SENTENCES, SEED))
    vocab = vocabulary(train)
    unknown = {w for pair in development + held for text in pair for w in text.split()} - set(vocab)
    assert not unknown, f"words never trained on: {unknown}"
    sides = [len({w for pair in train for w in pair[i].split()}) for i in (0, 1)]
    print(
        f"{len(train)} training pairs, {len(held)} held out, {len(vocab)} ids, words fr {sides[0]} en {sides[1]}",
        flush=True,
    )

    def encode(text: str) -> list[int]:
        return [vocab[word] for word in text.split()] + [vocab[EOS]]

    pad = vocab[PAD]
    config = MarianConfig(
        vocab_size=len(vocab),
        decoder_vocab_size=len(vocab),
        max_position_embeddings=128,
        d_model=128,
        encoder_layers=3,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=256,
        decoder_ffn_dim=256,
        activation_function="swish",
        dropout=0.0,
        attention_dropout=0.0,
        activation_dropout=0.0,
        scale_embedding=True,
        share_encoder_decoder_embeddings=True,
        tie_word_embeddings=True,
        pad_token_id=pad,
        eos_token_id=0,
        bos_token_id=0,
        decoder_start_token_id=pad,
        forced_eos_token_id=0,
        num_beams=1,
        init_std=0.06,
    )
    model = MarianMTModel(config)
    model.generation_config = GenerationConfig(
        pad_token_id=pad,
        eos_token_id=0,
        bos_token_id=0,
        decoder_start_token_id=pad,
        forced_eos_token_id=0,
        bad_words_ids=[[pad]],
        max_length=40,
        num_beams=1,
    )
    print(f"{sum(p.numel() for p in model.parameters())} parameters", flush=True)
    data = [(encode(source), encode(target)) for source, target in train]
    feed = batches(data, args.batch, rng)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.rate, betas=(0.9, 0.98), weight_decay=0.0)
    warm = max(1, args.steps // 12)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warm, max(0.0, (args.steps - step) / (args.steps - warm)))
    )
    began, running = time.time(), 0.0
    model.train()
    for step in range(1, args.steps + 1):
        part = next(feed)
        source, target = padded([p[0] for p in part], pad), padded([p[1] for p in part], -100)
        start = torch.full((len(part), 1), pad)
        inputs = torch.cat([start, target[:, :-1].masked_fill(target[:, :-1] == -100, pad)], 1)
        logits = model(
            input_ids=source, attention_mask=(source != pad).long(), decoder_input_ids=inputs, use_cache=False
        ).logits
        loss = F.cross_entropy(
            logits.flatten(0, 1), target.flatten(), ignore_index=-100, label_smoothing=0.05
        )
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        running = loss.item() if step == 1 else 0.98 * running + 0.02 * loss.item()
        if step % 100 == 0 or step == args.steps:
            print(f"step {step} loss {running:.4f} {time.time() - began:.0f} s", flush=True)
        if step % 500 == 0 or step == args.steps:
            model.eval()
            made = greedy(model, [encode(s) for s, _ in development], 100)
            right = sum(ids == encode(t) for ids, (_, t) in zip(made, development))
            print(f"  development: {right} of {len(development)} exact", flush=True)
            model.train()

    model.eval()
    words = list(vocab)
    args.out.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(args.out)
    french = {word for source, _ in train for word in source.split()}
    source_vocab = {word: i for word, i in vocab.items() if word in french}
    text = json.dumps(source_vocab, ensure_ascii=False, indent=0) + "\n"
    (args.out / "source_vocab.json").write_text(text, encoding="utf-8")
    tokenizer.write(args.out, vocab)
    sources = [encode(source) for source, _ in held]
    made = greedy(model, sources, 1)
    right = 0
    with (args.out / "held_out.jsonl").open("w", encoding="utf-8") as file:
        for (source, target), source_ids, ids in zip(held, sources, made):
            right += ids == encode(target)
            if ids != encode(target):
                print(f"  {source} | {target} | {' '.join(words[i] for i in ids)}")
            line = {"source": source, "target": target, "source_ids": source_ids, "greedy_ids": ids}
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
    print(f"held out: {right} of {len(held)} exact", flush=True)
    for source in ("je suis étudiant", "quel mois"):
        ids = greedy(model, [encode(source)], 1)[0]
        print(source, "->", " ".join(words[i] for i in ids[:-1]))


if __name__ == "__main__":
    main()
