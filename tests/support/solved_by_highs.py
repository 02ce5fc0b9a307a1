"""HiGHS on the file of a model; what planner knows of the model does not take part."""

from pathlib import Path
from typing import Any

import highspy


def solved_by_highs(model: Path | str, **options: Any) -> tuple[highspy.Highs, Path]:
    """HiGHS after its run, and its solution file beside the model's."""
    highs = highspy.Highs()
    for name, value in {"output_flag": False, **options}.items():
        highs.setOptionValue(name, value)
    assert highs.readModel(str(model)) == highspy.HighsStatus.kOk
    highs.run()
    solution = Path(model).with_suffix(".sol")
    highs.writeSolution(str(solution), 0)
    return highs, solution
