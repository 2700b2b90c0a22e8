"""From the text of one setting to its value. Every error says what would be right, never what was.

Leaves out: anything that depends on a second setting; that is app.config.checks.
"""

from __future__ import annotations

import ipaddress
import json
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

from pydantic import SecretStr

from reconcile.instants import Instant, parse_instant

_SQLITE: Final = "sqlite+aiosqlite"
_POSTGRESQL: Final = "postgresql+asyncpg"

_ANYBODY: Final = "lets any sender choose its address: name the proxies one by one"

_WIDEST: Final = {4: 8, 6: 7}
"""Bits of the widest private networks, 10.0.0.0/8 and fc00::/7; wider ones take in strangers."""


def lowered(value: Any) -> Any:
    """Text in lower case without blanks around it; anything else as it is."""
    return value.strip().lower() if isinstance(value, str) else value


_SWITCHED: Final = {"true": "on", "1": "on", "yes": "on", "false": "off", "0": "off", "no": "off"}


def switched(value: Any) -> Any:
    """`on` or `off` for what means it; anything else as it is."""
    if isinstance(value, bool):
        return "on" if value else "off"
    word = lowered(value)
    return _SWITCHED.get(word, word) if isinstance(word, str) else word


def listed(value: Any) -> Any:
    """A JSON list of texts, or texts separated by commas; a list as it is.

    Raises ValueError when the text begins as a JSON list and is not one of texts.
    """
    if not isinstance(value, str):
        return value
    if not value.lstrip().startswith("["):
        return [part.strip() for part in value.split(",")]
    try:
        parts = json.loads(value)
    except ValueError:
        parts = None
    if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
        raise ValueError('must be a JSON list of texts, such as ["newest", "older"]')
    return parts


class DatedSecret(SecretStr):
    """A secret, and when it ends: `SECRET until 2026-12-01T00:00:00Z`. `until` None: never.

    Raises ValueError for an end that is no moment of RFC 3339 in UTC.
    """

    def __init__(self, secret_value: str) -> None:
        secret, word, end = secret_value.rpartition(_UNTIL)
        super().__init__(secret if word else secret_value)
        self.until: Instant | None = _moment(end) if word else None


def secrets(value: Any) -> Any:
    """What `listed` gives, each with its end. Raises ValueError as it and DatedSecret do."""
    texts = listed(value)
    if not isinstance(texts, list | tuple):
        return texts
    return [DatedSecret(each) if isinstance(each, str) else each for each in texts]


_UNTIL: Final = " until "


def _moment(text: str) -> Instant:
    try:
        return parse_instant(text)
    except ValueError:
        raise ValueError("has a secret whose end is not like 2026-12-01T00:00:00Z") from None


def named(value: Any) -> Any:
    """A JSON object of texts; an object as it is.

    Raises ValueError for anything else.
    """
    if not isinstance(value, str):
        return value
    try:
        found = json.loads(value)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(part, str) for part in found.values()):
        raise ValueError('must be a JSON object of texts, such as {"api_key": "value"}')
    return found


def accounts(value: Any) -> Any:
    """One account's name as it is, or a JSON list of several.

    Raises ValueError where one of them is empty or has blanks around it.
    """
    if not isinstance(value, str):
        return value
    found = listed(value) if value.lstrip().startswith("[") else [value]
    if not found or any(not each or each != each.strip() for each in found):
        raise ValueError('must be an account as the events name it, or a list: ["one", "other"]')
    return found


def networks(value: Any) -> Any:
    """IP addresses or networks, none of which takes in everybody.

    Raises ValueError for anything else. Behind a proxy that is not named here, the peer's own
    address counts, which cannot be forged; `*` would let every sender choose its address.
    """
    return tuple(_network(part) for part in listed(value) if part)


def _network(text: str) -> str:
    if text == "*":
        raise ValueError(_ANYBODY)
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise ValueError(
            "must be IP addresses or networks, such as 10.0.0.5,192.168.1.0/24"
        ) from None
    if network.prefixlen < _WIDEST[network.version]:
        raise ValueError(_ANYBODY)
    # As the server in front of us reads it: a network whose host bits are set would match nobody.
    return str(network) if "/" in text else text


def base_url(value: Any) -> Any:
    """An http or https URL without a slash at its end.

    Raises ValueError when it has no host, or a user, a query or a fragment.
    """
    if not isinstance(value, str):
        return value
    parts = _split(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be a URL such as https://payments.example")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError("must be a URL without user, password, query and fragment")
    return value.strip().rstrip("/")


def endpoint_url(value: Any) -> Any:
    """An http or https URL as it is to be called, its path and query as they are.

    Raises ValueError when it has no host, or a user or a fragment.
    """
    if not isinstance(value, str):
        return value
    parts = _split(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be a URL such as https://shop.example/payments")
    if parts.username or parts.password or parts.fragment:
        raise ValueError("must be a URL without user, password and fragment")
    return value.strip()


def public_url(value: Any) -> Any:
    """The same, or nothing."""
    return value if value == "" else base_url(value)


def database_url(value: Any) -> Any:
    """The URL of a file of SQLite or of a PostgreSQL server, with the driver's name in it.

    Raises ValueError for other databases and drivers, saying what to write instead, and for an
    SQLite database in memory, where an acknowledged delivery would end with the process.
    """
    if not isinstance(value, str):
        return value
    scheme, colon, rest = value.strip().partition("://")
    family = scheme.partition("+")[0]
    if family == "sqlite" and scheme != _SQLITE:
        raise ValueError(f"must begin with {_SQLITE}:/// in place of {_known(scheme)}")
    if family in ("postgres", "postgresql") and scheme != _POSTGRESQL:
        raise ValueError(f"must begin with {_POSTGRESQL}:// in place of {_known(scheme)}")
    if not colon or scheme not in (_SQLITE, _POSTGRESQL):
        raise ValueError(f"must begin with {_SQLITE}:/// and a path, or {_POSTGRESQL}://")
    if scheme == _SQLITE:
        _check_sqlite_path(rest)
    else:
        _split(value)
    return value.strip()


def _known(scheme: str) -> str:
    """The scheme, where it is one that carries nothing secret."""
    plain = scheme.replace("+", "").replace("_", "")
    return f"{scheme}://" if plain.isalnum() and len(scheme) <= 24 else "what is there"


def _check_sqlite_path(rest: str) -> None:
    path, _, query = rest.partition("?")
    if not path.startswith("/"):
        raise ValueError(f"must have three slashes before a path: {_SQLITE}:///var/tallyhook.db")
    if path == "/" or ":memory:" in path or "mode=memory" in query:
        raise ValueError(
            "must be a file: a database in memory loses what was acknowledged,"
            f" write {_SQLITE}:///var/tallyhook.db"
        )
    if query:
        raise ValueError(
            "must end with the path: what follows a question mark can turn off locks and syncing"
        )


def _split(value: str) -> SplitResult:
    try:
        parts = urlsplit(value.strip())
        _ = parts.port
    except ValueError:
        raise ValueError(
            "is not a URL; write special characters in it as %XX and the port as a number"
        ) from None
    return parts
