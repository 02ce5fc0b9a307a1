"""What is declared beside a model: the micro-batch, the configurations that are offered, the rates that are reached."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

#: Guesses: the share of the peak that matrix products reach, and of the bandwidths that memory and links reach.
EFFICIENCY, MEMORY_EFFICIENCY, LINK_EFFICIENCY = 0.5, 0.75, 0.75
#: What an instance calls the bytes that are left of every device for the backward pass of a node.
WORKING_SET = "working-set"


@dataclass(frozen=True)
class Choices:
    """What the planner may choose for each node, and the declared numbers.

    ``degrees``: numbers of devices that share a node (t); empty: powers of two up to the devices of a server.
    ``recompute``, ``sequence_parallel``, ``zero``: offer these configurations too; ``zero`` are levels, of 1, 2 and 3.
    ``selective``: offer recomputation of the attention's core alone, and of the MLP alone.
    ``efficiency``, ``memory_efficiency``, ``link_efficiency``: shares of the hardware's peak rates.
    ``product_start_s``, ``latency_s``: seconds that a product takes to start, and a step of a collective in a server.
    ``weight_versions``: copies of the weights: 1 where the pipeline is flushed after every batch, 2 with PipeDream-2BW.
    ``found_splits``: offer also what `found_splits.FoundConfigurations` finds, operator by operator.
    """

    degrees: tuple[int, ...] = ()
    recompute: bool = True
    sequence_parallel: bool = False
    zero: tuple[int, ...] = ()
    efficiency: float = EFFICIENCY
    memory_efficiency: float = MEMORY_EFFICIENCY
    link_efficiency: float = LINK_EFFICIENCY
    product_start_s: float = 0.0
    latency_s: float = 0.0
    weight_versions: int = 1
    found_splits: bool = False
    selective: bool = False


@dataclass(frozen=True)
class Work:
    """The micro-batch and the batch: samples in one, data type of the model, how many of them."""

    microbatch: int
    dtype: str
    num_microbatches: int


def by_node(losses: Sequence[tuple[str, float]]) -> str:
    """What nodes lose, those together that lose as much one after the other.

    >>> by_node([("a", 0.5), ("b", 0.25), ("c", 0.25)])
    '50.0% of a, 25.0% of b to c'
    """
    said = [(name, f"{loss:z.1%}") for name, loss in losses]
    groups = [(loss, [name for name, _ in own]) for loss, own in groupby(said, lambda each: each[1])]
    return ", ".join(f"{loss} of {' to '.join(dict.fromkeys((names[0], names[-1])))}" for loss, names in groups)
