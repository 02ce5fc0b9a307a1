"""Mutated files, plans and options: an instance, a verdict, or one line that names what is wrong; no traceback."""

import json
import random
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from fuzzing import FOREIGN, PROFILE, TEXTS, VALUES, assert_one_line, documented, mutated, mutated_text
from thinned import thinned

import planner
from formulations import FAMILIES
from formulations.contract.family import Family
from instances.catalog.catalog import CATALOG
from instances.errors import InstanceError
from instances.parameters import Setting
from planner.cli.app import main
from planner.files.load import family_of
from planner.files.settings import parse

NAMES = [family.name for family in FAMILIES]


@cache
def solved(name: str, folder: Path) -> tuple[Any, dict[str, Any]]:
    """The documented instance of a family, and a good plan."""
    path = folder / "instance.json"
    path.write_text(json.dumps(documented()[name]))
    instance = planner.load(path)
    result = planner.solve(instance, limits=planner.Limits(time_s=20))
    assert result.plan is not None, f"the example of {name} has no plan"
    return instance, json.loads(json.dumps(result.plan))


def examine(name: str, folder: Path, count: int) -> None:
    instance, plan = solved(name, folder)
    assert planner.check(instance, plan).feasible
    rng = random.Random(f"plans {name}")
    verdicts = {"feasible": 0, "violations": 0, "refused": 0}
    for number in range(count):
        changed = mutated(plan, rng)
        try:
            verdict = planner.check(instance, changed)
        except InstanceError as refused:
            assert_one_line(refused)
            verdicts["refused"] += 1
            continue
        except Exception as error:
            raise AssertionError(f"{name} {number}: {json.dumps(changed)}") from error
        assert verdict.feasible == (verdict.objective is not None)
        json.dumps(verdict.to_json(), allow_nan=False)
        verdicts["feasible" if verdict.feasible else "violations"] += 1
    assert verdicts["refused"] and verdicts["violations"], verdicts


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("plans")


@pytest.mark.parametrize("name", NAMES)
def test_mutated_plans_are_judged_or_refused(name: str, folder: Path, many: int) -> None:
    examine(name, folder, max(many, 100))


@pytest.mark.parametrize("name", NAMES)
def test_what_is_no_plan_is_refused_by_the_place_that_is_wrong(name: str, folder: Path) -> None:
    """Another kind of value in place of the plan, of each part, and of each part of the first of several."""
    instance, plan = solved(name, folder)
    for content in ([], "nothing", {}, *others(plan)):
        with pytest.raises(InstanceError, match=r"^plan: .*; expected "):
            planner.check(instance, content)


def others(part: Any) -> Iterator[Any]:
    """The part with one value of another kind, wherever it stands; ids and names may be any text."""
    if isinstance(part, dict):
        for key, value in part.items():
            yield from ({**part, key: other} for other in others(value))
    elif isinstance(part, list):
        yield from (3, [None], *([other, *part[1:]] for other in others(part[0]) if part))
    elif not isinstance(part, str):
        yield from (3 if isinstance(part, bool) else True, [], {})


@pytest.mark.parametrize("name", NAMES)
def test_mutated_plan_files_end_in_a_documented_code(name: str, folder: Path, capfd: Any) -> None:
    _, plan = solved(name, folder)
    rng = random.Random(f"plan files {name}")
    for _ in range(4):
        path = folder / f"{name}.json"
        path.write_bytes(mutated_text(json.dumps(plan), rng))
        instance = folder / f"{name}-instance.json"
        instance.write_text(json.dumps(documented()[name]))
        code = main(["check", str(instance), str(path), "--quiet"])
        shown = capfd.readouterr()
        assert code in (0, 1, 2), shown.err
        assert code != 2 or shown.err.count("\n") == 1, shown.err


@pytest.mark.parametrize("owners", [FAMILIES, CATALOG.values()], ids=["families", "catalog"])
def test_every_value_is_parsed_or_refused_in_one_line(owners: Iterable[Any]) -> None:
    for setting in (each for owner in owners for each in settings(owner)):
        for value in (*TEXTS, *VALUES, object(), b"1", 1j, float("nan"), float("inf"), 10**5000):
            if value is None or value is False:
                continue  # not given
            try:
                parse([setting], {setting.name: value})
            except planner.UsageError as refused:
                assert_one_line(refused, f"--{setting.name} is ")


def settings(owner: Any) -> Iterable[Setting]:
    """Of an entry of the catalog, or of a family and its methods."""
    if not isinstance(owner, Family):
        return owner.parameters
    return (*owner.overrides, *(option for method in owner.methods for option in method.options))


@cache
def instance_of(name: str, folder: Path) -> Path:
    path = folder / f"{name}.json"
    path.write_text(json.dumps(documented()[name]))
    return path


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_overrides_of_any_value_are_applied_or_refused(family: Family[Any, Any], tmp_path: Path, many: int) -> None:
    """An instance that keeps its rules, or one line."""
    rng = random.Random(f"overrides {family.name}")
    path = instance_of(family.name, tmp_path)
    for _ in range(many or 30):
        given = {rng.choice(family.overrides).name: rng.choice(TEXTS) for _ in range(rng.choice([1, 1, 2]))}
        try:
            planner.load(path, **{name.replace("-", "_"): value for name, value in given.items()})
        except (InstanceError, planner.UsageError) as refused:
            assert_one_line(refused)
        except Exception as error:
            raise AssertionError(f"{family.name}: {given}") from error


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


def examine_file(name: str, folder: Path, count: int, solved: int) -> None:
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


@thinned("name", FILES)
def test_mutated_files_load_or_are_refused_in_one_line(name: str, tmp_path: Path, many: int) -> None:
    examine_file(name, tmp_path, many or 40, many or 1)
