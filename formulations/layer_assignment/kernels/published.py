"""AMP's dynamic program over (layers, stages, slowest stage to the right), compiled.

Arrays as in ``costs.Tables``; ``sums`` are all distinct sums of neighbouring layers' seconds, ascending, with 0, and
``rank[c, i]`` is the position of layers c to i - 1 among them.

Source: AMP's supplement, section 6.4 (Equations 10 to 14); how the incumbent is stored: specification of the release.
"""

# mypy: disallow_untyped_decorators=False

from typing import Any

import numpy as np

from formulations.compiled.numba_kernels import (
    FLAG,
    FLOAT,
    FLOATS,
    FLOATS2,
    INTS,
    INTS2,
    SHORTS3,
    TRUTH,
    compile_kernels,
    kernel,
)


@kernel(FLOATS, INTS2, FLOATS2, FLOAT, TRUTH, SHORTS3, INTS, FLAG, error_model="python")
def assign(sums: Any, rank: Any, cut: Any, weight: Any, forgets: Any, back: Any, lengths: Any, flag: Any) -> Any:
    """Write the assignment and return its value without the sum of all stages; ``inf`` if the flag ended it.

    Parameters
    ----------
    forgets
        False: as the paper means it. True: as released, where a new incumbent is stored without the cost of its own
        cut while candidates are compared with theirs.
    back
        Room for (S, L + 1, sums) integers: where the last of j + 1 stages begins.
    """
    num_stages, num_layers, num_sums = cut.shape[1], rank.shape[0] - 1, len(sums)
    before = np.full((num_layers + 1, num_sums), np.inf)
    for i in range(1, num_layers + 1):
        for m in range(num_sums):
            before[i, m] = weight * max(0.0, sums[rank[0, i]] - sums[m])
            back[0, i, m] = 0
    for j in range(1, num_stages):
        here = np.full((num_layers + 1, num_sums), np.inf)
        for i in range(j + 1, num_layers + 1):
            if flag[0]:
                return np.inf
            for m in range(num_sums):
                best = np.inf
                for c in range(j, i):
                    time = rank[c, i]
                    value = before[c, max(time, m)] + weight * max(0.0, sums[time] - sums[m]) + cut[c, j]
                    if value < best:
                        best = value - cut[c, j] if forgets else value
                        back[j, i, m] = c
                here[i, m] = best
        before = here
    end, m = num_layers, 0
    for j in range(num_stages - 1, -1, -1):
        start = back[j, end, m]
        lengths[j] = end - start
        m = max(m, rank[start, end])
        end = start
    return before[num_layers, 0]


compile_kernels()
