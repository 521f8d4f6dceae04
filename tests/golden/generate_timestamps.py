"""Write the goldens of the rule about timestamps: what transformers leaves of random scores after random histories.

Usage: python generate_timestamps.py      (writes search/timestamps.json beside this script)

Histories and scores are not stored: both sides draw them from SplitMix64, in the order of `case`. `allowed` has a line of
hexadecimal digits for each case, whose bit `i` says whether token `i` is left; what is left keeps its score.
"""

import json
import os

import torch
from transformers import GenerationConfig
from transformers.generation.logits_process import WhisperTimeStampLogitsProcessor

HERE = os.path.dirname(os.path.abspath(__file__))
VOCABULARY, EOS, NO_TIMESTAMPS, CASES = 61, 30, 35, 2000
FIRST = NO_TIMESTAMPS + 1


class Random:
    def __init__(self, seed):
        self.state = seed

    def bits(self):
        mask = (1 << 64) - 1
        self.state = (self.state + 0x9E3779B97F4A7C15) & mask
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        return z ^ (z >> 31)

    def below(self, n):
        return self.bits() % n


def case(random):
    """A prompt's length, a history, the latest first time or None, and scores."""
    prompt = 1 + random.below(4)
    history = [random.below(VOCABULARY) for _ in range(prompt)]
    last = FIRST
    for _ in range(random.below(10)):
        kind = random.below(5)
        if kind == 0:
            history.append(random.below(VOCABULARY))
        elif kind < 3:
            history.append(random.below(EOS))
        else:
            # Mostly as texts go: not backwards.
            last = min(last + random.below(4), VOCABULARY - 1)
            history.append(last)
    latest = random.below(8)
    latest = None if latest == 7 else latest
    lift = random.below(9) - 5
    scores = []
    for token in range(VOCABULARY):
        score = (random.bits() >> 40) / (1 << 21) - 4
        score += lift if token >= FIRST else 0
        scores.append(-torch.inf if random.below(8) == 0 else score)
    return prompt, history, latest, scores


def main():
    for seed in range(1, 100):
        random, allowed, kinds = Random(seed), [], set()
        near = False
        for _ in range(CASES):
            prompt, history, latest, scores = case(random)
            settings = GenerationConfig(
                eos_token_id=EOS, no_timestamps_token_id=NO_TIMESTAMPS, max_initial_timestamp_index=latest
            )
            left = [
                WhisperTimeStampLogitsProcessor(settings, prompt, detect)(
                    torch.tensor([history]), torch.tensor([scores], dtype=torch.float32)
                )[0]
                for detect in (True, False)
            ]
            given = torch.tensor(scores, dtype=torch.float32)
            kept = left[0] > -torch.inf
            assert torch.equal(left[0][kept], given[kept])
            # Rounding must not decide which is larger.
            loose = left[1].double()
            margin = loose[FIRST:].logsumexp(0) - loose[:FIRST].max()
            near |= bool(margin.abs() < 1e-4)
            allowed.append(f"{sum(1 << i for i in range(VOCABULARY) if kept[i]):x}")
            kinds.add((len(history) == prompt, bool(kept[:EOS].any()), bool(kept[FIRST:].any()), bool(margin > 0)))
        if not near:
            break
    assert not near and len(kinds) >= 6, kinds
    golden = dict(vocabulary=VOCABULARY, eos=EOS, no_timestamps=NO_TIMESTAMPS, seed=seed, allowed=allowed)
    with open(os.path.join(HERE, "search", "timestamps.json"), "w") as f:
        f.write(json.dumps(golden, separators=(",", ":")).replace('","', '",\n"') + "\n")
    print(f"{CASES} cases from seed {seed}, {len(kinds)} kinds of outcome")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
