"""Checkers of certificates: the standard library alone, no traceback and little memory whatever the files hold."""

import ast
import copy
import hashlib
import importlib
import json
import random
import resource
import subprocess
import sys
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from paths import documents
from small_instances import random_case
from thinned import thinned

import planner
from formulations import FAMILIES
from formulations.contract.checker.downsets import fits, undominated
from formulations.contract.checker.frame import Checker
from instances.catalog.catalog import CATALOG
from planner.cli.app import main

CERTIFIED = [family for family in FAMILIES if family.certificates is not None]
_NAMES = [family.name for family in CERTIFIED]
#: Problems of tests that start processes: all checkers have one frame.
_FEW = {"stage_partitioning", "layer_assignment", "device_mapping"}
_MOSTLY_SLOW = [name if name in _FEW else pytest.param(name, marks=pytest.mark.slow) for name in _NAMES]
_WEIRD: list[Any] = [
    None, True, -1, 0, 1.5, 10**400, float("nan"), float("inf"), "", "x", "1/3", "9" * 3000, "ff", [], [[]], {},
    {"a": 1},
]  # fmt: skip


def checker_of(name: str) -> Any:
    return importlib.import_module(f"formulations.{name}.certificate.checker")


def certified(name: str, count: int) -> Iterator[tuple[dict, dict]]:
    """Instances with their certificates, as their files have them."""
    for number in range(count):
        instance = random_case(name, 5, number)
        found = planner.certify(instance)
        if found.content is not None:
            family = next(family for family in CERTIFIED if family.name == name)
            yield json.loads(json.dumps(family.to_json(instance))), json.loads(found.text)


@cache
def first(name: str) -> tuple[dict, dict]:
    """The first of them."""
    return next(certified(name, 5))


def places(value: Any, path: tuple = ()) -> Iterator[tuple]:
    """The path of every part of a JSON value."""
    yield path
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        yield from places(part, (*path, key))


def replaced(value: Any, path: tuple, by: Any) -> Any:
    if not path:
        return by
    value = copy.copy(value)
    value[path[0]] = replaced(value[path[0]], path[1:], by)
    return value


@pytest.mark.parametrize("name", _NAMES)
def test_a_checker_is_one_file_of_the_standard_library(name: str) -> None:
    tree = ast.parse(planner.checker(name))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            assert {each.name.partition(".")[0] for each in node.names} <= sys.stdlib_module_names
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and (node.module or "").partition(".")[0] in sys.stdlib_module_names
        assert not (isinstance(node, ast.Name) and node.id in {"__import__", "eval", "exec", "compile"})
    names = [node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    for node in tree.body:
        if isinstance(node, ast.Assign):
            names += [part.id for target in node.targets for part in ast.walk(target) if isinstance(part, ast.Name)]
    assert len(set(names)) == len(names), sorted({each for each in names if names.count(each) > 1})
    theorem = ast.get_docstring(tree) or ""
    assert theorem == ast.get_docstring(ast.parse(Path(checker_of(name).__file__).read_text()))
    assert theorem.startswith("Check a certificate of") and "Theorem." in theorem


@pytest.mark.parametrize("name", _NAMES)
def test_the_documentation_names_the_checker_by_its_hash(name: str, tmp_path: Path, capsys: Any) -> None:
    assert main(["checker", name]) == 0
    text = capsys.readouterr().out
    assert main(["checker", name, "--out", str(tmp_path / "checker.py")]) == 0
    assert (tmp_path / "checker.py").read_bytes() == text.encode()
    page = (documents() / "what-optimal-means.md").read_text()
    assert text.startswith('# Explained line by line: docs/what-optimal-means.md, "A certificate on one screen".\n"""')
    assert "\n## A certificate on one screen\n" in page
    digest = hashlib.sha256(text.encode()).hexdigest()
    assert f"| `{name}` | `{digest}` |" in page, f"it is now {digest}"


def test_only_problems_with_certificates_have_a_checker(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["checker", "knapsack"]) == 2
    assert "tmpc_knapsack" in capsys.readouterr().err


@pytest.mark.parametrize("name", _MOSTLY_SLOW)
def test_the_file_alone_says_what_planner_says(name: str, tmp_path: Path) -> None:
    """Of true, forged and malformed certificates, in a process that finds nothing of ours."""
    content, certificate = first(name)
    rng, given = random.Random(name), [certificate, certificate | {"bound": certificate["objective"]}]
    for value in (*_WEIRD[:8], "0", "1/7"):
        given += [replaced(certificate, rng.choice(list(places(certificate))), value)]
    (tmp_path / "checker.py").write_text(planner.checker(name))
    (tmp_path / "instance.json").write_text(json.dumps(content))
    expected: dict[str, tuple[int, str]] = {}
    for number, each in enumerate(given):
        (tmp_path / str(number)).write_text(json.dumps(each))
        try:
            verdict = checker_of(name).verify(content, each)
        except ValueError as error:
            expected[str(number)] = 2, f"bad input: {error}\n"
        else:
            said = ("accepted" if verdict["accepted"] else "rejected") + f": {verdict['reason']}\n"
            expected[str(number)] = 0 if verdict["accepted"] else 1, said
    command = [sys.executable, "-I", "-S", "checker.py", "instance.json"]
    done = subprocess.run([*command, "0"], capture_output=True, text=True, cwd=tmp_path, timeout=60, check=False)
    assert (done.returncode, done.stdout) == expected["0"] and done.stdout.startswith("accepted: ")
    command = [sys.executable, checker_of(name).__file__, "instance.json", "0"]  # by its path, where planner is found
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=60, check=False)
    assert (done.returncode, done.stdout) == expected["0"]
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _EACH, str(tmp_path), *expected],
        capture_output=True, text=True, cwd=tmp_path, timeout=60, check=False,
    )  # fmt: skip
    assert {kind: tuple(each) for kind, each in json.loads(done.stdout).items()} == expected, done.stderr
    assert {code for code, _ in expected.values()} >= {0, 1, 2}


