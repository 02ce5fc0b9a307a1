"""A watch for tests of searches that are stopped on their way."""

from solvers.outcome import Stop, Watch


class StopsAfter(Watch):
    """A watch that is stopped when it is asked once more than this."""

    def __init__(self, count: int, why: Stop = Stop.TIME_LIMIT) -> None:
        super().__init__()
        self.left, self.because = count, why

    def stopped(self) -> bool:
        self.left -= 1
        if self.left < 0:
            self.stop(self.because)
        return super().stopped()
