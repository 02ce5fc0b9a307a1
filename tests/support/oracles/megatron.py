"""The rules of Megatron-LM's pipeline layouts, written down from their description; shares no code with the package.

Megatron core 0.20.0, pipeline_parallel_layer_layout.py: letters E, t, m, L; ``|`` between stages; commas are dropped;
``( ... )*n`` is unrolled first, then ``x*n``. The number of stages is divisible by the pipeline's size; stages are in
forward order, so that stage i belongs to virtual stage i // size of rank i % size.
"""


def unrolled(text: str) -> list[str]:
    """The stages as strings of letters."""
    text = text.replace(",", "")
    while ")*" in text:
        start = text.index("(")
        end = text.index(")", start)
        inner, (count, rest) = text[start + 1 : end], _number(text[end + 2 :])
        text = text[:start] + inner * count + rest
    while "*" in text:
        star = text.index("*")
        count, rest = _number(text[star + 1 :])
        text = text[: star - 1] + text[star - 1] * count + rest
    return text.split("|")


def _number(text: str) -> tuple[int, str]:
    digits = len(text) - len(text.lstrip("0123456789"))
    return int(text[:digits]), text[digits:]


def faults(text: str, size: int, num_layers: int, mtp_num_layers: int | None) -> list[str]:
    """What Megatron would refuse, for a pipeline of ``size`` ranks; empty: it takes the layout."""
    stages = unrolled(text)
    letters = "".join(stages)
    found = [f"letter {letter!r}" for letter in letters if letter not in "EtmL"]
    if len(stages) % size:
        return [*found, f"{len(stages)} stages on {size} ranks"]
    virtual = len(stages) // size
    if virtual > 1 and size <= 2:
        found.append("virtual stages on fewer than three ranks, without overlapped communication")
    if not letters or letters[0] != "E" or letters.count("E") != 1:
        found.append("the embedding is not first, once")
    if not letters or letters[-1] != "L" or letters.count("L") != 1:
        found.append("the loss is not last, once")
    if letters.count("t") != num_layers:
        found.append(f"{letters.count('t')} decoder layers of {num_layers}")
    if letters.count("m") != (mtp_num_layers or 0):
        found.append(f"{letters.count('m')} layers of multi-token prediction of {mtp_num_layers}")
    if "m" in letters and "t" in letters[letters.index("m") :]:
        found.append("a decoder layer behind multi-token prediction")
    with_mtp = [place for place, stage in enumerate(stages) if "m" in stage]
    if len(with_mtp) > 1 or any(place < len(stages) - size for place in with_mtp):
        found.append("multi-token prediction outside one of the last virtual stages")
    return found
