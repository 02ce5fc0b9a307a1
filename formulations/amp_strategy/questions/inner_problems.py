"""The subproblems that AMP's algorithms solve inside."""

from formulations.contract.family import lazy
from formulations.contract.inner_problems import Inside

_code = lazy("formulations.amp_strategy")


def _layers(method: str, of: str, exactly: str) -> Inside:
    return Inside(
        method=method,
        problem="layer_assignment",
        says="layer assignment of each strategy",
        arise=getattr(_code.questions.studies.inside, f"layers_of_{of}"),
        exactly=getattr(_code.paper.amp, exactly),
    )


INSIDE = (
    _layers("amp", "amp", "solve_best_layers"),
    _layers("amp-released", "released", "solve_best_layers"),
    _layers("megatron", "megatron", "solve_best_layers"),
    _layers("amp-sa", "annealing", "solve_annealing_best_layers"),
    Inside(
        method="amp-sa",
        problem="mesh_tiling",
        says="tiling that each placement is",
        arise=_code.questions.studies.inside.tilings_of_annealing,
    ),
)
