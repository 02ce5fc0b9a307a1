"""Serving strategies for CP-SAT: a Boolean for each shape and each end of a stage; stages are summed layer by layer."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from formulations.contract.family import Answer
from formulations.modelling.solve_model import add_requirements, check_stop, prove
from formulations.modelling.warm_start import First
from formulations.serving_strategy import guide
from formulations.serving_strategy.definition.plan import ServingPlan, plan_of_cuts
from formulations.serving_strategy.definition.problem import evaluate, stage_bytes, violations
from formulations.serving_strategy.definition.quantities import VOCABULARY
from formulations.serving_strategy.shapes import ROUNDED, Shape, shapes
from instances.problems.serving_strategy import ServingInstance
from solvers.build_stop import stops_with
from solvers.cpsat import backend as cpsat
from solvers.outcome import Limits, Watch
from solvers.scaling import Scale, cost_scale, size_scale

Key = tuple[int, int, int]
#: Sizes are quotients, rounded; less than this part of them is not counted, so that what fits is never refused.
_ROUNDED = 1e-15


@dataclass(frozen=True)
class Data:
    """Shapes by degrees and batch; ``kinds`` has for each layer the first one that costs and holds the same.

    Seconds are in whole parts of ``cost``, bytes of ``size``, all rounded down. ``most_s``: no request takes longer.
    """

    instance: ServingInstance
    shapes: Mapping[Key, Shape]
    kinds: Sequence[int]
    cost: Scale
    size: Scale
    most_s: float

    def work(self, shape: Shape, k: int) -> int:
        """What a request takes of layer k, with the head."""
        last = k == len(self.instance.layers) - 1
        return self.units(shape.work_s[k]) + (self.units(shape.head_s) if last else 0)

    def held(self, shape: Shape, k: int) -> int:
        """What a device holds of layer k, with the embedding or the head."""
        plan = shape.plan([1] * shape.pp_degree)
        return self.room(stage_bytes(replace(self.instance, working_bytes=0.0), plan, k, k + 1))

    def working(self, shape: Shape) -> int:
        """What a device holds of activations."""
        tokens = self.instance.prompt_tokens + shape.pp_degree * shape.batch
        return self.room(tokens * self.instance.working_bytes / shape.tp_degree)

    def room(self, size: float) -> int:
        """Bytes in parts of ``size``; of what does not fit one more than fits."""
        own, most = size * (1 - _ROUNDED), self.instance.memory_bytes
        return self.size.floor(own) if own <= most else self.size.floor(most) + 1

    def units(self, seconds: float) -> int:
        """Seconds in parts of ``cost``."""
        return self.cost.floor(seconds * (1 - _ROUNDED))


def least_of(instance: ServingInstance, shape: Shape) -> float:
    """``time`` of a shape at least, in seconds: its mean stage, or requests that never wait; most replicas."""
    per = 1 if instance.objective == "latency" else instance.generated_tokens
    return shape.objective(instance, max(shape.apart_s, shape.mean_s)) * per * (1 - ROUNDED)


def data_of(instance: ServingInstance, watch: Watch) -> Data:
    """The numbers of the model."""
    own = {(each.tp_degree, each.pp_degree, each.batch): each for each in shapes(instance, watch)}
    check_stop(watch)
    count, first_of = len(instance.layers), dict[Any, int]()
    marked = [(layer, place == 0, place == count - 1) for place, layer in enumerate(instance.layers)]
    kinds = [first_of.setdefault(each, place) for place, each in enumerate(marked)]
    size = size_scale([0.5], instance.memory_bytes, (count + 2) * instance.memory_bytes)
    most = max((p * batch for _, p, batch in own), default=1) if instance.objective == "latency" else 1
    most_s = max((max(each.mean_s * each.pp_degree, each.apart_s) for each in own.values()), default=1.0)
    least = min((least_of(instance, each) for each in own.values()), default=0.0)
    return Data(instance, own, kinds, cost_scale(least, (count + 3) * most, most_s * most), size, most_s)


def build(data: Data) -> cpsat.SpokenModel:
    """The model of all plans that keep the rules on heads, requests and the first token."""
    instance, model = data.instance, cpsat.SpokenModel()
    layers, kinds = range(len(instance.layers)), sorted(set(data.kinds))
    latency, most = instance.objective == "latency", data.units(data.most_s) + 1
    limit = data.size.floor(instance.memory_bytes)
    largest = most * (max((p * b for _, p, b in data.shapes), default=1) if latency else 1)
    # fmt: off
    shape = model.booleans("shape", data.shapes,
        "shape[t,p,b]: p stages of t devices, and b sequences in a decode step")
    replicas = model.booleans("replicas", range(1, instance.num_devices + 1), "replicas[r]: there are r replicas")
    cut = model.booleans("cut", layers[:-1], "cut[i]: a stage ends behind layer i")
    work_of = model.integers("work_of", kinds, 0, most, "work_of[k]: what a request takes of a layer of kind k")
    held_of = model.integers("held_of", kinds, 0, limit + 1, "held_of[k]: what a device holds of a layer of kind k")
    work = model.integers("work", layers, 0, most, "work[i]: what a request takes of a stage, up to its layer i")
    held = model.integers("held", layers, 0, limit, "held[i]: what a device holds of a stage, up to its layer i")
    base = model.integer("base", 0, limit + 1, "base: bytes of activations, whatever the layers")
    slowest = model.integer("slowest", 0, most, "slowest: time from one request of a replica to the next")
    time = model.integer("time", 0, largest, "time: of a request, or from one request of all replicas to the next")

    def of_shape(number: Callable[[Shape], int]) -> Any:
        """A number of the shape that is taken."""
        return cpsat.weighted_sum((number(own), shape[key]) for key, own in data.shapes.items())

    count = cpsat.weighted_sum(replicas.items())
    model.row("one_shape", model.add_exactly_one(shape.values()), "one shape: sum of shape[t,p,b] = 1")
    model.row("one_count", model.add_exactly_one(replicas.values()), "one number of replicas: sum of replicas[r] = 1")
    model.row("stages", 1 + sum(cut.values()) == of_shape(lambda own: own.pp_degree),
        "as many stages as the shape has: 1 + sum of cut[i] = p")
    model.row("devices", count <= of_shape(lambda own: own.most_replicas), "there are devices: r <= devices / (t p)")
    model.row("requests", count >= of_shape(lambda own: own.least_replicas), "all requests: r p b >= requests")
    model.rows("work_is", kinds, lambda k: work_of[k] == of_shape(lambda own: data.work(own, k)),
        "what a request takes of a layer, by shape")
    model.rows("held_is", kinds, lambda k: held_of[k] == of_shape(lambda own: data.held(own, k)),
        "what a device holds of a layer, by shape")
    model.row("base_is", base == of_shape(data.working), "activations, by shape")
    model.rows("work_begins", layers, lambda i: work[i] >= work_of[data.kinds[i]], "a stage has its last layer")
    model.rows("work_goes_on", layers[1:],
        lambda i: (work[i] >= work[i - 1] + work_of[data.kinds[i]], ~cut[i - 1]),
        "and that of the layers before it in the stage: work[i] >= work[i-1] + work_of[k], unless cut[i-1]")
    model.rows("held_begins", layers, lambda i: held[i] >= base + held_of[data.kinds[i]],
        "a device holds activations and the last layer")
    model.rows("memory", layers[1:],
        lambda i: (held[i] >= held[i - 1] + held_of[data.kinds[i]], ~cut[i - 1]),
        "and the layers before it in the stage, within its memory: held[i] >= held[i-1] + held_of[k], unless cut[i-1]")
    model.rows("bottleneck", layers, lambda i: slowest >= work[i], "no stage takes longer than the slowest")
    model.row("waits", slowest >= of_shape(lambda own: data.units(own.apart_s)),
        "a replica completes no more requests than it has, each in the time of one that never waits")
    if instance.token_limit_s is not None and instance.generated_tokens > 1:
        model.row("deadline",
            slowest <= of_shape(lambda own: min(most, data.cost.ceil(own.limit_s * (1 + ROUNDED)))),
            "the time between tokens keeps its limit")
    if latency:
        model.rows("request", data.shapes, lambda t, p, b: (time >= p * b * slowest, shape[t, p, b]),
            "a request takes as long as p b requests of its replica")
    else:
        model.rows("throughput", replicas, lambda r: (r * time + r - 1 >= slowest, replicas[r]),
            "r replicas complete r requests in the time of one, rounded down")
    # Implied: rows that hold under a literal say nothing to CP-SAT's linear relaxation.
    model.row("least", time >= of_shape(lambda own: data.units(least_of(instance, own))),
        "no layout of a shape has a slowest stage below the mean: implied")
    # fmt: on
    model.says("forbidden", "a plan that only rounding admitted is cut off")
    model.minimize(time)
    return model


@dataclass
class Model(cpsat.Runnable):
    """The objective is ``time``, in parts of the data's ``cost``."""

    model: cpsat.SpokenModel
    data: Data

    def _literals(self, plan: ServingPlan) -> list[Any]:
        """The shape that a plan has, and where its stages end and do not."""
        key, own = (plan.tp_degree, plan.pp_degree, plan.batch), self.model.variables
        cuts = zip(own["cut"].values(), plan.cuts, strict=True)
        return [own["shape"][key], *(each if cut else ~each for each, cut in cuts)]

    def decode(self, values: Any) -> ServingPlan:
        """The plan of a solution."""
        own = self.model.variables
        t, _, batch = next(key for key, each in own["shape"].items() if values[each])
        count = next(r for r, each in own["replicas"].items() if values[each])
        return plan_of_cuts(count, t, batch, [values[each] for each in own["cut"].values()])

    def lower_bound(self, bound: float) -> float:
        """A bound on the model's objective in the instance's unit."""
        instance = self.data.instance
        per = 1 if instance.objective == "latency" else instance.generated_tokens
        return self.data.cost.restore(cpsat.whole(bound)) / per * (1 - ROUNDED)

    def cut_off(self, plan: ServingPlan, _values: Any) -> None:
        """Forbid these degrees, batch and layers."""
        self.model.add_bool_or([~each for each in self._literals(plan)]).with_name("forbidden")

    def values_of(self, plan: ServingPlan) -> Iterator[tuple[Any, int]]:
        """The values of the decisions in a plan."""
        own = self.model.variables
        key = (plan.tp_degree, plan.pp_degree, plan.batch)
        yield from ((each, int(at == key)) for at, each in own["shape"].items())
        yield from ((each, int(r == plan.replicas)) for r, each in own["replicas"].items())
        yield from zip(own["cut"].values(), plan.cuts, strict=True)

    def quantities(self) -> Mapping[str, Callable[..., Any]]:
        """The quantities of the vocabulary."""
        own = self.model.variables
        return {
            "replicas": lambda: cpsat.weighted_sum(own["replicas"].items()),
            **{
                name: (lambda place=place: cpsat.weighted_sum((key[place], each) for key, each in own["shape"].items()))
                for place, name in enumerate(("tp_degree", "pp_degree", "batch"))
            },
            "cuts": lambda place: own["cut"][place],
        }


def model_of(instance: ServingInstance, watch: Watch | None = None, *, complete: bool = False) -> Model:  # noqa: ARG001
    """The model of an instance, with its requirements; no plan prunes it."""
    watch = watch or Watch()
    with stops_with(watch):
        data = data_of(instance, watch)
        return add_requirements(Model(build(data), data), VOCABULARY, instance)


def solve(instance: ServingInstance, limits: Limits, watch: Watch) -> Answer[ServingPlan]:
    """The best plan; the model begins with that of vLLM's guide."""
    reason = "no degrees, batch and layers by stage keep the requirements, or the rules on memory, requests and times"
    first = First("vllm-guide", lambda part: guide.solve(instance, limits, part))

    def built() -> Model:
        return model_of(instance, watch)

    return prove(instance, built, evaluate, violations, limits, watch, reason=reason, first=first)
