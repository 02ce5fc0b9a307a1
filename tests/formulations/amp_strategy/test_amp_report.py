"""What a person sees of a strategy search."""

import pytest

import planner
from planner.display.tables import show_result


def test_the_ranked_list_is_a_table(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PLANNER_PUBLISHED", raising=False)
    result = planner.solve(planner.load("amp-homogeneous"), options={"top": 3})
    show_result(result, verbose=True)
    shown = capsys.readouterr().out.splitlines()
    head = next(number for number, line in enumerate(shown) if line.strip() == "ranked")
    columns = shown[head + 1].split()
    assert columns[:5] == ["#", "microbatch", "tp_degree", "dp_degree", "pp_degree"]
    assert columns[-5:] == ["predicted_s", "waiting", "filling", "sending", "all_reduce"]
    rows = [line.split() for line in shown[head + 2 : head + 5]]
    assert [row[0] for row in rows] == ["0", "1", "2"] and len(shown) == head + 5
    assert float(rows[0][-5]) == pytest.approx(result.objective, rel=1e-8)
    assert not any("{" in line for line in shown)
    assert any(line.startswith("options") and "layer-times analytic" in line for line in shown)
    assert any(line.startswith("stats") and "strategies 53" in line for line in shown)
