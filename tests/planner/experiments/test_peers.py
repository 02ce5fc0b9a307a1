"""The table of published planners beside ours (docs/peers/peers.py)."""

import runpy
import sys
from pathlib import Path
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


#: All ways to cut the layers of an interval table, on groups of one, two, four or eight devices.
NAIVE = """
def training_dp(num_layers, num_devices, num_microbatches, sizes, configs, costs, depths):
    def plans(first, left):
        if first == num_layers:
            yield ()
        for last in range(first, num_layers):
            for index, (_, size) in enumerate(sizes):
                if size <= left:
                    for rest in plans(last + 1, left - size):
                        yield (costs[first, last, index, 0], *rest)
    return min(sum(plan) + (num_microbatches - 1) * max(plan) for plan in plans(0, num_devices)), None
"""


def test_recursions_over_intervals_get_what_ours_plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "alpa" / "pipeline_parallel" / "stage_construction.py"
    source.parent.mkdir(parents=True)
    source.write_text(NAIVE)
    monkeypatch.setitem(PEERS["recursions"].__globals__, "CHAINS", ((4, 5),))
    its, our = PEERS["alpa"](tmp_path, tmp_path, 100)
    assert our.says == "optimal (proved)" and its.objective == pytest.approx(our.objective, rel=1e-9)
