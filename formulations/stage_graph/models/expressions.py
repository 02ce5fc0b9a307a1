"""The quantities of a plan as linear expressions over the CP-SAT model; each is made when a requirement needs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from formulations.stage_graph.models.devices import Partition


class Deep(Partition, Protocol):
    """A partition whose stages have depths, and that may choose a micro-batch size."""

    depths: range
    behind: dict[tuple[int, int], Any]
    size: dict[int, Any]

    @property
    def case(self) -> Any:
        """Its micro-batch sizes."""


class Expressions:
    """The quantities of `formulations.stage_graph.definition.quantities` in a model."""

    def __init__(self, built: Deep) -> None:
        self.built = built
        self._made: dict[str, Any] = {}

    def quantities(self) -> Mapping[str, Callable[..., Any]]:
        """By name; operators as the instance calls them."""
        built, index = self.built, self.built.instance.index
        devices = sum(r * each for (_, r), each in built.degree.items())
        return {
            "num_stages": lambda: sum(built.used),
            "same_stage": lambda operator, other: self._together(*sorted((index[operator], index[other]))),
            "devices_of": lambda operator: self._devices(index[operator]),
            "in_flight_of": lambda operator: self._in_flight(index[operator]),
            "microbatch": self._microbatch,
            "idle_devices": lambda: built.instance.num_devices - devices,
        }

    def _once(self, name: str, make: Callable[[str], Any]) -> Any:
        if name not in self._made:
            self._made[name] = make(name)
        return self._made[name]

    def _together(self, v: int, w: int) -> Any:
        """1 if two operators are in one stage: the sum of ``shared[v,w,s]`` over the stages."""
        if v == w:
            return 1
        model, within = self.built.model, self.built.within

        def make(_: str) -> Any:
            found = []
            for s in self.built.stages:
                both = model.new_bool_var(f"shared[{v},{w},{s}]")
                model.add_implication(both, within[v, s]).with_name(f"shared_first[{v},{w},{s}]")
                model.add_implication(both, within[w, s]).with_name(f"shared_second[{v},{w},{s}]")
                either = model.add_bool_or(both, within[v, s].negated(), within[w, s].negated())
                either.with_name(f"shared_both[{v},{w},{s}]")
                found.append(both)
            return sum(found)

        return self._once(f"shared[{v},{w}]", make)

    def _devices(self, v: int) -> Any:
        """The number that is the degree of whichever stage has the operator."""
        built = self.built

        def make(name: str) -> Any:
            own = built.model.new_int_var(1, built.instance.num_devices, name)
            for s in built.stages:
                degree = sum(r * each for (slot, r), each in built.degree.items() if slot == s)
                same = built.model.add(own == degree).only_enforce_if(built.within[v, s])
                same.with_name(f"devices_of_stage[{v},{s}]")
            return own

        return self._once(f"devices_of[{v}]", make)

    def _microbatch(self) -> Any:
        if not self.built.size:
            return self.built.case.sizes[0]
        return sum(size * each for size, each in self.built.size.items())

    def _in_flight(self, v: int) -> Any:
        """Micro-batches at the depth of the operator's stage, times their size."""
        built = self.built
        count = 1 + sum(built.behind[v, d] for d in built.depths[1:])
        if not built.size:
            return built.case.sizes[0] * count

        def make(name: str) -> Any:
            own = built.model.new_int_var(1, built.instance.minibatch, name)
            for size, each in built.size.items():
                same = built.model.add(own == size * count).only_enforce_if(each)
                same.with_name(f"in_flight_at_size[{v},{size}]")
            return own

        return self._once(f"in_flight_of[{v}]", make)
