"""Models for `planner run --model`: small, float64 so that a wrong gradient shows, and each traced within seconds."""

import os
import signal
import socket
import time

import torch
from torch import nn

WIDTH, WORDS, LENGTH = 8, 17, 5
PARENT = os.getpid()


class Block(nn.Module):
    """Attention and a two-layer perceptron, each behind a normalisation and around which its input goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.queries, self.keys, self.values = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.wide, self.narrow = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        q, k, v = self.queries(y), self.keys(y), self.values(y)
        causal = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
        weights = (q @ k.transpose(1, 2)).masked_fill(~causal, -1e9).softmax(-1)
        x = x + weights @ v
        return x + self.narrow(torch.tanh(self.wide(self.second(x))))


class Language(nn.Module):
    """Token and position embeddings, blocks, a head; ``tied``: with the weights of the token embedding."""

    def __init__(self, blocks: int = 3, tied: bool = False, dropout: float = 0.0) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(blocks))
        self.drop = nn.Dropout(dropout)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        if tied:
            self.head.weight = self.words.weight

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.drop(self.words(words) + self.places(torch.arange(words.shape[1])))
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Writing(nn.Module):
    """Layers that write into their inputs and slices of them; ``flat``: and into another view."""

    def __init__(self, flat: bool) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Sequential(nn.ReLU(inplace=True), nn.BatchNorm1d(4))
        self.flat = flat

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        x = self.second(x) + x
        x[:, 0].mul_(2)
        x[1:, 2] = x[0, 3]
        if self.flat:
            x.view(-1).mul_(2)
        return x.mul_(3) * x


class Choice(nn.Linear):
    """The two largest outputs of a linear layer, and which these are."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return super().forward(x).topk(2)


class Mixed(nn.Linear):
    """A linear layer of values, weighed by whole numbers."""

    def forward(self, values: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        return super().forward(values) * chosen


class Routed(nn.Module):
    """A choice whose whole numbers, which have no gradient, go to the layer behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Choice(4, 4), Mixed(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(*self.first(x))


class Skips(nn.Module):
    """Linear layers, to all of which the output of the first one goes; two have the same weights."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(6))
        self.layers[4].weight = self.layers[2].weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = x = self.layers[0](x)
        for layer in self.layers[1:]:
            x = torch.tanh(layer(x)) + first
        return x


Example = tuple[nn.Module, tuple[torch.Tensor, ...]]


def words() -> tuple[torch.Tensor]:
    return (torch.randint(WORDS, (2, LENGTH)),)


def language() -> Example:
    return Language().double(), words()


def writing() -> Example:
    return Writing(False).double(), (torch.randn(5, 4).double(),)


def writing_flat() -> Example:
    return Writing(True).double(), (torch.randn(5, 4).double(),)


def routed() -> Example:
    return Routed().double(), (torch.randn(5, 4).double(),)


def skips() -> Example:
    return Skips().double(), (torch.randn(5, 4).double(),)


def tied() -> Example:
    return Language(tied=True).double(), words()


def branches() -> tuple[nn.Module, dict[str, torch.Tensor]]:
    inputs = {"sounds": torch.randn(2, 1, 4), "pictures": torch.randn(2, 3, 4, 4), "words": words()[0]}
    return Branches().double(), {name: each if name == "words" else each.double() for name, each in inputs.items()}


def single() -> Example:
    return Language(), words()


def dropping() -> tuple[nn.Module, dict[str, torch.Tensor]]:
    return Language(dropout=0.5).double(), {"words": words()[0]}


def untraceable() -> Example:
    class Branch(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.weight if (x * self.weight).sum() > 0 else x

    return Branch(), (torch.ones(3),)


class Factored(nn.Linear):
    """What torch.export can trace, and no data can run: a root of a matrix that has none."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.cholesky(-torch.eye(4, dtype=x.dtype) - super().forward(x).square().sum())


def unrunnable() -> Example:
    return nn.Sequential(Factored(4, 4)).double(), (torch.randn(4, 4).double(),)


def failing() -> Example:
    raise RuntimeError("no weights")


def number() -> int:
    return 5


class Joined(nn.Linear):
    """A linear layer of several inputs, each averaged over its second dimension."""

    def forward(self, *parts: torch.Tensor) -> torch.Tensor:
        return torch.relu(super().forward(torch.cat([part.mean(1) for part in parts], 1)))


class Branches(nn.Module):
    """Words, pictures and sounds, each through layers of its own, joined by layers behind them."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Sequential(nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Tanh())
        self.pictures = nn.Sequential(nn.Conv2d(3, WIDTH, 2, 2), nn.Tanh(), nn.Flatten(2), nn.Linear(4, WIDTH))
        self.sounds = nn.Sequential(nn.Linear(4, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))
        self.join = Joined(3 * WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, 3)

    def forward(self, words: torch.Tensor, pictures: torch.Tensor, sounds: torch.Tensor) -> dict[str, torch.Tensor]:
        joined = self.join(self.words(words), self.pictures(pictures), self.sounds(sounds))
        return {"loss": self.head(joined).square().mean(), "joined": joined}


class Watched(nn.Module):
    """A language model whose last layer does something to the process that runs it, where that is no parent."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.inner, self.what = Language().double(), what

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return torch.ops.small_models.act(self.inner(words), self.what)


def _listening() -> list[str]:
    """The addresses beyond the loopback on which this process listens."""
    own = {
        os.readlink(f"/proc/self/fd/{name}")
        for name in os.listdir("/proc/self/fd")
        if os.path.islink(f"/proc/self/fd/{name}")
    }
    found = []
    for kind, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        with open(f"/proc/self/net/{kind}") as table:
            rows = [line.split() for line in table.readlines()[1:]]
        for row in rows:
            raw = bytes.fromhex(row[1].partition(":")[0])
            words_ = b"".join(raw[i : i + 4][::-1] for i in range(0, len(raw), 4))
            address = socket.inet_ntop(family, words_)
            is_loopback = address in ("127.0.0.1", "::1", "::ffff:127.0.0.1")
            if row[3] == "0A" and f"socket:[{row[9]}]" in own and not is_loopback:
                found.append(address)
    return found


@torch.library.custom_op("small_models::act", mutates_args=())
def act(x: torch.Tensor, what: str) -> torch.Tensor:
    if os.getpid() != PARENT:
        if what == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if what == "hang":
            time.sleep(3600)
        if what == "raise":
            raise ValueError("out of paper")
        if what == "listen" and _listening():
            raise ValueError(f"listens on {_listening()}")
    return x.clone()


act.register_fake(lambda x, _: torch.empty_like(x))
act.register_autograd(lambda _, gradient: (gradient, None))


def on_gpu() -> Example:
    return nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)).double().cuda(), (torch.randn(5, 8).double().cuda(),)


def dies() -> Example:
    return Watched("die"), words()


def hangs() -> Example:
    return Watched("hang"), words()


def raises() -> Example:
    return Watched("raise"), words()


def listens() -> Example:
    return Watched("listen"), words()
