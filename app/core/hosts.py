"""Check host names without resolving them."""

import ipaddress


def is_loopback(host: str) -> bool:
    """Return whether a host name or address can be reached only from this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
