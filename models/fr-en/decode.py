"""Writes the `greedy_ids` of held_out.jsonl: what PyTorch decodes with the model of this folder, one sentence at a time.

    python decode.py    # needs torch and transformers, versions in README.md
"""

import json
from pathlib import Path

import torch
from transformers import MarianMTModel

HERE = Path(__file__).resolve().parent


@torch.no_grad()
def greedy(model: MarianMTModel, ids: list[int]) -> list[int]:
    """Target ids without the start and with `</s>`."""
    made = model.generate(input_ids=torch.tensor([ids]), num_beams=1, do_sample=False)[0, 1:].tolist()
    return made[: made.index(0) + 1] if 0 in made else made


torch.set_num_threads(1)
translator = MarianMTModel.from_pretrained(HERE).eval()
pieces = json.loads((HERE / "vocab.json").read_text(encoding="utf-8"))
vocabulary = {piece.replace("▁", ""): number for piece, number in pieces.items()}
path = HERE / "held_out.jsonl"
lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
exact = 0
for line in lines:
    line["greedy_ids"] = greedy(translator, line["source_ids"])
    exact += line["greedy_ids"] == [vocabulary[word] for word in [*line["target"].split(), "</s>"]]
path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")
print(f"held out: {exact} of {len(lines)} exact")
