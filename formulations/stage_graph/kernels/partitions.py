"""Compiled search over partitions into stages, from the inputs on, for the iteration (`iteration.search`).

The head of a stage is the longest sum of t, seconds of both passes of a micro-batch, on a path of stages before it. An
iteration takes at least head + N t of each stage and the longest all-reduce: before the stage's first forward pass come
the forward passes of that path, after its last backward pass the path's backward ones, and N of each between them.

Stages come in ascending order of (head, t). That is an order in which none comes before one that it waits for, and it
does not change where equal branches change places, so every plan, or one like it, is met.
"""

# mypy: disallow_untyped_decorators=False

from typing import Any, NamedTuple

from formulations.compiled.array_types import Flags, Floats, Floats2, Ints, Ints2
from formulations.compiled.numba_kernels import FLAG, compile_kernels, inner, kernel

#: What `next_partition` says: nothing is left, a plan is complete, or the flag was raised.
DONE, COMPLETE, STOPPED = 0, 1, 2
#: Times and bytes are added up in another order here than in the definition: this much, relatively, is forgiven.
_SLACK = 1e-11
_FORWARD, _BACKWARD, _DEGREES = 0, 1, 2
_INCLUDED, _EXCLUDED, _PLACED = 1, 2, 3


class Model(NamedTuple):
    """Operators at one micro-batch size; edges into v are ``into_start[v]:into_start[v + 1]``, those out of it too.

    ``passes[v, r]``: seconds of both passes on r devices; ``fastest[v, d]`` the least of them on d devices or fewer on
    which v alone keeps the target; ``work[v]`` the least device seconds, those of one device.
    ``branch[v]`` is -1 where v is in no chain that stands beside others; ``twin[v]`` is the operator in the same place
    of the equal branch before v's (-1: none). ``first`` and ``ranks`` number upsets, as in `kernels.branches.Upsets`.
    ``samples[r]`` of the fullest replica; ``reduce_rate[r]``: seconds of an all-reduce for each byte of weights.
    ``counts``: devices, micro-batches N, samples of a micro-batch, operators behind the branches. ``limits``: bytes of
    memory, copies of the weights, seconds of a message, seconds of a byte in it, the most that an all-reduce may
    take (more than what is in ``last[0]``, or that is 0), and N t of the stage of the heaviest operator, at
    least. ``together[v]``: the same if v, which leads to that operator, is in its stage (0: v does not lead there).
    """

    into_start: Ints
    into: Ints
    into_bytes: Floats
    out_start: Ints
    out: Ints
    out_bytes: Floats
    passes: Floats2
    fastest: Floats2
    work: Floats
    weights: Floats
    kept: Floats
    twin: Ints
    branch: Ints
    first: Flags
    ranks: Ints2
    together: Floats
    samples: Ints
    reduce_rate: Floats
    counts: Ints
    limits: Floats


class State(NamedTuple):
    """Where the search is: it goes on from there. Levels are the stages, in the order in which they are made.

    ``at``: level, operator and what is next. ``stage[v]``: its stage, -1 if it has none yet; ``end[v]``: head + t of
    that, at least. ``degree[level]`` is the number of devices, ``left[level]`` those left before.
    ``inside[level, v]``, ``choice[level, v]``: the stage in the making. ``sums[level, 3 v]``: t on all devices that are
    left, head and work left out, of the operators before v. ``last[level]``: head and t of the stage before and the
    longest all-reduce so far. ``even[level, branch]``: it was treated like its equal before it. ``made``: partial
    plans. ``target``: seconds that an iteration may take, now and when ``needs`` were found. ``needs[k, u]``: devices
    that upset u takes at least if all heads in it are k parts of that target, of as many as there are rows (or none).
    """

    at: Ints
    stage: Ints
    end: Floats
    degree: Ints
    left: Ints
    inside: Ints2
    choice: Ints2
    sums: Floats2
    last: Floats2
    even: Ints2
    made: Ints
    target: Floats
    needs: Ints2
    counted: Ints


