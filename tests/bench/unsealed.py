"""The service as it would be without a log: nothing is marked, and nothing is sealed.

`python -m tests.bench.unsealed PORT`. What sealing costs is measured beside it.
"""

from __future__ import annotations

import sys
from typing import Any

from app import bootstrap
from app.cli.main import run
from app.store.arrivals import intake


async def nobody(*given: Any) -> None:
    """No one signs."""


def nothing(*given: Any) -> Any:
    """A script without statements."""
    return iter(())


if __name__ == "__main__":
    bootstrap.signer_of = nobody  # type: ignore[assignment]
    intake.marking = nothing
    sys.exit(run(["serve", "--port", sys.argv[1]]))
