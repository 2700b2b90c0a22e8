"""Check the database's URL. It must name an SQLite file or a PostgreSQL server, and the driver."""

from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

SQLITE: Final = "sqlite+aiosqlite"
POSTGRESQL: Final = "postgresql+asyncpg"

OPTIONS: Final = frozenset(
    {"host", "port", "target_session_attrs", "ssl", "user", "password", "passfile", "service",
     "servicefile", "krbsrvname", "gsslib", "prepared_statement_cache_size",
     "direct_tls"}
)  # fmt: skip
"""URL options that the PostgreSQL driver accepts. The option `ssl` is called `sslmode` in other
programs."""

MODES: Final = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")


def database_url(value: Any) -> Any:
    """Return the database's URL if it names an SQLite file or a PostgreSQL server.

    Raises ValueError with what to write instead. SQLite in memory is refused, because it would lose
    acknowledged deliveries.
    """
    if not isinstance(value, str):
        return value
    scheme, colon, rest = value.strip().partition("://")
    family = scheme.partition("+")[0]
    if family == "sqlite" and scheme != SQLITE:
        raise ValueError(f"must begin with {SQLITE}:// instead of {_known(scheme)}")
    if family in ("postgres", "postgresql") and scheme != POSTGRESQL:
        raise ValueError(f"must begin with {POSTGRESQL}:// instead of {_known(scheme)}")
    if not colon or scheme not in (SQLITE, POSTGRESQL):
        raise ValueError(f"must begin with {SQLITE}:/// and a path, or {POSTGRESQL}://")
    if scheme == SQLITE:
        _check_sqlite_path(rest)
    else:
        _check_server(value.strip())
    return value.strip()


def _known(scheme: str) -> str:
    """Return a URL's scheme for a message. A text that may contain a secret is replaced with
    neutral words."""
    plain = scheme.replace("+", "").replace("_", "")
    return f"{scheme}://" if plain.isalnum() and len(scheme) <= 24 else "what is there"


def _check_sqlite_path(rest: str) -> None:
    path, _, query = rest.partition("?")
    if not path.startswith("/"):
        raise ValueError(f"must have three slashes before a path: {SQLITE}:///var/tallyhook.db")
    if path == "/" or ":memory:" in path or "mode=memory" in query:
        raise ValueError(
            "must be a file, because a database in memory loses acknowledged deliveries; write "
            f"{SQLITE}:///var/tallyhook.db"
        )
    if query:
        raise ValueError(
            "must not have options after a question mark: they can turn off locks and syncing"
        )


def _check_server(value: str) -> None:
    try:
        parts = urlsplit(value)
        _ = parts.port
        # The driver ends a password at its first "@": the rest would name another server. A user's
        # name may have one.
        password = parts.netloc.partition(":")[2].rpartition("@")[0]
        if parts.fragment or "@" in password + parts.path:
            raise ValueError
    except ValueError:
        raise ValueError(
            "is not a URL; write special characters in it as %XX and the port as a number"
        ) from None
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if "sslmode" in options:
        raise ValueError("must use ssl= instead of sslmode=, as in ?ssl=verify-full")
    if options.keys() - OPTIONS:
        known = "host, port, ssl and target_session_attrs"
        raise ValueError(
            f"has an unknown option after its question mark; the only options are {known}"
        )
    if options.get("ssl", "prefer").replace("_", "-") not in MODES:
        raise ValueError(f"must have one of these values after ssl=: {', '.join(MODES)}")


def sqlite_file(url: str) -> Path | None:
    """Return the path of the file that an SQLite URL names. Return None for another database."""
    scheme, _, rest = url.partition("://")
    return Path(unquote(rest.partition("?")[0][1:])) if scheme.startswith("sqlite") else None
