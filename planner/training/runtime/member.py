"""A member of the group of processes that run a plan: it joins the others, does its passes and leaves."""

import datetime
import os
import sys

from planner.training.runtime.job import Job, Report
from planner.training.runtime.pipelining import Pipelined
from planner.training.runtime.process import Process, run_together


def run_process(job: Job, rank: int) -> list[Report]:
    """Run the passes of a process, and report on each of its stages; call it in a process of its own.

    `RuntimeError` if another process does not answer, or an operation fails.
    """
    import torch
    from torch import distributed

    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo0" if sys.platform == "darwin" else "lo"
    os.environ["NCCL_SOCKET_IFNAME"] = os.environ["GLOO_SOCKET_IFNAME"]
    on = {}
    if job.backend == "nccl":
        torch.cuda.set_device(job.device_of(rank))
        on = {"device_id": job.device_of(rank)}
    distributed.init_process_group(
        job.backend,
        **on,
        init_method=f"file://{job.rendezvous}",
        rank=rank,
        world_size=job.layout.num_processes,
        timeout=datetime.timedelta(seconds=job.timeout_s),
    )
    kind = Pipelined if job.is_pipelined else Process
    first = kind(job, rank)
    reports = run_together([first, *(kind(job, number, first) for number in job.layout.duties_of(rank)[1:])])
    distributed.destroy_process_group()  # not after an error: others would see it as theirs before this one reports it
    return reports
