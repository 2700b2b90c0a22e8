"""A disk with a volatile cache, for nbdkit, which can fail and lose its power.

It runs inside nbdkit's own Python, so it uses the standard library only. Parameters: `folder`,
where files tell it what to do, and `size` in bytes. While `failing` is there, writes and flushes
fail. When `cut` appears, a random half of the unflushed data is lost, and nothing works until it is
gone.
"""

import errno
import os
import random

API_VERSION = 2
SECTOR = 4096

folder = ""
size = 0
durable = bytearray()
cached: dict[int, bytes] = {}
dark = False


def config(key: str, value: str) -> None:
    global folder, size
    if key == "folder":
        folder = value
    else:
        size = int(value)


def config_complete() -> None:
    durable.extend(bytes(size))


def thread_model() -> int:
    import nbdkit

    return int(nbdkit.THREAD_MODEL_SERIALIZE_ALL_REQUESTS)


def open(readonly: bool) -> int:
    return 1


def get_size(handle: int) -> int:
    return size


def can_flush(handle: int) -> bool:
    return True


def can_write(handle: int) -> bool:
    return True


def _told(word: str) -> bool:
    return os.path.exists(os.path.join(folder, word))


def _obey(*, writing: bool) -> None:
    global dark
    if _told("cut"):
        if not dark:
            for place in [place for place in cached if random.random() < 0.5]:
                durable[place : place + SECTOR] = cached[place]
            cached.clear()
            dark = True
        raise OSError(errno.EIO, "no power")
    dark = False
    if writing and _told("failing"):
        raise OSError(errno.EIO, "failing")


def pread(handle: int, buffer: bytearray, offset: int, flags: int) -> None:
    """Read the cache over the disk."""
    _obey(writing=False)
    end = offset + len(buffer)
    for place in range(offset - offset % SECTOR, end, SECTOR):
        content = cached.get(place) or durable[place : place + SECTOR]
        first, last = max(place, offset), min(place + SECTOR, end)
        buffer[first - offset : last - offset] = content[first - place : last - place]


def pwrite(handle: int, buffer: bytes, offset: int, flags: int) -> None:
    """Write into the cache only."""
    _obey(writing=True)
    end = offset + len(buffer)
    for place in range(offset - offset % SECTOR, end, SECTOR):
        content = bytearray(cached.get(place) or durable[place : place + SECTOR])
        first, last = max(place, offset), min(place + SECTOR, end)
        content[first - place : last - place] = buffer[first - offset : last - offset]
        cached[place] = bytes(content)


def flush(handle: int, flags: int) -> None:
    """Write all of the cache to the disk."""
    _obey(writing=True)
    for place, content in cached.items():
        durable[place : place + SECTOR] = content
    cached.clear()
