"""The service without a log: it marks and seals nothing.

`python -m tests.bench.unsealed PORT`, to measure the cost of sealing beside it."""

import os
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from app.cli.main import run
from app.receiving import append_store
from app.wiring import service, serving

_IN_CHILDREN: Final = f"""
import sys

sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from tests.bench.unsealed import plant

plant()
"""
"""What the process behind the service runs first."""


async def nobody(*given: Any) -> None:
    """Replace `signer_of`: nobody signs."""


def nothing(*given: Any) -> None:
    """Replace `mark_unsealed`: nothing is marked."""


def plant() -> None:
    """Make this process mark and seal nothing from now on."""
    # Each of these modules has the name only because it imports it, and is given another kind.
    service.open_signer = nobody  # type: ignore[assignment,attr-defined]
    serving.open_signer = nobody  # type: ignore[assignment,attr-defined]
    append_store.mark_unsealed = nothing  # type: ignore[assignment,attr-defined]


if __name__ == "__main__":
    plant()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "sitecustomize.py").write_text(_IN_CHILDREN)
        os.environ["PYTHONPATH"] = folder
        sys.exit(run(["serve", "--port", sys.argv[1]]))
