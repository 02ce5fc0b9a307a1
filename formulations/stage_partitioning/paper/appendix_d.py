"""How many operations the published dynamic program takes, by the formulas of Appendix D.

| Paper     | Here                                                   |
|-----------|--------------------------------------------------------|
| script D  | ``num_downsets``; a pair is D' < D in the visiting order |
| P         | tensor-parallel degrees                                |
| K, N      | devices, min(N, K)                                     |

Source: Piper, Appendix D, before it is simplified to O-notation.
"""

from formulations.stage_partitioning.kernels.tables import Profile


def appendix_d(profile: Profile, num_downsets: int) -> dict[str, int]:
    """Most pairs, knapsack instances and updates of dp[D][k][s], if nothing is pruned.

    ``knapsacks``: for each pair, t and d <= K/t one for each of the ceil(N/d) values of ceil(s/d). ``updates``: for
    each pair, t and d one for each d t <= k <= K and d <= s <= N. The released cost model allows divisors of N only.
    """
    pairs = num_downsets * (num_downsets - 1) // 2
    K, N = profile.num_devices, profile.max_s
    degrees = [
        (t, d) for t in profile.tp_degrees.tolist() for d in profile.dp_degrees.tolist() if d * t <= K and d <= N
    ]
    return {
        "pairs": pairs,
        "knapsacks": pairs * sum(-(-N // d) for _, d in degrees),
        "updates": pairs * sum((K - d * t + 1) * (N - d + 1) for t, d in degrees),
    }
