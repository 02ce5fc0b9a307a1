"""How many random requirements every method honours as brute force does: ``python tests/requirement_counts.py``.

``--families stage_graph --instances 20000`` draws random instances with one to three random requirements until as many
have been compared with brute force, and prints a row. A method that says something false is an error.
"""

import argparse
import sys
import time
from collections import Counter
from itertools import count
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "support"))

from requirement_cases import compared

from formulations import FAMILIES

NAMES = [family.name for family in FAMILIES if family.vocabulary]
HEAD = "| family | instances | with a plan | runs | of exact methods | proofs | too many plans | CPU s |"


def row(family: str, first: int, instances: int) -> str:
    """Of a table in Markdown; instances have numbers from the first one on."""
    began, total, numbers = time.process_time(), Counter[str](), count(first)
    while total["instances"] < instances:
        found = compared(family, next(numbers))
        total.update({"too many plans": 1} if found is None else {**found, "instances": 1})
    counts = [total[each] for each in ("feasible", "runs", "exact", "proofs", "too many plans")]
    parts = [family, instances, *counts]
    return f"| {' | '.join(map(str, parts))} | {time.process_time() - began:.0f} |"


def main() -> None:
    """A row for each family."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--families", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--first", type=int, default=0, help="the number of the first instance, to go on from there")
    parser.add_argument("--instances", type=int, default=1000)
    given = parser.parse_args()
    print(HEAD, "|" + " --- |" * HEAD.count(" | ") + " --- |", sep="\n", flush=True)
    for family in given.families:
        print(row(family, given.first, given.instances), flush=True)


if __name__ == "__main__":
    main()
