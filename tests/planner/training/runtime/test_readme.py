"""The README's way from a model to gradients, line by line."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT

pytest.importorskip("torch", reason="needs the extra torch")
pytest.importorskip("transformers", reason="needs the extra torch, with transformers")

README = ROOT / "README.md"


def test_from_a_model_to_gradients(tmp_path: Path) -> None:
    text = README.read_text()
    (model,) = re.findall(r"```python\n# mine.py\n(.*?)```", text, flags=re.DOTALL)
    (tmp_path / "mine.py").write_text(model)
    (commands,) = [
        found for found in re.findall(r"```sh\n(.*?)\n```", text, flags=re.DOTALL) if "import torch" in found
    ]
    shown = []
    for line in commands.splitlines():
        program, *arguments = line.split()
        assert program == "planner"
        done = subprocess.run(
            [sys.executable, "-m", "planner", *arguments, "--quiet"],
            cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, (line, done.stderr)
        shown.append(done.stdout)
    assert ", proved by search." in shown[1]
    assert "pipeline_parallel_degree = 2" in shown[2]
    assert "equal to the unsplit model" in shown[3] and "76 of 76 parameters" in shown[3]
