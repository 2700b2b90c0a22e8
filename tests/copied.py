"""What many tests begin with is made once in a process, and copied for each of them.

To send, read and fold a few deliveries takes longer than most of what is tested afterwards. What
ended may be begun again elsewhere, as a backup may: so a service that begins on a copy is in no
other state than one that goes on.
"""

from __future__ import annotations

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
    """Put into the folder what `make(folder, *given)` leaves there, and say what it returned: both
    are those of its first call. Nothing of it may name the folder."""
    source, made = _once(make, *given)
    copytree(source, folder, dirs_exist_ok=True)
    return made  # type: ignore[no-any-return]


@cache
def _once(make: Callable[..., Coroutine[Any, Any, Any]], *given: Any) -> tuple[Path, Any]:
    folder = Path(tempfile.mkdtemp(dir=memory(), prefix="tallyhook-made-"))
    atexit.register(rmtree, folder, ignore_errors=True)
    with ThreadPoolExecutor(1) as elsewhere:  # whoever asks may have a loop of his own
        return folder, elsewhere.submit(asyncio.run, make(folder, *given)).result()
