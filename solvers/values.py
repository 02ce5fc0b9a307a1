"""The values of the columns of a linear model, by Pyomo's variables."""

from collections.abc import Mapping
from typing import Any


class Values:
    """The values of a solution: ``values[variable]`` is the number that a solver gave a Pyomo variable, unrounded.

    ``columns``: the column of each variable, by the variable's id.
    ``numbers``: one for each column.
    """

    def __init__(self, columns: Mapping[int, int], numbers: Any) -> None:
        self._columns, self.numbers = columns, numbers

    def __getitem__(self, variable: Any) -> float:
        return float(self.numbers[self._columns[id(variable)]])
