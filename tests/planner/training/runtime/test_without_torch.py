"""Where PyTorch is not installed, commands that need it say so in one line, and the others work."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import planner
from instances.errors import InstanceError
from planner.cli.app import main
from planner.training.runtime.origin import granularity_of

#: A process in which no package torch can be found.
_HIDDEN = "import sys; sys.modules['torch'] = None; from planner.cli.app import main; sys.exit(main(sys.argv[1:]))"


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(("run", "plan.json", "chain8", "--model", "mine.py:make"), marks=pytest.mark.slow),
        ("import", "torch", "mine.py:make"),
    ],
)
def test_a_missing_extra_is_one_line(command: tuple[str, ...], tmp_path: Path) -> None:
    assert (
        main(["solve", "chain8", "--memory", "40MB", "--tp", "1", "--quiet", "--out", str(tmp_path / "plan.json")]) == 0
    )
    (tmp_path / "mine.py").touch()
    done = subprocess.run(
        [sys.executable, "-c", _HIDDEN, *command], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert "needs torch: pip install '.[torch]'" in done.stderr.splitlines()[-1]


def test_a_granularity_that_no_command_makes_is_refused() -> None:
    chain = planner.load("chain8")
    assert granularity_of(chain) is None
    for known in ("block", "op"):
        assert granularity_of(replace(chain, options={"granularity": known})) == known
    with pytest.raises(InstanceError, match="chain8: granularity is 'layer'; expected block or op"):
        granularity_of(replace(chain, options={"granularity": "layer"}))
