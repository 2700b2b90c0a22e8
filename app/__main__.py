"""`tallyhook`, the same as `python -m app`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line."""
    from app.cli.main import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