@inner(error_model="python")
def _upset(stage: Any, branch: Any, first: Any, ranks: Any, tail: int, counted: Any) -> int:
    """The number of the upset of operators without a stage (`kernels.branches.Upsets`)."""
    behind = beside = 0
    for c in range(len(counted)):
        counted[c] = 0
    for v in range(len(stage)):
        if stage[v] < 0:
            if branch[v] >= 0:
                counted[branch[v]] += 1
                beside += 1
            else:
                behind += 1
    if beside == 0:
        return behind
    rank = tail
    for c in range(len(counted)):
        place = c  # sorted among its equals
        while not first[place] and counted[place - 1] > counted[place]:
            counted[place - 1], counted[place] = counted[place], counted[place - 1]
            place -= 1
    for c in range(len(counted)):
        rank += ranks[c, counted[c]]
    return int(rank)


@kernel(Model, State, FLAG, error_model="python")
def next_partition(model: Any, state: Any, flag: Any) -> int:
    """Go on to the next partition, with degrees, whose heads allow the target; `DONE` if there is none."""
    into_start, into, into_bytes = model.into_start, model.into, model.into_bytes
    out_start, out, out_bytes = model.out_start, model.out, model.out_bytes
    passes, fastest, work, twin, branch = model.passes, model.fastest, model.work, model.twin, model.branch
    together, heaviest = model.together, model.limits[5]
    stage, end, degree, left = state.stage, state.end, state.degree, state.left
    inside, choice, sums, last, even = state.inside, state.choice, state.sums, state.last, state.even
    size = len(work)
    rounds, microbatch = model.counts[1], model.counts[2]
    memory, copies, latency, byte_s = model.limits[0], model.limits[1], model.limits[2], model.limits[3]
    level, v, way = state.at[0], state.at[1], state.at[2]
    limit = state.target[0] * (1 + _SLACK)
    tie = limit * _SLACK
    while True:
        if flag[0]:
            state.at[0], state.at[1], state.at[2] = level, v, way
            return STOPPED
        here = 3 * v
        spare, head_before, reduce = left[level], last[level, 0], last[level, 2]
        if way == _FORWARD and v < size:
            # Take v into the stage if it may, else leave it out; what comes after it has to stay out, too.
            if stage[v] >= 0:
                choice[level, v] = _PLACED
                for x in range(3):
                    sums[level, here + 3 + x] = sums[level, here + x]
                v += 1
                continue
            head, sent = sums[level, here + 1], 0.0
            may = twin[v] < 0 or even[level, branch[v]] == 0 or inside[level, twin[v]] == 1
            for x in range(into_start[v], into_start[v + 1]):
                if stage[into[x]] >= 0:
                    head = max(head, end[into[x]])
                    sent += 2 * (latency + into_bytes[x] * model.samples[min(spare, microbatch)] * byte_s)
                elif inside[level, into[x]] == 0:
                    may = False
            seconds = sums[level, here] + fastest[v, spare] + sent
            rest, late = rounds * sums[level, here + 2], max(head, head_before - tie)
            may = may and rounds * seconds + late + reduce <= limit
            may = may and late + min(together[v], seconds + heaviest) + reduce <= limit
            if may and rest <= (spare - 1) * (limit - reduce - max(head_before, head)):
                inside[level, v], choice[level, v] = 1, _INCLUDED
                sums[level, here + 3], sums[level, here + 4] = seconds, head
                sums[level, here + 5] = sums[level, here + 2]
                v += 1
                continue
            choice[level, v] = _INCLUDED
            v += 1
            way = _BACKWARD
        if way == _BACKWARD:
            v -= 1
            if v < 0:
                if level == 0:
                    state.at[0], state.at[1], state.at[2] = 0, 0, _BACKWARD
                    return DONE
                level -= 1
                v, way = size, _DEGREES
                for u in range(size):
                    if inside[level, u]:
                        stage[u] = -1
                continue
            if choice[level, v] != _INCLUDED:
                continue
            here = 3 * v
            inside[level, v], choice[level, v] = 0, _EXCLUDED
            rest = sums[level, here + 2] + work[v]
            if rounds * rest <= (spare - 1) * (limit - reduce - max(head_before, sums[level, here + 1])):
                sums[level, here + 3], sums[level, here + 4] = sums[level, here], sums[level, here + 1]
                sums[level, here + 5] = rest
                v += 1
                way = _FORWARD
            continue
        # The stage is made: add it up, and try its degrees.
        if way == _FORWARD:
            degree[level] = 0
        head = incoming = crossing = weights = kept = open_work = behind = 0.0
        members = edges = outside = leaving = 0
        for u in range(size):
            if inside[level, u]:
                members += 1
                if together[u] > behind:
                    behind = together[u]
                weights += model.weights[u]
                kept += model.kept[u]
                for x in range(into_start[u], into_start[u + 1]):
                    if not inside[level, into[x]]:
                        incoming += into_bytes[x]
                        edges += 1
                        head = max(head, end[into[x]])
                for x in range(out_start[u], out_start[u + 1]):
                    if not inside[level, out[x]]:
                        crossing += out_bytes[x]
                        edges += 1
                        leaving = 1
            elif stage[u] < 0:
                outside += 1
                open_work += work[u]
                for x in range(into_start[u], into_start[u + 1]):
                    if stage[into[x]] >= 0 or inside[level, into[x]]:
                        open_work += 2 * (latency + into_bytes[x] * microbatch * byte_s)
        way = _BACKWARD
        if members == 0 or head < head_before - tie:
            continue
        for r in range(degree[level] + 1, min(spare, microbatch) + 1):
            if outside and r == spare:
                break
            reduced = reduce
            if r > 1:
                reduced = model.reduce_rate[r] * weights + 2 * r * latency
                if reduced > model.limits[4] * (1 + _SLACK):
                    continue
                reduced = max(reduce, reduced)
            if outside == 0 and 0 < reduced == last[0, 2]:
                continue  # all its all-reduces are in an earlier class
            seconds = 2 * ((incoming + crossing) * model.samples[r] * byte_s + edges * latency)
            for u in range(size):
                if inside[level, u]:
                    seconds += passes[u, r]
            if head <= head_before + tie and seconds < last[level, 1] - tie:
                continue
            if max(rounds * seconds, min(behind, seconds + heaviest)) + head + reduced > limit:
                continue
            if outside and rounds * open_work > (spare - r) * (limit - reduced - head):
                continue
            held = min(rounds, 1 + leaving) * model.samples[r] * (kept + incoming)
            if copies * weights + held > memory * (1 + _SLACK):
                continue
            for u in range(size):
                if inside[level, u]:
                    stage[u], end[u] = level, head + seconds
            possible = True
            for u in range(size):
                if stage[u] < 0:  # operators come in a topological order
                    end[u] = head
                    alone = fastest[u, spare - r]
                    for x in range(into_start[u], into_start[u + 1]):
                        end[u] = max(end[u], end[into[x]])
                        if stage[into[x]] >= 0:
                            sample = model.samples[min(spare - r, microbatch)]
                            alone += 2 * (latency + into_bytes[x] * sample * byte_s)
                    end[u] += alone
                    if end[u] > limit or (rounds - 1) * alone + end[u] + reduced > limit:
                        possible = False
                        break
                    if min(head - tie + together[u], end[u] + heaviest) + reduced > limit:
                        possible = False
                        break
            if possible and outside and len(state.needs):
                upset = _upset(stage, branch, model.first, model.ranks, model.counts[3], state.counted)
                part = min(len(state.needs) - 1, int(max(0.0, head) / state.target[1] * len(state.needs)))
                possible = state.needs[part, upset] <= spare - r
            if possible:
                degree[level] = r
                if outside == 0:
                    for u in range(size):
                        if inside[level, u]:
                            stage[u] = -1
                    state.at[0], state.at[1], state.at[2] = level, size, _DEGREES
                    return COMPLETE
                way = _FORWARD
                break
            for u in range(size):
                if inside[level, u]:
                    stage[u] = -1
        if way == _BACKWARD:
            continue
        level += 1
        state.made[0] += 1
        v = 0
        left[level] = spare - degree[level - 1]
        last[level, 0], last[level, 1], last[level, 2] = head, seconds, reduced
        for x in range(3):
            sums[level, x] = 0.0
        for c in range(even.shape[1]):
            even[level, c] = 1
        for u in range(size):
            inside[level, u] = 0
            if twin[u] >= 0 and stage[u] != stage[twin[u]]:
                even[level, branch[u]] = 0


compile_kernels()
