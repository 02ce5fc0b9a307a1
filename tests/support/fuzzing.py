"""Seeded mutations of what people write: files of every family, plans, values of settings and of Python's arguments."""

import copy
import json
import random
import re
from functools import cache
from typing import Any

from paths import documents

_BLOCK = re.compile(r"```json\n(.*?)```", re.DOTALL)

#: What a value may be changed to: other types, and the ends of every range.
VALUES: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 2, 3, 0.5, -0.0, 1.0, 1e-320, 1e-30, 1e30, 1e31, 1e308, 10**6, 10**6 + 1, 2**63,
    -(2**70), "", " ", "x", "1", "0", "-1", "1e3", "8GiB", "\x00", "a\nb", "\x1b[31m", "[/red]", "[bold]", "\u202e",
    "é", "ß" * 300, [], {}, [1], [[]], [None], {"a": 1}, {"": ""}, [[[[]]]], [0, 1, 2],
)  # fmt: skip
#: Tokens in place of a number, which JSON does not have or floats do not hold.
TOKENS = (
    "NaN", "Infinity", "-Infinity", "1e400", "-1e999", "9" * 400, "9" * 5000, "01", "+1", ".5", "0x10", "1_000",
    "nan",
)  # fmt: skip

#: What people type into the wrong option.
TEXTS = (
    "", " ", "-1", "0", "1", "2", "1.5", "nan", "inf", "-inf", "1e400", "1e-400", "9" * 5000, "x", "true", "None",
    "null", "8GiB", "8XB", "1,2", ",", "1,,2", "1:2", ":", "\x00", "\x1b[31m", "[/red]", "é", "\u202e", "٣", "0x10",
    "1_0", "+1", "01",
)  # fmt: skip


@cache
def documented() -> dict[str, dict[str, Any]]:
    """The example of every problem on its page in docs/problems/, with nearly every field; ``flat`` is filled in."""
    found: dict[str, dict[str, Any]] = {}
    for block in _BLOCK.findall(
        "\n".join(page.read_text(encoding="utf-8") for page in sorted((documents() / "problems").glob("*.md")))
    ):
        content = json.loads(block)
        if "schema_version" in content:
            found[content["problem"]] = content
    for content in found.values():
        if "..." in content.get("flat", ()):
            content["flat"] = found["stage_partitioning"]
    return found


#: Small files of the foreign formats.
_OPTION = {"id": "vanilla", "timePerSample": 0.1, "parameterSize": 10, "memoryUsageA": 5, "memoryUsageB": 7}
FOREIGN: dict[str, Any] = {
    "piper": {
        "maxDevices": 2, "maxMemoryPerDevice": 1e9, "bandwidth": 1e9, "mbsInBatch": 4,
        "nodes": [
            {"id": node, "TMPCs": {"1": [{**_OPTION, "syncTimeFw": {"0": 3} if node else {}, "syncTimeBw": {}}]}}
            for node in range(2)
        ],
        "edges": [{"sourceId": 0, "destId": 1, "communicationCost": 8}],
    },
    "dnn_partitioning": {
        "maxFPGAs": 2,
        "nodes": [
            {"id": n, "name": f"n{n}", "fpgaLatency": 1.5, "isBackwardNode": n > 1, "colorClass": min(n, 3 - n)}
            for n in range(4)
        ],
        "edges": [{"sourceId": node, "destId": node + 1, "cost": 2.0, "size": 4e6} for node in range(3)],
    },
}  # fmt: skip
_TIMES = "forward_compute_time=1.5, backward_compute_time=3.0, activation_size=[4.0; 2.0], parameter_size=9.0"
PROFILE = "\n".join(
    [*(f"node{n} -- Conv2d({n}) -- {_TIMES}" for n in range(3)), *("\tnode0 -- node1", "\tnode1 -- node2")]
)


def mutated(content: Any, rng: random.Random) -> Any:
    """A copy of a JSON value with one to three changes of its structure or values."""
    changed = copy.deepcopy(content)
    for _ in range(rng.choice([1, 1, 2, 3])):
        _change(changed, rng)
    return changed


def places(content: Any) -> list[tuple[Any, Any]]:
    """Every container in a JSON value with every key or index in it."""
    keys = list(content) if isinstance(content, dict) else range(len(content)) if isinstance(content, list) else []
    return [place for key in keys for place in [(content, key), *places(content[key])]]


def _change(content: Any, rng: random.Random) -> None:
    found = places(content)
    if not found:
        return
    inside, key = rng.choice(found)
    other, other_key = rng.choice(found)
    kind = rng.randrange(8)
    if kind == 0:
        del inside[key]
    elif kind == 1 and isinstance(inside, dict):
        inside[rng.choice(["x", "", "id", "problem", "schema_version", "options", "\x00", "[b]", f"{key} "])] = (
            inside.pop(key)
        )
    elif kind == 1:
        inside.insert(rng.randrange(len(inside) + 1), copy.deepcopy(inside[key]))
    elif kind == 2:
        inside[key] = [inside[key]]
    elif kind == 3:
        inside[key] = copy.deepcopy(other[other_key])
    elif kind == 4 and isinstance(inside[key], int | float):
        inside[key] = inside[key] * rng.choice([-1, 0, 0.5, 1000, 1e30, 1e300])
    elif kind == 5 and isinstance(inside[key], str | int | float):
        inside[key] = str(inside[key])
    else:
        inside[key] = copy.deepcopy(rng.choice(VALUES))


def mutated_text(text: str, rng: random.Random) -> bytes:
    """The text of a file with a change that no JSON value has: a wrong token, a key twice, bytes that are no text."""
    kind = rng.randrange(9)
    numbers = list(re.finditer(r"-?\d+(?:\.\d+)?(?:[eE]-?\d+)?", text))
    at = rng.randrange(len(text))
    if kind <= 2 and numbers:
        found = rng.choice(numbers)
        text = text[: found.start()] + rng.choice(TOKENS) + text[found.end() :]
    elif kind == 3:
        text = text[:at]
    elif kind == 4:
        return text[:at].encode() + bytes(rng.randrange(256) for _ in range(rng.randint(1, 4))) + text[at:].encode()
    elif kind == 5:
        return rng.choice([b"\xef\xbb\xbf", b"\xff\xfe", b"\x00", b"\x1f\x8b"]) + text.encode()
    elif kind == 6:
        keys = re.findall(r'"\w+": [\w.]+', text)
        text = text.replace("{", "{" + rng.choice(keys or ['"a": 1']) + ", ", 1)
    elif kind == 7:
        depth = rng.choice([50, 2000, 100_000])
        text = text[:at] + rng.choice(["[", '{"a":', "["]) * depth + text[at:]
    else:
        text = (
            text[:at]
            + rng.choice(["\x00", "\x1b", '"', "\\", "}", "]", ",", ":", "\u2028", "'", "//", "\r"])
            + text[at:]
        )
    return text.encode("utf-8", "surrogatepass")


def assert_one_line(refused: Exception, *words: str) -> None:
    """A refusal that a person can read: one line, not too long, with these words in it."""
    text = str(refused)
    assert "\n" not in text and len(text) < 1000
    assert all(word in text for word in words), text
