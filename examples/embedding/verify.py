"""Checks the results: every passage once, vectors of length 1, and near ones about the same subject."""

import json
import math
import pathlib
import sys

from passages import passages

here = pathlib.Path(__file__).parent
folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here / "results"
found = {}
for part in sorted(folder.glob("part-*.jsonl")):
    for line in part.read_text().splitlines():
        entry = json.loads(line)
        if entry["passage"] in found:
            sys.exit(f"passage {entry['passage']} is there twice")
        found[entry["passage"]] = entry

wanted = passages()
missing = [number for number in range(len(wanted)) if number not in found]
if missing:
    sys.exit(f"{len(missing)} of {len(wanted)} passages are missing, such as {missing[:5]}")
for entry in found.values():
    if abs(math.fsum(x * x for x in entry["vector"]) - 1) > 1e-9:
        sys.exit(f"the vector of passage {entry['passage']} has not length 1")

# Every tenth passage asks for its nearest neighbour.
right = 0
asked = range(0, len(wanted), 10)
for number in asked:
    own = found[number]["vector"]
    others = (entry for entry in found.values() if entry["passage"] != number)
    nearest = max(others, key=lambda entry: sum(x * y for x, y in zip(own, entry["vector"])))
    right += nearest["subject"] == found[number]["subject"]
print(f"{len(found)} passages embedded; nearest neighbour about the same subject: {right} of {len(asked)}")
if right < 0.9 * len(asked):
    sys.exit("that is fewer than nine in ten: the vectors are wrong")
