"""A network that loses, delays and reorders packets: another namespace behind a router of ours.

Two TUN devices, one of them moved into a network namespace. A thread reads the packets of each,
drops some, and writes the rest to the other after a random delay. It needs root, `ip` and
/dev/net/tun.
"""

import fcntl
import heapq
import os
import random
import select
import shutil
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Final

import pytest

_TUN: Final = Path("/dev/net/tun")

needs_namespaces = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("ip") is None or not _TUN.exists(),
    reason="it takes root, `ip` (iproute2) and /dev/net/tun to make a network",
)

SET_NAME: Final = 0x400454CA
"""The kernel's TUNSETIFF."""

PACKETS_ALONE: Final = 0x0001 | 0x1000
"""IFF_TUN and IFF_NO_PI: packets of IP, without a head of the device's own."""


class Network:
    """The other end: `inside` are words before a command that runs there, `host` is its address.

    loss     share of packets that are dropped, each way; it can be changed at any time
    delay_s  the longest delay of a packet; each has its own, so packets overtake each other
    """

    def __init__(self, inside: tuple[str, ...], host: str, loss: float, delay_s: float) -> None:
        self.inside, self.host, self.loss, self.delay_s = inside, host, loss, delay_s
        self.carried = self.dropped = 0

    def route(self, one: int, other: int, ended: threading.Event) -> None:
        """Carry packets between two devices until the end."""
        chance, order = random.Random(7), count()
        waiting: list[tuple[float, int, int, bytes]] = []
        to = {one: other, other: one}
        while not ended.is_set():
            soonest = waiting[0][0] - time.monotonic() if waiting else 0.05
            for device in select.select([one, other], [], [], max(0.0, min(soonest, 0.05)))[0]:
                packet = os.read(device, 65_536)
                if chance.random() < self.loss:
                    self.dropped += 1
                    continue
                due = time.monotonic() + chance.random() * self.delay_s
                heapq.heappush(waiting, (due, next(order), to[device], packet))
            while waiting and waiting[0][0] <= time.monotonic():
                os.write(waiting[0][2], heapq.heappop(waiting)[3])
                self.carried += 1


@contextmanager
def network(*, loss: float, delay_s: float) -> Iterator[Network]:
    """Make a namespace and the way to it, until the block ends. Skips where the machine forbids."""
    mark = f"{os.getpid() % 100_000:05}"
    name, number = f"tallyhook-{mark}", os.getpid() % 16_000 * 4
    addresses = [
        f"10.{77 + number // 65_536}.{number // 256 % 256}.{number % 256 + n}" for n in (1, 2)
    ]
    inside = ("ip", "netns", "exec", name)
    devices = [_device(f"th{end}{mark}") for end in "ab"]
    try:
        _ip("netns", "add", name)
        _ip("link", "set", f"thb{mark}", "netns", name)
        for end, address, within in zip("ab", addresses, ((), ("-n", name)), strict=True):
            _ip(*within, "addr", "add", f"{address}/30", "dev", f"th{end}{mark}")
            _ip(*within, "link", "set", f"th{end}{mark}", "up")
        _ip("-n", name, "link", "set", "lo", "up")
        there = Network(inside, addresses[1], loss, delay_s)
        ended = threading.Event()
        router = threading.Thread(target=there.route, args=(*devices, ended))
        router.start()
        try:
            yield there
        finally:
            ended.set()
            router.join()
    finally:
        for device in devices:
            os.close(device)
        subprocess.run(["ip", "netns", "del", name], check=False, stderr=subprocess.DEVNULL)


def _device(name: str) -> int:
    device = os.open(_TUN, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.ioctl(device, SET_NAME, struct.pack("16sH", name.encode(), PACKETS_ALONE))
    except OSError as error:
        os.close(device)
        pytest.skip(f"this machine allows no network of its own: {error.strerror}")
    return device


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"this machine allows no network of its own: {done.stderr.strip()}")
