"""From Pyomo's model to HiGHS's."""

from typing import Any

import highspy
import pyomo.environ as pyo
from pyomo.contrib.solver.common.factory import SolverFactory
from pyomo.contrib.solver.common.util import get_objective

from solvers.gc_pause import no_collection
from solvers.outcome import Watch

#: So many rows are translated between two polls of the watch.
_ROWS = 200


@no_collection()
def translate(
    model: pyo.ConcreteModel, watch: Watch | None = None
) -> tuple[highspy.Highs, dict[int, int], bool, dict[Any, int]]:
    """HiGHS's model, the column of each variable's id, whether it has an objective, and the row of each constraint.

    Uses the persistent interface's own steps without its ``set_instance``, which redirects stdout and stderr. The rows
    are not all there once the watch is stopped.
    """
    translator = SolverFactory("highs")
    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    translator._model = model
    translator._solver_model = highs
    rows = list(model.component_data_objects(pyo.Constraint, descend_into=True, active=True))
    for first in range(0, len(rows), _ROWS):
        if watch is not None and watch.stopped():
            break
        translator.add_constraints(rows[first : first + _ROWS])
    objective = get_objective(model)
    if objective is not None:
        translator.set_objective(objective)
    columns: dict[int, int] = translator._pyomo_var_to_solver_var_map
    loose = [var for var in model.component_data_objects(pyo.Var, descend_into=True) if id(var) not in columns]
    translator.add_variables(loose)
    has_objective = translator._objective is not None
    if not has_objective:
        translator.set_objective(None)
    return highs, columns, has_objective, translator._pyomo_con_to_solver_con_map
