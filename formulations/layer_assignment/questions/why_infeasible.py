"""What would make an infeasible instance feasible."""

from formulations.layer_assignment.definition.settings import Instance, is_per_stage
from solvers.outcome import Limits, Watch


def why_infeasible(instance: Instance, _limits: Limits, _watch: Watch) -> tuple[str, dict[str, float]]:
    """The most stages that would be feasible; costs of single stages would have to be declared anew for them."""
    sentence = f"infeasible: at most {instance.num_layers} stages have a layer each"
    if not is_per_stage(instance):
        sentence += f"; feasible with --stages {instance.num_layers}"
    return sentence, {"most_stages": instance.num_layers}
