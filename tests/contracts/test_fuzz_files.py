"""Mutated files of every format: an instance, or one line that names the file; whatever loads can be solved."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from fuzzing import FOREIGN, PROFILE, assert_one_line, documented, mutated, mutated_text

import planner
from instances.errors import InstanceError
from planner.cli.app import main
from planner.files.load import family_of

#: What `planner solve` may answer to a file (docs/interface/exit-codes.md).
CODES = {0, 2, 3, 4}

FILES: dict[str, str] = {
    **{name: json.dumps(content, indent=1) for name, content in {**documented(), **FOREIGN}.items()},
    "pipedream": PROFILE,
}


def mutations(name: str, count: int) -> list[bytes]:
    rng = random.Random(f"files {name}")
    text = FILES[name]
    made = []
    for _ in range(count):
        if name == "pipedream" or rng.random() < 0.35:
            made.append(mutated_text(text, rng))
        else:
            made.append(json.dumps(mutated(json.loads(text), rng)).encode("utf-8", "surrogatepass"))
    return made


def loaded(path: Path) -> Any:
    """The instance, or ``None`` after a refusal in one line with the file's name."""
    try:
        return planner.load(path)
    except (InstanceError, planner.UsageError) as refused:
        assert_one_line(refused, str(path))
        return None


def examine(name: str, folder: Path, count: int, solved: int) -> None:
    accepted = 0
    for number, data in enumerate(mutations(name, count)):
        path = folder / f"{number}.json"
        path.write_bytes(data)
        instance = loaded(path)
        if instance is None:
            continue
        accepted += 1
        text = json.dumps(family_of(instance).to_json(instance))
        path.write_text(text)
        again = loaded(path)
        assert again is not None, f"{name} {number}: what was written is not read: {text}"
        if accepted <= solved:
            code = main(["solve", str(path), "--time-limit", "0.05", "--json", "--quiet"])
            assert code in CODES, f"{name} {number}: exit code {code}: {text}"
    assert 0 < accepted < count, "the mutations are too weak or too strong"


@pytest.mark.parametrize("name", FILES)
def test_examples_load(name: str, tmp_path: Path) -> None:
    path = tmp_path / "example.json"
    path.write_text(FILES[name])
    assert loaded(path) is not None


@pytest.mark.parametrize("name", FILES)
def test_mutated_files_load_or_are_refused_in_one_line(name: str, tmp_path: Path, many: int) -> None:
    examine(name, tmp_path, many or 40, many or 1)
