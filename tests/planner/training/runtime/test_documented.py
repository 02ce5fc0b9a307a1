"""The README's way from a model to gradients and notebook 9 run; without PyTorch what needs it says so in one line."""

import io
import os
import re
import runpy
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from paths import ROOT

import planner
from instances.errors import InstanceError
from planner.cli.app import main
from planner.training.runtime.origin import granularity_of

README, NOTEBOOK = ROOT / "README.md", ROOT / "notebooks" / "09_a_real_model.py"

#: A process in which no package torch can be found.
_HIDDEN = "import sys; sys.modules['torch'] = None; from planner.cli.app import main; sys.exit(main(sys.argv[1:]))"


_RUN = pytest.param(("run", "plan.json", "chain8", "--model", "mine.py:make"), marks=pytest.mark.slow)


@pytest.mark.parametrize("command", [_RUN, ("import", "torch", "mine.py:make")])
def test_a_missing_extra_is_one_line(command: tuple[str, ...], tmp_path: Path) -> None:
    options = ["--memory", "40MB", "--tp", "1", "--quiet", "--out", str(tmp_path / "plan.json")]
    assert main(["solve", "chain8", *options]) == 0
    (tmp_path / "mine.py").touch()
    done = subprocess.run([sys.executable, "-c", _HIDDEN, *command], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert "needs torch: pip install '.[torch]'" in done.stderr.splitlines()[-1]


def test_a_granularity_that_no_command_makes_is_refused() -> None:
    chain = planner.load("chain8")
    assert granularity_of(chain) is None
    for known in ("block", "op"):
        assert granularity_of(replace(chain, options={"granularity": known})) == known
    with pytest.raises(InstanceError, match="chain8: granularity is 'layer'; expected block or op"):
        granularity_of(replace(chain, options={"granularity": "layer"}))


def test_from_a_model_to_gradients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    """Its commands run in this process, which has imported PyTorch."""
    pytest.importorskip("transformers", reason="needs the extra torch, with transformers")
    text = README.read_text()
    (model,) = re.findall(r"```python\n# mine.py\n(.*?)```", text, flags=re.DOTALL)
    (tmp_path / "mine.py").write_text(model)
    (commands,) = [
        found for found in re.findall(r"```sh\n(.*?)\n```", text, flags=re.DOTALL) if "import torch" in found
    ]
    monkeypatch.chdir(tmp_path)
    shown = []
    for line in commands.splitlines():
        program, *arguments = line.split()
        assert program == "planner" and main([*arguments, "--quiet"]) == 0, line
        shown.append(capfd.readouterr().out)
    assert ", proved by search." in shown[1]
    assert "pipeline_parallel_degree = 2" in shown[2]
    assert "equal to the unsplit model" in shown[3] and "76 of 76 parameters" in shown[3]


def run(folder: Path, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, str(NOTEBOOK)], cwd=folder, env={**os.environ, **environment},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_model_goes_from_import_to_gradients(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """Its commands run in this process, which has imported PyTorch."""
    pytest.importorskip("torch", reason="needs PyTorch (extra torch)", exc_type=ImportError)

    def called(words: list[str], cwd: Path, **_: Any) -> SimpleNamespace:
        shown = io.StringIO(), io.StringIO()
        with chdir(cwd), redirect_stdout(shown[0]), redirect_stderr(shown[1]):
            code = main(words[3:])
        return SimpleNamespace(returncode=code, stdout=shown[0].getvalue(), stderr=shown[1].getvalue())

    monkeypatch.setattr(subprocess, "run", called)
    runpy.run_path(str(NOTEBOOK), run_name="__main__")
    shown = capsys.readouterr().out
    assert shown.count(", proved by search.") == 2 and "not run" not in shown
    assert "encoder.1 -> blocks.0 blocks.1 blocks.2 blocks.3 4096 bytes" in shown
    assert "released  sent 262144 bytes, planned 393216; gradients of 39 of 39" in shown
    assert "runtime   sent 262144 bytes, planned 262144; gradients of 39 of 39" in shown
    assert shown.count("equal to the unsplit model") == 2 and "most wrong: " in shown


@pytest.mark.slow  # the site is built without PyTorch
def test_without_pytorch_every_command_says_so(tmp_path: Path) -> None:
    hidden = "import importlib.util as u\nfind = u.find_spec\n"
    hidden += "u.find_spec = lambda name, *more: None if name == 'torch' else find(name, *more)\n"
    (tmp_path / "sitecustomize.py").write_text(hidden)
    shown = run(tmp_path, PYTHONPATH=os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    commands = shown.count("$ planner")
    assert commands == shown.count("not run: PyTorch is not installed (pip install '.[torch]')") == 7
