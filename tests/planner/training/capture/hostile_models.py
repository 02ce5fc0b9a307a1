"""Functions of models that do anything but return a model, or something else besides."""

import ctypes
import os
import signal
import sys
import threading
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


def stubborn() -> Any:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while True:
        pass


def segfaults() -> Any:
    ctypes.string_at(0)


def exits() -> Any:
    os._exit(0)


def interrupts() -> Any:
    raise KeyboardInterrupt("mine")


class NoError(BaseException):
    def __str__(self) -> str:
        raise ValueError("no words")


def unspeakable() -> Any:
    raise NoError


def recurses() -> Any:
    return recurses()


def leaves_a_thread() -> Any:
    threading.Thread(target=_stay).start()
    return made()


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


def returns_twice() -> Any:
    os.fork()
    return made()


def ends_its_parent() -> Any:
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(3600)


def closes_everything() -> Any:
    os.closerange(0, 256)
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


class Sleeping(nn.Module):
    def forward(self, x: Any) -> Any:
        time.sleep(3600)
        return x


class Failing(nn.Module):
    def forward(self, x: Any) -> Any:
        segfaults()
        return x


class Leaving(nn.Module):
    def forward(self, x: Any) -> Any:
        raise SystemExit(x.dim())


def sleeps_in_a_layer() -> Any:
    return made(Sleeping)


def segfaults_in_a_layer() -> Any:
    return made(Failing)


def leaves_in_a_layer() -> Any:
    return made(Leaving)


class Odd(nn.Linear):
    def parameters(self, recurse: bool = True) -> Any:
        raise LookupError("no parameters here" if recurse else "none at all")


def odd_parameters() -> Any:
    return Odd(4, 4), (torch.ones(2, 4),)
