"""Bounds, annealing and models together, until the best plan meets the best bound.

With one thread they follow each other. With more, a second thread anneals and then searches for plans just below the
best one, while the first one looks for targets that are refuted; a plan that meets a target ends its model. Source:
this project.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from formulations.contract.family import Answer
from formulations.device_mapping.annealing import far, near
from formulations.device_mapping.definition.plan import Mapping
from formulations.device_mapping.models.all_bounds import answer, begin, raise_bound
from formulations.device_mapping.models.bisect_gap import close, improve
from formulations.device_mapping.models.model_choice import TargetModels
from instances.problems.device_mapping import DeviceMapping
from solvers.outcome import Limits, Stop, Watch

#: The share of the time that annealing gets before the models, on one thread (on few devices, on many), and its most.
_FIRST_SHARES, _FIRST_S = (0.15, 0.4), (10.0, 30.0)
#: Levels of annealing and tries of the deep one before the models, and tries between them.
_FIRST_LEVELS, _FIRST_TRIES, _TRIES = 2, 12, 60
#: Up to so many devices annealing ends by itself, and at the end takes at most so much of the time.
_SMALL, _LAST_SHARE = 32, 0.4
#: Seconds of computing in which a model has to find a better plan, or there is more annealing first.
_IMPROVE_S = 20.0
#: How often a thread looks whether it should go on, in seconds.
_POLL_S = 0.05


def solve(instance: DeviceMapping, limits: Limits, watch: Watch) -> Answer[Mapping]:
    """The best plan and bound; proved where they meet."""
    if watch.stopped():
        return Answer(stop=watch.why())
    models = begin(instance, limits, watch, prover="cpsat")
    if limits.threads > 1:
        with _beside(models, None, lambda part: _improve(models, limits, part)):
            found = raise_bound(models)
            for decide in models.choose().values():
                close(models.gap, decide, alone=False)
            _anneal_last(models, limits)
    else:
        many = instance.num_devices > _SMALL
        first_s = _FIRST_S[many] if limits.time_s is None else min(_FIRST_S[many], _FIRST_SHARES[many] * limits.time_s)
        if many:  # models that are built for targets far above the optimum take long and say nothing
            _anneal(models, limits, first_s, levels=1)
        found = raise_bound(models)
        _anneal(models, limits, first_s)
        for decide in models.choose().values():
            close(models.gap, decide)
        _anneal_last(models, limits)
    return answer(models, watch.why(Stop.COMPLETED), found)


def _improve(models: TargetModels, limits: Limits, part: Watch) -> None:
    instance, one = models.arrays.instance, replace(limits, threads=1)
    near.solve(instance, one, part, levels=_FIRST_LEVELS)
    far.search(instance, limits.seed, part, _FIRST_TRIES)
    seconds = _IMPROVE_S
    while not part.stopped():
        for decide in models.choose().values():
            improve(models.gap, decide, seconds)
        far.search(instance, limits.seed + 1, part, _TRIES)
        seconds *= 3


def _anneal(models: TargetModels, limits: Limits, seconds: float | None, levels: int = _FIRST_LEVELS) -> None:
    """Annealing alone, until it is done or its time is up; with one level near the first plan, with none far away."""
    if models.gap.is_closed or models.gap.watch.stopped():
        return

    instance = models.arrays.instance
    ends = limits.time_s is None or instance.num_devices <= _SMALL

    def work(part: Watch) -> None:
        if levels:
            near.solve(instance, limits, part, levels=levels)
        if levels != 1:
            far.search(instance, limits.seed, part, _TRIES if ends else None)

    with _beside(models, seconds, work) as thread:
        while not (models.gap.is_closed or models.gap.watch.stopped() or not thread.is_alive()):
            thread.join(_POLL_S)


def _anneal_last(models: TargetModels, limits: Limits) -> None:
    """What is left is beyond the models: on small networks with time to spare, for the methods that come next."""
    spare = limits.time_s is not None and models.arrays.num_devices <= _SMALL
    other = replace(limits, seed=(limits.seed + 2) % 2**31)
    _anneal(models, other, _LAST_SHARE * (limits.time_s or 0.0) if spare else None, levels=0)


@contextmanager
def _beside(models: TargetModels, seconds: float | None, work: Callable[[Watch], object]) -> Iterator[threading.Thread]:
    """Work in a thread of its own while the block runs; it is stopped at the block's end."""
    watch = models.gap.watch
    part = watch.part(seconds, obsolete=lambda: models.gap.is_closed)
    errors: list[BaseException] = []
    done = threading.Event()

    def run() -> None:
        try:
            work(part)
        except BaseException as error:  # raised again below, in the thread that waits
            errors.append(error)

    def keep_in_step() -> None:
        while not done.wait(_POLL_S):
            part.stopped()

    threads = [threading.Thread(target=target, daemon=True) for target in (run, keep_in_step)]
    for thread in threads:
        thread.start()
    try:
        yield threads[0]
    finally:
        part.stop(watch.why())
        threads[0].join()
        done.set()
        threads[1].join()
    if errors:
        raise errors[0]