def test_knapsacks_of_checkers_are_decided_as_by_brute_force(cases: int) -> None:
    rng, outcomes = random.Random(9), {True: 0, False: 0}
    for number in range(20 * cases):
        groups = [
            undominated([(rng.randint(0, 12), rng.randint(0, 12)) for _ in range(rng.randint(1, 4))])
            for _ in range(rng.randint(1, 5))
        ]
        sums = [tuple(map(sum, zip(*choice, strict=True))) for choice in product(*groups)]
        cost, memory = rng.choice(sums)  # most often one that fits, and the like with a little less
        budget, capacity = cost - rng.choice([0, 0, 1, 2]), memory - rng.choice([0, 0, 1, 2])
        expected = any(c <= budget and m <= capacity for c, m in sums)
        assert fits(groups, budget, capacity) is expected, (number, groups, budget, capacity)
        assert fits(groups, None, capacity) is any(m <= capacity for _, m in sums)
        outcomes[expected] += 1
    assert min(outcomes.values()) >= 2 * cases, outcomes


#: Their sets of operators are too many for the labels of a checker in pure Python.
_TOO_LARGE = {"semantic-fpn"}
#: Half a second, or half a minute; of each problem others are certified by default.
_SLOW = {
    "amp-het-cluster", "amp-het-model", "bert-l", "bert32", "candle-uno", "candle-uno-8", "dlrm", "dlrm-8",
    "gpt3-175b", "graphpipe-case-study", "mmt", "mmt-2", "placement", "random-blk-1", "random-blk-2", "resnet152",
    "resnet50", "sequential-transformer", "swin-l", "swin-u",
}  # fmt: skip
_SMALL = [
    pytest.param(name, marks=pytest.mark.slow if name in _SLOW else ())
    for name, each in sorted(CATALOG.items())
    if each.family in _NAMES and name not in _TOO_LARGE
]


@thinned("entry", _SMALL)
def test_the_catalog_is_certified(entry: str) -> None:
    instance = planner.load(entry)
    found = planner.certify(instance, limits=planner.Limits(time_s=600 if entry in _SLOW else 20))
    if "python-sat" in found.result.reason:
        pytest.skip("python-sat is not installed (extra proofs)")
    assert found.content is not None, found.result.reason
    assert found.result.status == "optimal"
    verdict = planner.verify(instance, json.loads(found.text))
    assert verdict.accepted, verdict.reason


@thinned("name", _NAMES)
def test_spoiled_files_are_bad_input_or_rejected_and_never_an_error(name: str, cases: int) -> None:
    rng, outcomes = random.Random(name), {"bad": 0, "accepted": 0, "rejected": 0}
    checker = checker_of(name)
    for content, certificate in certified(name, 3):
        for _ in range(3 * cases):
            which = rng.randrange(2)
            given = [content, certificate]
            path = rng.choice(list(places(given[which])))
            given[which] = replaced(given[which], path, rng.choice(_WEIRD))
            try:
                verdict = checker.verify(*given)
            except ValueError:
                outcomes["bad"] += 1
                continue
            outcomes["accepted" if verdict["accepted"] else "rejected"] += 1
            json.dumps(verdict, allow_nan=False)
            if (
                verdict["accepted"] and which and certificate["bound"] is not None
            ):  # a part that does not matter, or less
                assert verdict["bound"] is not None and verdict["bound"] <= float(Fraction(certificate["bound"]))
    assert min(outcomes.values()) >= 1, outcomes


