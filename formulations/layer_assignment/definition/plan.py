"""What a plan decides."""

from dataclasses import dataclass

from formulations.contract.plan_exchange import exchange
from instances.rules import Whole


@dataclass(frozen=True)
class LayerPlan:
    """How many layers each stage takes, from the input side on."""

    lengths: tuple[Whole, ...]


plan_from_json, plan_to_json = exchange('``{"lengths": [...]}``.', LayerPlan)
