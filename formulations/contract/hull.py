"""What is worth its price: the convex hull of choices between two amounts."""

from collections.abc import Iterable


def convex_hull(points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points on the lower convex hull whose second number falls, by rising first number.

    >>> convex_hull([(0, 9), (1, 5), (2, 4), (2, 3), (3, 1), (4, 1)])
    [(0, 9), (1, 5), (3, 1)]
    """
    hull: list[tuple[float, float]] = []
    for x, y in sorted(points):
        if hull and y >= hull[-1][1]:
            continue
        while len(hull) > 1 and (hull[-1][1] - hull[-2][1]) * (x - hull[-2][0]) >= (y - hull[-2][1]) * (
            hull[-1][0] - hull[-2][0]
        ):
            hull.pop()
        hull.append((x, y))
    return hull
