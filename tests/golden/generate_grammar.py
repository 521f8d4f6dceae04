"""Write the golden of the demo's grammar: what the Python of models/fr-en says when it draws as the Rust does.

Usage: python generate_grammar.py      (writes grammar.tsv: source, tab, target; the fixed pairs, then the first 2000 of seed 2017)

The only thing replaced is the source of chance: SplitMix64 of the seed, the sentence and how many numbers came before in
it, as `train/examples/train/grammar/draws.rs` says. The rules and the words are the repository's own.
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "models", "fr-en"))
import grammar

SENTENCES, SEED = 2000, 2017
WORD, STEP = 2**64, 0x9E3779B97F4A7C15


def mixed(z):
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % WORD
    z = (z ^ z >> 27) * 0x94D049BB133111EB % WORD
    return z ^ z >> 31


class Draws:
    """Stands in for `random.Random`."""

    def __init__(self, seed, sentence):
        stream = (mixed((seed + STEP) % WORD) + sentence * STEP) % WORD
        self.counter = mixed((stream + STEP) % WORD)

    def random(self):
        self.counter = (self.counter + STEP) % WORD
        return (mixed(self.counter) >> 11) / 2**53

    def choice(self, items):
        return items[int(self.random() * len(items))]

    def choices(self, items, weights):
        goal, total = self.random() * sum(weights), 0
        for item, weight in zip(items, weights):
            total += weight
            if goal < total:
                return [item]

    def sample(self, items, count):
        assert count == 2
        one, two = int(self.random() * len(items)), int(self.random() * (len(items) - 1))
        return items[one], items[two + (two >= one)]


def sentence(seed, number):
    speaker = grammar.Grammar(0)
    speaker.rng = Draws(seed, number)
    return speaker.sentence()


if __name__ == "__main__":
    with open(os.path.join(HERE, "grammar.tsv"), "w", encoding="utf-8") as f:
        for pair in grammar.fixed() + [sentence(SEED, number) for number in range(SENTENCES)]:
            f.write("\t".join(pair) + "\n")
