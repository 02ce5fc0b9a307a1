"""What the models of both solvers decide, and how a plan is read off it."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any

from formulations.mesh_tiling.definition.plan import Tile, TilingPlan
from formulations.mesh_tiling.definition.quantities import of_stages
from formulations.mesh_tiling.placements import Placements
from formulations.modelling.solve_model import WithoutSizes


class Decisions(WithoutSizes, ABC):
    """``taken[q]``; ``steps[a, b]`` and ``first[a]`` where the order counts; ``at[j, q]`` where a requirement asks."""

    data: Any
    var: Any  # the solver's (`ByName`)

    @property
    def places(self) -> Placements:
        """All places of tiles."""
        places: Placements = self.data.places
        return places

    @abstractmethod
    def sum_of(self, factor: Callable[[int, Tile], int]) -> Any:
        """The sum of a factor of stage and tile over where each stage is."""

    def decode(self, values: Any) -> TilingPlan:
        """The plan of a solution."""
        found = [place for place, variable in self.var("taken").items() if values[variable] > 0.5]
        if self.var("at"):
            found = [place for (_, place), variable in self.var("at").items() if values[variable] > 0.5]
        elif self.var("steps"):
            start = max(self.var("first"), key=lambda kind: values[self.var("first")[kind]])
            steps = {step: round(values[variable]) for step, variable in self.var("steps").items()}
            found = self.places.in_order(found, start, steps)
        return self.places.plan(found)

    def values_of(self, plan: TilingPlan) -> Iterator[tuple[Any, int]]:
        """The places of a plan, and the steps of its order; the solver finds what follows from them."""
        order = self.places.numbers(plan)
        kinds = [self.places.kinds[place] for place in order]
        walked = Counter(pairwise(kinds))
        yield from ((variable, int(place in order)) for place, variable in self.var("taken").items())
        yield from ((variable, walked[step]) for step, variable in self.var("steps").items())
        yield from ((variable, int(kind == kinds[0])) for kind, variable in self.var("first").items())
        yield from ((variable, int(kind == kinds[-1])) for kind, variable in self.var("last").items())
        yield from ((variable, int(order[stage] == place)) for (stage, place), variable in self.var("at").items())

    def quantities(self) -> Mapping[str, Callable[..., Any]]:
        """The quantities of a tiling, as sums over where each stage is."""
        return of_stages(self.sum_of)
