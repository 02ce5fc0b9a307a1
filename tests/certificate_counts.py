"""How many certificates are accepted and how many mutants of them are not: ``python tests/certificate_counts.py``.

``--families stage_graph --instances 20000 --mutants 100000`` solves, certifies and verifies as many random instances of
a family, then tries as many mutants (`certificate_cases.Spoiling`) and prints a row. Every accepted mutant is compared
with brute force. A certificate that is refused, or a mutant that is accepted though its claim is false, is an error.
``--instances 0 --mutants 834`` tries 10,000 mutants, as many of each family, in less than a minute.
"""

import argparse
import importlib.util
import sys
import time
from collections import Counter
from itertools import count
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "support"))

from certificate_cases import Spoiling, accepted_or_why
from small_instances import random_case

from formulations import FAMILIES

NAMES = [family.name for family in FAMILIES if family.certificates is not None]
#: Those whose random instances take their exact methods long: the instances of the mutants are solved instead.
SLOW = ("device_mapping", "pipeline_placement")
HEAD = "| family | instances | accepted | uncertified | CPU s | mutants | refused | true and accepted | CPU s |"


def spoiling_of(family: str) -> Spoiling:
    """What the tests of a family's certificates declare."""
    path = Path(__file__).parent / "formulations" / family / "test_certificates.py"
    spec = importlib.util.spec_from_file_location(f"{family}_test_certificates", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = module.SPOILING
    assert isinstance(found, Spoiling)
    return found


def row(family: str, first: int, instances: int, mutants: int, rounds: int) -> str:
    """Of a table in Markdown; instances have numbers from the first one on."""
    began, outcomes, spoiling = time.process_time(), Counter[str](), spoiling_of(family)
    for number in range(first, first + instances):
        instance = spoiling.case(number) if family in SLOW else random_case(family, 17, number)
        outcomes[accepted_or_why(instance)] += 1
    accepting = time.process_time() - began
    spoiled, tried = Counter[str](), spoiling.outcomes(count(first), rounds)
    while spoiled.total() < mutants:
        spoiled += next(tried)
    spoiling, accepted = time.process_time() - began - accepting, outcomes.pop("accepted", 0)
    reasons = "; ".join(f"{each}: {reason}" for reason, each in outcomes.most_common()) or "0"
    parts = [family, instances, accepted, reasons, f"{accepting:.0f}"]
    parts += [spoiled.total(), spoiled["rejected"], spoiled["accepted"], f"{spoiling:.0f}"]
    return "| " + " | ".join(map(str, parts)) + " |"


def main() -> None:
    """A row for each family."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--families", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--first", type=int, default=0, help="the number of the first instance, to go on from there")
    parser.add_argument("--instances", type=int, default=1000)
    parser.add_argument("--mutants", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=1, help="how often each fault is drawn for an instance")
    given = parser.parse_args()
    print(HEAD, "|" + " --- |" * HEAD.count(" | ") + " --- |", sep="\n", flush=True)
    for family in given.families:
        print(row(family, given.first, given.instances, given.mutants, given.rounds), flush=True)


if __name__ == "__main__":
    main()