@pytest.mark.parametrize("name", _NAMES)
def test_the_command_says_in_one_line_what_is_wrong(name: str, cases: int, tmp_path: Path, capsys: Any) -> None:
    content, certificate = first(name)
    file = tmp_path / "instance.json"
    file.write_text(json.dumps(content))
    rng = random.Random(name)
    for number in range(max(1, cases // 13)):
        path = tmp_path / f"{number}.json"
        spoiled = replaced(certificate, rng.choice(list(places(certificate))), rng.choice(_WEIRD[:5]))
        text = json.dumps(spoiled)
        path.write_text(text[: rng.choice([len(text), len(text), len(text) // 2])])
        code = main(["verify", str(file), str(path)])
        shown = capsys.readouterr()
        assert code in (0, 1, 2), (number, code, shown.err)
        assert (shown.err if code == 2 else shown.out).count("\n") == 1


@pytest.mark.parametrize("name", _NAMES)
def test_what_is_said_is_no_more_than_what_is_proved(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds are rounded down; nothing is said to take more than 0; and memory that runs out is no traceback."""
    checker, (content, certificate) = checker_of(name), first(name)
    verdict = checker.verify(content, certificate | {"plan": None, "objective": None, "bound": "0"})
    assert (verdict["accepted"], verdict["reason"]) == (True, "no plan takes less than 0.0")
    below = Fraction(5) - Fraction(1, 10**30)
    monkeypatch.setattr(Checker, "proved", lambda *_: (Fraction(5), below))
    verdict = checker.verify(content, certificate)
    assert verdict["bound"] < 5 == verdict["objective"]
    assert verdict["reason"] == "every plan takes more than 4.999999999999999, this one 5.0"

    def full(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(Checker, "proved", full)
    verdict = checker.verify(content, certificate)
    assert (verdict["accepted"], verdict["reason"]) == (False, "size: memory ran out")


@pytest.mark.parametrize("name", _NAMES)
def test_what_is_required_beyond_is_never_dropped(name: str) -> None:
    """Of the instance, or of one inside it."""
    content, certificate = first(name)
    required, reason = {"requirements": ["num_stages <= 1"]}, "requirements: they are not looked at"
    inside = [
        content | {key: part | required}
        for key, part in content.items()
        if isinstance(part, dict) and "problem" in part
    ]
    with pytest.raises(ValueError, match=f"an instance of {name}"):
        checker_of(name).verify(content | {"problem": "another"}, certificate)
    for given in (content | required, *inside):
        verdict = checker_of(name).verify(given, certificate)
        assert (verdict["accepted"], verdict["reason"]) == (False, reason)


@pytest.mark.parametrize("name", _NAMES)
def test_files_that_say_something_twice_are_bad_input(name: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    content, certificate = first(name)
    texts = [json.dumps(content), json.dumps(certificate)]
    files = [str(tmp_path / "instance.json"), str(tmp_path / "certificate.json")]
    for which in (None, 0, 1):
        for number, (file, text) in enumerate(zip(files, texts, strict=True)):
            again = f'{{"problem": "another", {text[1:]}' if number == which else text
            Path(file).write_text(again)
        assert checker_of(name).main(files) == (0 if which is None else 2)
        said = capsys.readouterr()
        assert said.out.startswith("accepted: ") if which is None else "no key twice" in said.err


#: Runs a checker on an instance and one file after the other, and prints codes and words.
_EACH = """
import contextlib, io, json, sys
sys.path.append(sys.argv[1])
import checker
found = {}
for kind in sys.argv[2:]:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = checker.main(["instance.json", kind])
    found[kind] = code, said.getvalue()
print(json.dumps(found))
"""


@pytest.mark.parametrize(("size", "memory"), [(10**5, 2**27), pytest.param(10**6, 2**30, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", _MOSTLY_SLOW)
def test_hostile_files_take_little_memory(name: str, size: int, memory: int, tmp_path: Path) -> None:
    """Deep, long and wide ones, by the checker alone and within so many bytes."""
    content, certificate = first(name)
    (tmp_path / "instance.json").write_text(json.dumps(content))
    texts = {
        "deep": "[" * size, "long": json.dumps(certificate | {"bound": "1" * size}), "digits": "9" * size,
        "wide": json.dumps(certificate | {"proof": {**certificate["proof"], "downsets": [["0", []]] * size}}),
        "power": json.dumps(certificate | {"bound": "1e999999999"}), "binary": "\x00" * 1000, "empty": "",
    }  # fmt: skip
    for kind, text in texts.items():
        (tmp_path / kind).write_text(text)
    (tmp_path / "checker.py").write_text(planner.checker(name))
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _EACH, str(tmp_path), *texts],
        capture_output=True, text=True, cwd=tmp_path, timeout=60, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (memory, memory)),
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    for kind, (code, said) in json.loads(done.stdout).items():
        assert code in ((0, 2) if kind == "wide" else (2,)), (kind, said)
        assert said.count("\n") == 1, kind


@pytest.mark.parametrize("name", _NAMES)
def test_a_number_of_a_certificate_is_of_its_own_type(name: str) -> None:
    """Python has True == 1 == 1.0; a certificate has not. Ids alone may be the texts of numbers."""
    content, certificate = first(name)
    checker, forged = checker_of(name), 0
    for path in places(certificate):
        found: Any = certificate
        for key in path:
            found = found[key]
        if type(found) is not int:
            continue
        is_id = path[-2:-1] == ("nodes",) or (path[-3:-2] == ("stages",) and isinstance(path[-1], int))
        for other in (float(found), bool(found), *(() if is_id else (str(found),))):
            forged += 1
            try:
                verdict = checker.verify(content, replaced(certificate, path, other))
            except ValueError:
                continue
            assert not verdict["accepted"], (path, other)
    assert forged >= 3
