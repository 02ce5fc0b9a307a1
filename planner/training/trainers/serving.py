"""vLLM and SGLang: how many decoder layers each pipeline stage has, in an environment variable.

The embedding is on the first stage, the head on the last; nothing is recomputed where nothing is trained.

Source: vllm/distributed/utils.py, ``get_pp_indices`` (5a6541d); python/sglang/srt/distributed/utils.py (1107be1). Both
take as many whole numbers as there are stages, and want their sum to be the number of hidden layers.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

from planner.training.trainers.checked import CHECKED
from planner.training.trainers.layout import DECODER, Layer, Layout, Stage, between_ends


class Server(NamedTuple):
    """The name, the variable, the command, and the options of the pipeline's, the tensors' and the replicas' degree.

    ``serves``: options by the fields of `Serving`.
    """

    name: str
    variable: str
    command: str
    pp: str
    tp: str
    dp: str
    serves: dict[str, str]


VLLM = Server(
    "vllm",
    "VLLM_PP_LAYER_PARTITION",
    "vllm serve MODEL",
    "--pipeline-parallel-size",
    "--tensor-parallel-size",
    "--data-parallel-size",
    {
        "sequences": "--max-num-seqs",
        "length": "--max-model-len",
        "batched": "--max-num-batched-tokens",
        "cache_bytes": "--kv-cache-memory-bytes",
    },
)
SGLANG = Server(
    "sglang",
    "SGLANG_PP_LAYER_PARTITION",
    "python -m sglang.launch_server --model-path MODEL",
    "--pp-size",
    "--tp-size",
    "--dp-size",
    {
        "sequences": "--max-running-requests",
        "context": "--context-length",
        "batched": "--chunked-prefill-size",
        "cache_tokens": "--max-total-tokens",
    },
)


def writer(server: Server) -> Callable[[Layout], str]:
    """What writes a layout, which has one pair of degrees, as an environment variable and a command to start with."""

    def write(layout: Layout) -> str:
        lengths = ",".join(str(len(row)) for row in layout.decoders())
        options = [(server.pp, layout.pp_degree), (server.tp, layout.tp_degree), (server.dp, layout.dp_degree)]
        if layout.serving is None:
            words = [
                "The plan is one of training: its time and memory are not those of a server, which trains nothing.",
                f"Left out is a training step of {layout.batch.says()}.",
            ]
        else:
            options += [(option, getattr(layout.serving, name)) for name, option in server.serves.items()]
            words = ["The plan is one of serving_strategy; options behind the degrees were not run with the program."]
        command = " ".join([server.command, *(f"{option} {value}" for option, value in options)])
        head = [f"# {CHECKED[server.name].says()}", *(f"# {line}" for line in words)]
        return "\n".join([*head, f"export {server.variable}={lengths}", command, ""])

    return write


def reader(server: Server) -> Callable[[str], Layout]:
    """What reads the layout back; `ValueError` for another text."""

    def find(pattern: str, text: str) -> str:
        match = re.search(pattern, text)
        if match is None:
            raise ValueError(f"the text has no {pattern}; expected what is written for {server.command.split()[0]}")
        return match.group(1)

    def read(text: str) -> Layout:
        lengths = [int(length) for length in find(rf"{server.variable}=(\d+(?:,\d+)*)\s", text).split(",")]
        pp, tp, dp = (int(find(rf"{option} (\d+)", text)) for option in (server.pp, server.tp, server.dp))
        if pp != len(lengths):
            raise ValueError(f"{len(lengths)} lengths for {pp} stages")
        rows = between_ends([[Layer(DECODER)] * length for length in lengths])
        return Layout(tuple(Stage(row, dp, tp) for row in rows))

    return read
