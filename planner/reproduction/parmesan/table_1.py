"""Table 1: partitions of three models on machines of four GPUs, mapped consecutively and by the algorithm.

The paper measures steps; here they are predicted. The models are generated at operator level, and RaNNC's partition is
stood in for by the clustered dynamic program without refinement. Source: reconstructed.
"""

from typing import Any

from formulations.pipeline_placement.definition.stages import step_seconds
from planner.reproduction.claim import Evidence, Note
from planner.reproduction.parmesan.cells import TIME_LIMIT_S, count_proved, results_of, row_of
from planner.reproduction.parmesan.models import map_partition, partition_model

SHAPES = ((4, 4), (8, 2), (16, 1))
#: The paper's name of a partition and the method that makes it here.
PARTITIONS = (("pipedream", "pipedream"), ("rannc-like", "dp"), ("parmesan", "parmesan"))
#: Printed speedups over PipeDream's partition mapped consecutively: (consecutive, mapped) by shape; ``None``: not
#: printed (an error of RaNNC's; the paper's own partition is only printed with its mapping).
PRINTED: dict[tuple[str, str], tuple[tuple[float | None, float | None], ...]] = {
    ("resnet-152", "pipedream"): ((1.0, 7.6), (1.0, 2.4), (1.0, 1.0)),
    ("resnet-152", "rannc-like"): ((0.9, 7.2), (1.3, 2.5), (0.8, 0.9)),
    ("resnet-152", "parmesan"): ((None, 8.1), (None, 2.6), (None, 1.2)),
    ("bert-l", "pipedream"): ((1.0, 1.0), (1.0, 1.0), (1.0, 1.0)),
    ("bert-l", "rannc-like"): ((0.8, 0.8), (0.9, 0.9), (0.9, 0.9)),
    ("bert-l", "parmesan"): ((None, 1.1), (None, 1.1), (None, 1.0)),
    ("swin-l", "pipedream"): ((1.0, 2.5), (1.0, 1.4), (1.0, 1.2)),
    ("swin-l", "rannc-like"): ((None, None),) * 3,
    ("swin-l", "parmesan"): ((None, 2.5), (None, 1.6), (None, 1.3)),
}
MODELS = ("resnet-152", "bert-l", "swin-l")
NETWORK = "two-level"


def run(_inputs: str | None, note: Note, time_limit: float = TIME_LIMIT_S, objective: str = "auto") -> Evidence:
    """Every model, shape and partition: the columns of all tables, then predicted steps and speedups."""
    rows: list[dict[str, Any]] = []
    for model in MODELS:
        for place, (stages, replicas) in enumerate(SHAPES):
            base = None
            for name, method in PARTITIONS:
                graph, plan = partition_model(model, method, stages, replicas, time_limit)
                instance = map_partition(graph, plan, replicas, NETWORK, objective)
                results = results_of(f"{model}, {name}", instance, time_limit, note)
                steps = [_step(instance, result) for result in results[:2]]
                base = base or steps[0]
                printed = PRINTED[model, name][place]
                rows.append(
                    {
                        "model": model,
                        "partition": name,
                        **row_of(NETWORK, instance, results),
                        "consecutive_step": steps[0],
                        "parmesan_step": steps[1],
                        "consecutive_speedup": base / steps[0],
                        "parmesan_speedup": base / steps[1],
                        "paper_consecutive_speedup": printed[0],
                        "paper_parmesan_speedup": printed[1],
                    }
                )
    notes = (
        "seconds; objective, bound and gap are those of the mapping's slowest stage, steps have four micro-batches and "
        "one all-reduce; speedups are over PipeDream's partition mapped consecutively",
        "rannc-like is a stand-in, not RaNNC: the clustered dynamic program without refinement; pipedream is the best "
        "cut of one topological order, not PipeDream's program",
        "predicted on reconstructed models and machines where the paper measures: printed and found speedups are "
        "comparable in kind only",
    )
    return Evidence(
        tuple(rows),
        "models generated at operator level, four machines of four GPUs",
        notes=(*notes, count_proved(rows)),
    )


def _step(instance: Any, result: Any) -> float:
    return step_seconds(instance, result.own_plan)
