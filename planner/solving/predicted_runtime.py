"""How long a method is going to take: its predicted steps, times what a step took where it was measured.

``calibration.json`` is the dated table that ``planner bench --calibrate DIR`` makes of measurements: ``--suite all``,
``--suite models``, and larger instances of methods of which the catalog has small ones only. Predictions err on
the short side, by a factor of ten and more: enough to tell seconds from days.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

from formulations.contract.family import Family, Method

TABLE = Path(__file__).with_name("calibration.json")


@cache
def seconds_per_step() -> dict[str, float]:
    """Seconds of a predicted step, by ``family/method``."""
    found: dict[str, float] = json.loads(TABLE.read_text())["seconds_per_step"]
    return found


def predicted_s(family: Family[Any, Any], method: Method[Any, Any], instance: Any) -> float | None:
    """Predicted seconds of a method for an instance; ``None`` where it predicts nothing or was never measured."""
    rate = seconds_per_step().get(f"{family.name}/{method.name}")
    effort = method.effort(instance)
    return None if rate is None or effort <= 0 else rate * effort
