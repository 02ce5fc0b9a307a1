"""Random layouts that a format can express."""

import random
from dataclasses import replace

from planner.training.trainers.layout import DECODER, EMBEDDING, HEAD, MTP, Layer, Layout, Serving, Stage

_PARTS = ("model", "layers", "h", "block_1", "encoder", "norm", "7", "wte")


def random_layout(seed: int, name: str) -> Layout:
    """A layout with empty stages, virtual stages, several modules to a layer, where the format has such things."""
    rng = random.Random(f"layout {name} {seed}")
    counts = name in ("megatron", "vllm", "sglang", "galvatron")
    virtual = rng.choice([1, 1, 2, 3]) if name in ("megatron", "torchtitan", "torch") else 1
    pp = rng.randint(3 if virtual > 1 else 1, 6)
    num_stages = pp * virtual
    rows: list[list[Layer]] = [[] for _ in range(num_stages)]
    least = 0 if counts and name != "galvatron" else 1
    for row in rows:
        row += [Layer(DECODER)] * rng.randint(least, 6)
    rows[0] = [Layer(EMBEDDING)] * rng.randint(0 if rows[0] else 1, 2) + rows[0]
    if name == "megatron" and rng.random() < 0.3:
        rows[rng.choice([-1, -1, -min(2, pp)])].append(Layer(MTP))
        for row in rows[rows.index(next(r for r in rows if Layer(MTP) in r)) + 1 :]:
            row.clear()
    rows[-1] += [Layer(HEAD)] * rng.randint(0 if rows[-1] else 1, 2)
    tp, dp = rng.choice([1, 2, 8]), rng.choice([1, 2, 3, 4])
    pairs = [(tp, dp)] * num_stages
    if name == "accelerate":
        pairs = [(1, 1)] * num_stages
    elif name == "galvatron":
        pairs = [rng.choice([(1, 8), (2, 4), (8, 1)]) for _ in rows]
        pairs[-1] = pairs[0]
    rows = _with_recompute(rng, name, rows)
    rows = _with_modules(rng, rows)
    stages = tuple(Stage(tuple(row), dp, tp) for row, (tp, dp) in zip(rows, pairs, strict=True))
    by_stage, devices = name == "torch" and rng.random() < 0.3, list(range(num_stages * pairs[0][1]))
    rng.shuffle(devices)
    whole = {"whole": True, "devices": tuple(devices)} if by_stage else {}
    return _with_shares(rng, name, Layout(stages, virtual, rng.choice([None, 16, 24]), **whole))


def _with_shares(rng: random.Random, name: str, layout: Layout) -> Layout:
    """What devices share of states, sequences, tokens and experts, and what servers hold, as far as exports say it."""
    if name in ("vllm", "sglang"):
        return replace(layout, serving=rng.choice([None, Serving(8, 100, 107, 512, 10**9, 800)]))
    if name not in ("megatron", "torchtitan"):
        levels, dtype = {"deepspeed": (0, 1), "galvatron": (0, 2)}.get(name, (0,)), rng.choice([None, "bf16"])
        return replace(layout, sharding=rng.choice(levels), dtype=dtype if name == "deepspeed" else None)
    dp, context = layout.stages[0].dp_degree, rng.choice([1, 1, 2, 4])
    sharding = rng.choice([0, 1 if name == "megatron" else 3])
    groups = (
        rng.choice([each for each in range(1, dp + 1) if dp % each == 0 and context * dp > each] or [1])
        if sharding
        else 1
    )
    shared = [each for each in (1, 1, 2, 3, 4, 6) if context * dp % each == 0 and groups == 1]
    expert, sequences = rng.choice(shared or [1]), layout.stages[0].tp_degree > 1 and rng.random() < 0.7
    is_part = name == "megatron" and rng.random() < 0.3 and not any(layer.recompute for layer in layout.layers)
    selective = rng.choice(["core_attn", "mlp"]) if is_part else ""
    outermost = name == "megatron" and rng.random() < 0.6 and (expert == context or layout.pp_degree == 1)
    return replace(
        layout, sharding=sharding, groups=groups, context=context, expert=expert, selective=selective, samples=2,
        outermost=outermost, offloaded=rng.choice([0.0, 0.5, 1.0]) if name == "megatron" and sharding else 0.0,
        sequences=sequences or expert > 1 < layout.stages[0].tp_degree, overlaps=rng.random() < 0.3, tokens=128,
    )  # fmt: skip


def _with_recompute(rng: random.Random, name: str, rows: list[list[Layer]]) -> list[list[Layer]]:
    if name in ("vllm", "sglang", "accelerate"):
        return rows
    whole, n = rng.random() < 0.5, rng.randint(0, 4)
    made = []
    for row in rows:
        done, left = [], n
        for layer in row:
            counts = layer.role == DECODER
            if name == "megatron":
                flag = counts and left > 0
            elif name == "torchtitan":
                flag = counts and whole
            else:
                flag = (counts or name in ("deepspeed", "torch")) and rng.random() < 0.5
            left -= counts
            done.append(Layer(layer.role, recompute=flag))
        made.append(done)
    return made


def _with_modules(rng: random.Random, rows: list[list[Layer]]) -> list[list[Layer]]:
    number = 0
    made = []
    for row in rows:
        done = []
        for layer in row:
            modules = []
            for _ in range(rng.choice([1, 1, 1, 2])):
                number += 1
                modules.append(".".join([*rng.sample(_PARTS, rng.randint(0, 2)), f"m{number}"]))
            done.append(Layer(layer.role, tuple(modules), layer.recompute))
        made.append(done)
    return made
