"""A pipeline of equal micro-batches, event by event, to hold Equation 4 against (AMP, section 6.1)."""

from collections.abc import Sequence


def makespan_s(
    stage_s: Sequence[float], sending_s: Sequence[float], num_microbatches: int, one_message_at_a_time: bool
) -> float:
    """Seconds until the last stage has computed the last micro-batch.

    A stage computes one micro-batch after the other, as soon as it has arrived; it goes on computing while it sends.

    Parameters
    ----------
    stage_s, sending_s
        Seconds of each stage, and of each of the links between them, for one micro-batch.
    one_message_at_a_time
        Whether a message waits until its link is free.
    """
    free = [0.0] * len(stage_s)
    link_free = [0.0] * len(sending_s)
    for _ in range(num_microbatches):
        arrived = 0.0
        for stage, seconds in enumerate(stage_s):
            free[stage] = max(free[stage], arrived) + seconds
            if stage < len(sending_s):
                begin = max(free[stage], link_free[stage]) if one_message_at_a_time else free[stage]
                link_free[stage] = arrived = begin + sending_s[stage]
    return free[-1]
