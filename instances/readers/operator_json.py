"""The project's own JSON of operator partitioning, whose tensors name operators by their ids (docs/problems/)."""

from typing import Any

from instances.errors import InstanceError, closest, expect, expect_unique
from instances.problems.operator_partitioning import (
    NamedTensor,
    OperatorInstance,
    Tensor,
    TrainingMemory,
    check,
    in_topological_order,
)
from instances.validation import read_keys


def read(content: Any, where: str) -> OperatorInstance:
    """The instance that parsed JSON declares; operators may come in any order.

    `InstanceError` if a field breaks a rule, an id is used twice, a tensor names an unknown operator, or there is a
    cycle.
    """
    given = read_keys(OperatorInstance, content, where)
    expect(bool(given["operators"]), where, "operators", [], "at least one operator")
    expect_unique([operator.id for operator in given["operators"]], where, "operators")
    index = {str(operator.id): number for number, operator in enumerate(given["operators"])}
    tensors = [_tensor(tensor, f"tensors[{number}]", index, where) for number, tensor in enumerate(given["tensors"])]
    given["operators"], given["tensors"] = in_topological_order(given["operators"], tensors, where)
    if given["num_stages"] is None and given["step_microbatches"] is None:
        each = (given["training"] or TrainingMemory()).microbatches
        given["step_microbatches"] = each * (given["num_devices"] or 1)
    instance = OperatorInstance(**given)
    check(instance, where)
    return instance


def _tensor(tensor: NamedTensor, place: str, index: dict[str, int], where: str) -> Tensor:
    """The tensor between operators by their positions."""

    def find(field: str, identity: int | str) -> int:
        if str(identity) not in index:
            raise InstanceError.at(where, f"{place}.{field}", identity, f"an operator{closest(identity, index)}")
        return index[str(identity)]

    source = find("source", tensor.source)
    targets = [find(f"targets[{each}]", identity) for each, identity in enumerate(tensor.targets)]
    if not targets or len(set(targets)) < len(targets) or source in targets:
        rule = "other operators than the source, each once, at least one"
        raise InstanceError.at(where, f"{place}.targets", list(tensor.targets), rule)
    return Tensor(source, tuple(targets), tensor.volume_bytes)
