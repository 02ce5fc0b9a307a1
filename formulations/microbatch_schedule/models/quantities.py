"""What both solvers' models say of the order of a stage's passes: how many micro-batches it holds, and when.

Expressions are written the same way for both; a model says how it takes variables and rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from formulations.simulation.simulate_graph import PassGraph

#: By the name of the group; the source stands in brackets at the end.
SENTENCES = {
    "start": "start[p]: when pass p starts; passes count stage by stage, forward ones first",
    "iteration": "time of the iteration, from 0 to the end of its last pass",
    "backward_first": "backward_first[p,q]: backward pass q comes before forward pass p of its stage",
    "precedence": "a pass starts when all it waits for has ended and come: start[p] >= end of q + message; so does "
    "forward pass j + c for backward pass j where c micro-batches have room [GraphPipe, sections 3 (C4) and 6]",
    "ended": "the iteration lasts until the last backward pass of every stage: iteration >= end of p",
    "forward_waits": "one pass at a time: the forward pass starts after the backward one if that comes first "
    "[GraphPipe, section 3 (C4)]",
    "backward_waits": "one pass at a time: the backward pass starts after the forward one if that comes first "
    "[GraphPipe, section 3 (C4)]",
    "in_turn": "with a forward pass all later ones wait for the backward pass, and for all earlier ones: "
    "backward_first[i,j] <= backward_first[i+1,j], backward_first[i,j-1]",
    "between_forward": "what comes between two forward passes takes its time: start[i+1] >= end[i] + seconds of the "
    "backward passes between, g_s times the sum over j of backward_first[i+1,j] - backward_first[i,j]",
    "between_backward": "so does what comes between two backward passes: start[j+1] >= end[j] + f_s times the sum over "
    "i of backward_first[i,j] - backward_first[i,j+1]",
    "between_both": "and between the passes of a micro-batch: start >= end + f_s times the sum over i > j of 1 - "
    "backward_first[i,j] + g_s times the sum over k < j of 1 - backward_first[j,k]",
    "most": "most[s]: most micro-batches that stage s has in flight, for a requirement",
    "most_held": "it is no less than what the stage holds when backward pass j starts: most[s] >= 1 + forward passes "
    "behind forward pass j that come first",
    "at_peak": "at_peak[s,j]: the stage holds most when backward pass j starts, for a requirement",
    "one_peak": "it holds most at some backward pass: sum over j of at_peak[s,j] = 1",
    "peak_held": "it is no more than what the stage holds then: most[s] <= held at j + m (1 - at_peak[s,j]); big-M: m "
    "micro-batches of the stage",
    "bytes": "bytes of the stage that holds most",
    "bytes_held": "as many as every stage holds when backward pass j starts: bytes >= weights + activations of what it "
    "holds",
}


class OrderQuantities(ABC):
    """``backward_first[f, b]`` of the pairs of a forward and a backward pass of which either may come first.

    ``peaks``: the variables ``most[s]`` that there are.
    """

    graph: PassGraph
    backward_first: Mapping[tuple[int, int], Any]
    peaks: dict[int, Any]

    @abstractmethod
    def new_integer(self, name: str, index: tuple[int, ...], most: int) -> Any:
        """A new variable ``name[index]`` from 0 to ``most``."""

    @abstractmethod
    def hold(self, name: str, index: tuple[int, ...], row: Any) -> None:
        """Add a constraint ``name[index]``."""

    def quantities(self) -> Mapping[str, Callable[..., Any]]:
        """The quantities of a schedule, from the order of its passes."""
        return {"warm_up": lambda stage: self.held(stage, 0), "in_flight": self._most}

    def held(self, stage: int, j: int) -> Any:
        """Micro-batches in flight when backward pass j of a stage starts: its own, and later ones that came first."""
        graph = self.graph
        backward = graph.number(stage, False, j)
        later = [(graph.number(stage, True, i), backward) for i in range(j + 1, graph.counts[stage])]
        undecided = [self.backward_first[pair] for pair in later if pair in self.backward_first]
        return 1 + len(undecided) - sum(undecided)

    def _most(self, stage: int) -> Any:
        """In flight at most; between two backward passes the number only grows, so one of them begins at the peak."""
        if stage in self.peaks:
            return self.peaks[stage]
        count = self.graph.counts[stage]
        most = self.peaks[stage] = self.new_integer("most", (stage,), count)
        peaks = [self.new_integer("at_peak", (stage, j), 1) for j in range(count)]
        self.hold("one_peak", (stage,), sum(peaks) == 1)
        for j, peak in enumerate(peaks):
            self.hold("most_held", (stage, j), most >= self.held(stage, j))
            self.hold("peak_held", (stage, j), most <= self.held(stage, j) + count * (1 - peak))
        return most

    def words(self, values: Any) -> list[str]:
        """The order of each stage's passes as the pairs say it; where neither may be first, precedences decide."""
        graph, found = self.graph, []
        for stage, count in enumerate(graph.counts):
            forward = backward = 0
            word = ""
            while backward < count:
                pair = graph.number(stage, True, forward), graph.number(stage, False, backward)
                is_forward = forward == backward
                if forward < count and pair in self.backward_first:
                    is_forward = values[self.backward_first[pair]] < 0.5
                word += "F" if is_forward else "B"
                forward, backward = forward + is_forward, backward + (not is_forward)
            found.append(word)
        return found
