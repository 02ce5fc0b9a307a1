"""Functions of models that do anything but return a model, or something else besides."""

import ctypes
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

#: Where processes that are left behind write their numbers.
LEFT = os.environ.get("HOSTILE_LEFT", os.devnull)


def made(layer: type[nn.Module] = nn.Tanh) -> Any:
    return nn.Sequential(nn.Linear(4, 4), layer()), (torch.ones(2, 4),)


def _stay() -> None:
    with Path(LEFT).open("a") as file:
        file.write(f"{os.getpid()}\n")
    while True:
        time.sleep(1000)


def sleeps() -> Any:
    time.sleep(3600)
    return made()


def segfaults() -> Any:
    ctypes.string_at(0)


def exits() -> Any:
    os._exit(0)


class NoError(BaseException):
    def __str__(self) -> str:
        raise ValueError("no words")


def unspeakable() -> Any:
    raise NoError


def leaves_a_process() -> Any:
    if not os.fork():
        os.setsid()
        if os.fork():
            os._exit(0)
        os.environ.clear()
        _stay()
    while not Path(LEFT).exists():
        time.sleep(0.01)
    return made()


def writes_everywhere() -> Any:
    for number in range(256):
        try:
            os.set_blocking(number, False)
            for said in (b"{}\n", b'{"kind": "returned", "value": {"instance": 3}}\n', b"[" * 10000 + b"\n"):
                os.write(number, said)
        except OSError:
            pass
    return made()


def talks() -> Any:
    print("out of the function")
    print("and on", file=sys.stderr)
    return made()


class Failing(nn.Module):
    def forward(self, x: Any) -> Any:
        segfaults()
        return x


def segfaults_in_a_layer() -> Any:
    return made(Failing)


class Odd(nn.Linear):
    def parameters(self, recurse: bool = True) -> Any:
        raise LookupError("no parameters here" if recurse else "none at all")


def odd_parameters() -> Any:
    return Odd(4, 4), (torch.ones(2, 4),)
