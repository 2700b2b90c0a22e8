"""Start the command `tallyhook`, which is the same as `python -m app`."""

import os
import sys


def main() -> None:
    """Run the command line `tallyhook`."""
    from app.core.process import (
        collect_garbage_rarely,
        forbid_core_dumps,
        heed_sigterm_in_container,
    )

    heed_sigterm_in_container()
    forbid_core_dumps()  # before any secret is read
    collect_garbage_rarely()
    # Closed by who called: else the next file that is opened would be a standard stream.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):  # the lowest first
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115  # for the whole run
    try:
        from app.cli.main import run
    except KeyboardInterrupt:  # `run` sees to it from here on
        sys.exit(130)
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
