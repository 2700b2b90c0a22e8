"""`tallyhook`, the same as `python -m app`."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command line."""
    from app.core.process import forbid_core_dumps, look_seldom

    forbid_core_dumps()  # before any secret is read
    look_seldom()
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by who called
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115  # for the whole run
    try:
        from app.cli.main import run
    except KeyboardInterrupt:  # `run` sees to it from here on
        sys.exit(130)
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
