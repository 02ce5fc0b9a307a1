"""The orders of `formulations.simulation.orders` are those of PyTorch's own schedules, action by action."""

from types import SimpleNamespace
from typing import Any

import pytest

schedules = pytest.importorskip("torch.distributed.pipelining.schedules", reason="needs PyTorch (extra torch)")

from formulations.simulation.orders import SCHEDULES  # noqa: E402 - after the skip

KINDS = {"FORWARD": "F", "BACKWARD_INPUT": "B", "BACKWARD_WEIGHT": "W", "FULL_BACKWARD": "FULL"}
CLASSES = {
    "interleaved": schedules.ScheduleInterleaved1F1B,
    "zb-h1": schedules.ScheduleInterleavedZeroBubble,
    "zb-v": schedules.ScheduleZBVZeroBubble,
    "dualpipe-v": schedules.ScheduleDualPipeV,
}


def theirs(name: str, p: int, m: int, V: int) -> list[list[tuple[str, int, int]]]:
    """PyTorch's actions of every rank; its schedule objects want processes, its rule wants these numbers alone."""
    rounds = max(1, m // p)
    found = []
    for rank in range(p):
        numbers = SimpleNamespace(
            pp_group_size=p,
            _n_microbatches=m,
            n_local_stages=V,
            microbatches_per_round=m // rounds,
            num_stages=p * V,
            number_of_rounds=rounds,
            rank=rank,
        )
        found.append(plain(CLASSES[name]._calculate_single_rank_operations(numbers, rank), SCHEDULES[name].is_split))
    return found


def plain(actions: list[Any], is_split: bool) -> list[tuple[str, int, int]]:
    """Actions without idle ones; overlapped ones one after the other, a full backward pass as B and W where split."""
    found = []
    for action in (each for outer in actions if outer is not None for each in outer.sub_actions or [outer]):
        kind = KINDS[action.computation_type.name]
        kinds = ("B", "W") if kind == "FULL" and is_split else ("B",) if kind == "FULL" else (kind,)
        found += [(each, action.stage_index, action.microbatch_index) for each in kinds]
    return found


@pytest.mark.parametrize("name", CLASSES)
def test_orders_are_pytorch_s(name: str) -> None:
    schedule, compared = SCHEDULES[name], 0
    for p in (1, 2, 3, 4, 8):
        for m in (1, 2, 4, 8, 12, 16, 24, 32):
            for V in (1, 2, 3, 4):
                if schedule.refusal(p, m, V) is not None or (name == "interleaved" and V == 1):
                    continue
                if name == "zb-h1" and m % p:  # PyTorch asks for multiples
                    continue
                assert [list(order) for order in schedule.orders(p, m, V)] == theirs(name, p, m, V), (p, m, V)
                compared += 1
    assert compared >= 12
