"""Make once per process what many tests begin with, and copy it for each of them.

Sending, reading and folding a few deliveries takes longer than most of what is tested after it.
A service that begins on a copy is in the same state as one that goes on: a copy of a closed
database is a backup, which may be used elsewhere.
"""

import asyncio
import atexit
import tempfile
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any, TypeVar

from tests.memory import memory

Made = TypeVar("Made")


def copy_of(make: Callable[..., Coroutine[Any, Any, Made]], folder: Path, *given: Any) -> Made:
    """Copy into the folder what the first call of `make(folder, *given)` left there.

    Returns what that call returned. Nothing that was made may contain the folder's name.
    """
    source, made = _once(make, *given)
    copytree(source, folder, dirs_exist_ok=True)
    return made  # type: ignore[no-any-return]


@cache
def _once(make: Callable[..., Coroutine[Any, Any, Any]], *given: Any) -> tuple[Path, Any]:
    folder = Path(tempfile.mkdtemp(dir=memory(), prefix="tallyhook-made-"))
    atexit.register(rmtree, folder, ignore_errors=True)
    with ThreadPoolExecutor(1) as elsewhere:  # the caller's thread may have a running loop
        return folder, elsewhere.submit(asyncio.run, make(folder, *given)).result()
