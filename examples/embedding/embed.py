"""Embeds one task's share of the passages and writes the vectors.

The vectors are hashed character trigrams and words, 256 numbers of length 1 together: real work with
nothing but the standard library. Put a model of your own into `embed` to use the GPU that the task
was given; CUDA_VISIBLE_DEVICES names it.
"""

import argparse
import hashlib
import json
import math
import os

from passages import passages

SIZE = 256


def features(text):
    words = "".join(c if c.isalpha() else " " for c in text.lower()).split()
    yield from words
    for word in words:
        padded = f" {word} "
        yield from (padded[at : at + 3] for at in range(len(padded) - 2))


def embed(text):
    """256 numbers whose squares sum to 1."""
    vector = [0.0] * SIZE
    for feature in features(text):
        digest = hashlib.blake2b(feature.encode(), digest_size=4).digest()
        place = int.from_bytes(digest[:3], "big") % SIZE
        vector[place] += 1.0 if digest[3] & 1 else -1.0
    length = math.sqrt(sum(x * x for x in vector)) or 1.0
    return [x / length for x in vector]


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--task", type=int, required=True, help="which task this is, from 1")
    options.add_argument("--tasks", type=int, required=True, help="how many there are")
    options.add_argument("--out", required=True, help="folder of the results")
    options = options.parse_args()

    everything = list(enumerate(passages()))
    own = everything[options.task - 1 :: options.tasks]
    path = os.path.join(options.out, f"part-{options.task:04}.jsonl")
    with open(path + ".new", "w") as out:
        for number, (subject, text) in own:
            line = {"passage": number, "subject": subject, "vector": embed(text)}
            out.write(json.dumps(line) + "\n")
    os.replace(path + ".new", path)
    device = os.environ.get("CUDA_VISIBLE_DEVICES", "none")
    print(f"task {options.task}: {len(own)} passages on {device}")


main()
