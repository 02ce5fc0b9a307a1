"""From Pyomo's model to HiGHS's."""

from __future__ import annotations

from typing import Any

import highspy
import pyomo.environ as pyo
from pyomo.contrib.solver.common.factory import SolverFactory


def translate(
    model: pyo.ConcreteModel,
) -> tuple[highspy.Highs, dict[int, int], bool, dict[Any, int]]:
    """HiGHS's model, the column of each variable's id, whether it has an objective, and the row of each constraint.

    Uses the persistent interface's own steps without its ``set_instance``, which redirects stdout and stderr.
    """
    translator = SolverFactory("highs")
    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    translator._model = model
    translator._solver_model = highs
    translator.add_block(model)
    columns: dict[int, int] = translator._pyomo_var_to_solver_var_map
    loose = [var for var in model.component_data_objects(pyo.Var, descend_into=True) if id(var) not in columns]
    translator.add_variables(loose)
    has_objective = translator._objective is not None
    if not has_objective:
        translator.set_objective(None)
    return highs, columns, has_objective, translator._pyomo_con_to_solver_con_map
