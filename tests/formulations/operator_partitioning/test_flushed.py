"""Steps of flushed pipelines of operators: the definition by hand, both models against brute force, and the bound."""

from dataclasses import replace
from typing import Any

import pytest
from oracles.operator_partitioning import optimum

import planner
from formulations.operator_partitioning.costs.shapes import lower_bound
from formulations.operator_partitioning.definition.plan import OperatorPlan
from formulations.operator_partitioning.definition.problem import evaluate, step_parts
from formulations.operator_partitioning.definition.settings import read
from formulations.operator_partitioning.models import cpsat, milp
from instances.errors import InstanceError
from instances.problems.operator_partitioning import Operator, OperatorInstance, Tensor, check
from solvers.outcome import Limits, Watch

SECONDS = Limits(time_s=30)
#: a feeds b and c, which feed d; bytes are seconds.
DIAMOND = OperatorInstance(
    "diamond",
    tuple(
        Operator(name, time, size)
        for name, time, size in zip("abcd", (4.0, 6.0, 3.0, 2.0), (2.0, 8.0, 4.0, 1.0), strict=True)
    ),
    (Tensor(0, (1, 2), 1.0), Tensor(1, (3,), 2.0), Tensor(2, (3,), 0.0)),
    num_stages=4,
    bandwidth_bytes_per_s=1.0,
    flushed=True,
    step_microbatches=5,
)


def solve(method: Any, instance: OperatorInstance) -> Any:
    return method.solve(instance, SECONDS, Watch(SECONDS))


def test_a_step_by_hand() -> None:
    """Stages a, b, c, d take 6, 9, 4, 4: c runs beside b, so the heaviest path is a, b, d."""
    each = OperatorPlan(((0,), (1,), (2,), (3,)), (1, 1, 1, 1))
    assert step_parts(DIAMOND, each) == (19.0, 4 * 9.0, 0.0)
    assert evaluate(DIAMOND, each) == 55.0
    # Two replicas have three micro-batches and two, and a ring of two moves all parameters of b once.
    assert step_parts(DIAMOND, replace(each, replicas=(2, 2, 2, 2))) == (19.0, 2 * 9.0, 8.0)
    # Alone with two replicas b is the slowest no more.
    assert step_parts(DIAMOND, replace(each, replicas=(1, 2, 1, 1))) == (19.0, 4 * 6.0, 8.0)
    # A tensor of no bytes still makes d wait for c.
    joined = OperatorPlan(((0, 1), (2,), (3,)), (1, 1, 1))
    assert step_parts(replace(DIAMOND, num_stages=3), joined) == (max(13 + 4, 13 + 4 + 4), 4 * 13.0, 0.0)


def test_one_micro_batch_is_the_heaviest_path() -> None:
    once = replace(DIAMOND, step_microbatches=1)
    assert evaluate(once, OperatorPlan(((0,), (1,), (2,), (3,)), (1, 1, 1, 1))) == 19.0


def test_a_flush_is_declared() -> None:
    plain = replace(DIAMOND, flushed=False, step_microbatches=None, replicas=2)
    assert plain.objective == "stage"
    step = read(plain, "d", {"objective": "step"})
    assert (step.objective, step.step_microbatches) == ("step", 8)
    assert read(plain, "d", {"objective": "step", "microbatches": 6}).step_microbatches == 12
    assert read(plain, "d", {"objective": "step", "step-microbatches": 7}).step_microbatches == 7
    free = read(plain, "d", {"objective": "step", "devices": 9, "stages": 4, "variable-replicas": True})
    assert (free.flushed, free.step_microbatches) == (True, 8)
    assert read(DIAMOND, "d", {"objective": "stage"}).objective == "stage"
    assert read(DIAMOND, "d", {"stages": 2}).flushed
    # Where stages are free a step is minimised anyway, by Parmesan's formula.
    assert not read(plain, "d", {"devices": 4, "objective": "step"}).flushed
    with pytest.raises(InstanceError, match="--objective"):
        read(plain, "d", {"devices": 4, "objective": "stage"})
    with pytest.raises(InstanceError, match="step_microbatches is missing"):
        check(replace(DIAMOND, step_microbatches=None), "d")
    with pytest.raises(InstanceError, match="flushed is True"):
        check(replace(DIAMOND, num_stages=None, num_devices=4), "d")


@pytest.mark.parametrize("method", [cpsat, milp], ids=["cpsat", "milp"])
def test_the_first_micro_batch_is_sent_along_its_path(method: Any) -> None:
    """Alone it takes longer than its operators: without what is sent no model would prove the step."""
    instance = replace(DIAMOND, step_microbatches=1)
    expected, answer = optimum(instance), solve(method, instance)
    assert expected is not None and lower_bound(instance) <= expected
    assert evaluate(instance, answer.plan) == pytest.approx(expected, rel=1e-6)
    # HiGHS takes 1e-6 for whole, which times the big-M of a path is as much as a bound gives up for its tolerances.
    assert expected * (1 - 2e-6) <= answer.bound <= expected * (1 + 1e-12)


def test_a_flush_is_another_optimum() -> None:
    """Of few micro-batches the fill counts: cutting a small tensor beats equal stages."""
    operators = tuple(Operator(v, time) for v, time in enumerate((3.0, 3.0, 3.0, 3.0)))
    tensors = (Tensor(0, (1,), 0.5), Tensor(1, (2,), 2.0), Tensor(2, (3,), 0.5))
    chain = OperatorInstance("chain", operators, tensors, 2, bandwidth_bytes_per_s=1.0)
    slowest = planner.solve(chain, exact=True)
    assert slowest.plan["stages"] == [[0, 1], [2, 3]] and slowest.objective == 8
    step = planner.solve(replace(chain, flushed=True, step_microbatches=2), exact=True)
    assert step.objective == pytest.approx(13 + 9.5) and len(step.plan["stages"][0]) in (1, 3)
    many = planner.solve(replace(chain, flushed=True, step_microbatches=64), exact=True)
    assert many.plan["stages"] == [[0, 1], [2, 3]] and many.objective == pytest.approx(16 + 63 * 8)
