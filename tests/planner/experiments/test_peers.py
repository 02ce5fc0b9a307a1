"""The table of published planners beside ours (docs/peers/peers.py)."""

import runpy
import sys
from typing import Any

import pytest
from paths import ROOT

PEERS: dict[str, Any] = runpy.run_path(str(ROOT / "docs" / "peers" / "peers.py"))


def test_what_is_not_here_is_absent(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["peers.py"])
    PEERS["main"]()
    rows = capsys.readouterr().out.splitlines()[2:]
    assert [row.split(" | ")[1] for row in rows] == [*PEERS["PEERS"]] and all("absent: --" in row for row in rows)


@pytest.mark.parametrize(
    ("script", "objective", "says"),
    [
        ("print('cost 1'); print('cost 2.5')", 2.5, ""),
        ("print('cost 1'); raise SystemExit('no input')", None, "exit code 1: no input"),
        ("print('nothing')", None, "no objective printed"),
        ("import time; print('cost 1', flush=True); time.sleep(60)", None, "no end within 1 s"),
    ],
)
def test_a_row_has_the_last_objective_or_says_why_not(script: str, objective: float | None, says: str) -> None:
    limit_s = 1 if "sleep" in script else 100
    found = PEERS["theirs"]("name", "theirs", PEERS["timed"]([sys.executable, "-c", script], limit_s), r"cost (\S+)")
    assert (found.objective, found.says) == (objective, says) and found.cpu_s > 0
