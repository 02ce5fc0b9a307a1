"""Notebook 9 does what it says: where PyTorch is installed every cell runs, and elsewhere all say why they do not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT

NOTEBOOK = ROOT / "notebooks" / "09_a_real_model.py"


def run(folder: Path, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, str(NOTEBOOK)], cwd=folder, env={**os.environ, **environment},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_model_goes_from_import_to_gradients(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs PyTorch (extra torch)", exc_type=ImportError)
    shown = run(tmp_path)
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
