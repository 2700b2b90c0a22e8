"""No image of this process is left on a disk when it crashes: it would hold every secret that was
read, and the customers' numbers of the deliveries under way."""

from __future__ import annotations

import resource


def forbid_core_dumps() -> None:
    """No core dump of this process or of what it starts, and no way back.

    Where `core_pattern` names a program, the kernel hands it the dump all the same and tells it of
    this limit: systemd-coredump then keeps nothing, another program may not care.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
