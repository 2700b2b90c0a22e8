"""Has an order's evidence bundle built by a process of its own (`tallyhook evidence build`): it
reads and proves all that came of an order, and deliveries are acknowledged meanwhile."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Final

from app.core.errors import NotFoundError, StoreUnavailable, UnreachableError, UsageError
from app.core.process import BY_OWN
from reconcile.instants import Instant, format_instant

BUILD_S: Final = 120.0
"""Seconds that a bundle may take; one of an order with twenty deliveries takes two, its process's
start among them."""

SAID_MAX: Final = 1_000
"""Characters of what the process says that are told."""


async def build_bundle(order: str, file: Path, *, as_of: Instant | None, token: str) -> None:
    """Build it, redacted, in the name of the operator whose own token this is, into a new file.

    Raises NotFoundError where nobody has spoken of the order, UsageError with a sentence for what
    cannot be built, StoreUnavailable and UnreachableError where it could not be this time.
    """
    dated = () if as_of is None else ("--as-of", format_instant(as_of))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "app", "evidence", "build"),
        *("--output", str(file), *dated, "--", order),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env={
            **os.environ,
            BY_OWN: token,
        },  # not among its words, which the machine's users can list
    )
    try:
        async with asyncio.timeout(BUILD_S):
            _, said = await process.communicate()
    except TimeoutError:
        raise UnreachableError(f"the bundle was not built within {BUILD_S:.0f} s") from None
    finally:
        if process.returncode is None:  # too slow, or whoever asked has hung up
            process.kill()
            await process.wait()
    if process.returncode == 0:
        return
    if process.returncode == NotFoundError.exit_code:
        raise NotFoundError(order)
    if process.returncode == UsageError.exit_code:
        raise UsageError(_sentence(said))
    raise StoreUnavailable(f"the bundle was not built (exit code {process.returncode})")


def _sentence(said: bytes) -> str:
    """The last line that was said, without the word in front."""
    lines = said.decode("utf-8", "replace").strip().splitlines() or ["it cannot be built"]
    return lines[-1].removeprefix("tallyhook: ")[:SAID_MAX]
