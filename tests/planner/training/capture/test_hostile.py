"""Functions of models run in a process of their own: whatever they do is one line, and nothing is left of them."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from runtime.test_run import chain, plan

from planner.cli.app import main

pytest.importorskip("torch", reason="needs the extra torch", exc_type=ImportError)

MODELS = Path(__file__).parent / "hostile_models.py"
#: Seconds for functions that are late, and for others.
SHORT_S, LONG_S = 1.0, 60.0
LATE = "is not done after 1 s; expected an end within --time-limit"

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    """Call a command with a function of `hostile_models`; the exit code and what it printed."""
    monkeypatch.setenv("HOSTILE_LEFT", str(tmp_path / "left"))

    def called(command: str, function: str, limit_s: float = LONG_S) -> tuple[int, str, str]:
        options = ["--time-limit", str(limit_s)]
        if command == "run":
            files = [tmp_path / "plan.json", tmp_path / "instance.json"]
            for file, content in zip(files, (plan(([0], 1)), chain(("0",))), strict=True):
                file.write_text(json.dumps(content))
            options += [*map(str, files), "--model", f"{MODELS}:{function}"]
        elif command == "import":
            options += ["torch", f"{MODELS}:{function}"]
        else:
            options += [f"{MODELS}:{function}"]
        code = main([command, *options])
        return code, *capfd.readouterr()

    return called


def _lives(number: int) -> bool:
    try:
        state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def _left(folder: Path) -> list[int]:
    """The processes that said they stay, and live."""
    file = folder / "left"
    return [number for number in map(int, file.read_text().split() if file.exists() else ()) if _lives(number)]


WORDS = {
    "sleeps": LATE,
    "segfaults": ":segfaults: process was ended by SIGSEGV; expected a function that returns a model",
    "exits": ":exits: process ended with exit code 0; expected a function that returns a model",
    "unspeakable": ":unspeakable: call is 'NoError: (an error without words) (line ",
    "writes_everywhere": "reply of its process is",
    "segfaults_in_a_layer": ":segfaults_in_a_layer: process was ended by SIGSEGV",
    "odd_parameters": "'LookupError: no parameters here (line ",
}
#: Those that the default tests have.
CHEAP = ("import", "segfaults"), ("import", "sleeps"), ("run", "segfaults")
#: They do what they like and return a model.
RETURNING = ("leaves_a_process", "talks")


def _is_refused(call: Call, command: str, function: str) -> None:
    began = time.monotonic()
    code, out, err = call(command, function, SHORT_S if WORDS[function] == LATE else LONG_S)
    assert (code, out) == (2, "") and err.count("\n") == 1, err
    assert WORDS[function] in err and "expected" in err
    assert time.monotonic() - began < LONG_S, "they would stay for an hour"


@pytest.mark.parametrize(("command", "function"), CHEAP)
def test_a_function_that_does_not_return_is_one_line(call: Call, command: str, function: str) -> None:
    _is_refused(call, command, function)


@pytest.mark.slow
@pytest.mark.parametrize("command", ["import", "profile", "run"])
@pytest.mark.parametrize("function", WORDS)
def test_functions_that_do_anything_are_one_line(call: Call, command: str, function: str) -> None:
    if command == "run" and function == "odd_parameters":
        pytest.skip("a run asks for no parameters before it refuses the model")
    _is_refused(call, command, function)


def _returns(call: Call, folder: Path, command: str, function: str) -> str:
    code, out, err = call(command, function)
    assert code == 0, err
    if command == "import":
        assert json.loads(out)["num_devices"] == 8
    assert not _left(folder)
    return err


def test_a_process_in_a_session_of_its_own_ends_with_the_command(call: Call, tmp_path: Path) -> None:
    _returns(call, tmp_path, "import", "leaves_a_process")
    assert (tmp_path / "left").read_text(), "it was there"


@pytest.mark.slow
@pytest.mark.parametrize("command", ["import", "profile", "run"])
@pytest.mark.parametrize("function", RETURNING)
def test_functions_that_do_more_than_return_leave_nothing(
    call: Call, tmp_path: Path, command: str, function: str
) -> None:
    err = _returns(call, tmp_path, command, function)
    said = [line for line in err.splitlines() if line in ("out of the function", "and on")]
    assert len(said) == 2 * (function == "talks")


@pytest.mark.parametrize("limit", ["-1", "nan"])
@pytest.mark.parametrize("command", ["import", "run"])
def test_limits_that_are_no_seconds_are_refused(call: Call, command: str, limit: Any) -> None:
    code, _, err = call(command, "talks", limit)
    assert (code, err) == (2, f"--time-limit is {float(limit)}; expected seconds, 0 or more\n")


def test_no_file_of_the_compiler_is_left(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a process that has not imported torch's compiler yet, `test_processes` sees the same."""
    import tempfile

    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    assert call("import", "made")[0] == 0
    assert [*folder.iterdir()] == [] and "TORCHINDUCTOR_CACHE_DIR" not in os.environ
