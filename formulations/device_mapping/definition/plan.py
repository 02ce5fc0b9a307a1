"""What a plan decides."""

from dataclasses import dataclass

from formulations.contract.plan_exchange import exchange
from instances.exchange import in_files
from instances.rules import Whole


@in_files("devices", "rings?")
@dataclass(frozen=True)
class Mapping:
    """A plan: ``devices[s][r]`` is the device of replica r of stage s.

    ``rings[s]``, which only counts where the instance has free rings, are the replicas of stage s in the cyclic order
    in which they pass their gradients on. Without ``rings`` it is the best order with up to ``MAX_SEARCHED_RING``
    replicas, and the order of the indices with more.
    """

    devices: tuple[tuple[Whole, ...], ...]
    rings: tuple[tuple[Whole, ...], ...] | None = None


plan_from_json, plan_to_json = exchange(
    '``{"devices": [[...], ...]}``, and ``rings`` where the plan states them.', Mapping
)
