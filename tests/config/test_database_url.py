"""Addresses of a server that the driver takes: none is refused before it is asked."""

import pytest

from app.config.database_url import database_url

SERVER = "postgresql+asyncpg://"


@pytest.mark.parametrize("rest", [
    "u:p%40w@h/d",
    "user@server:p@h/d",
    "u:p@[::1]:5432/d",
    "/d?host=/run/postgresql",
    "u:p@a,b/d?target_session_attrs=read-write",
    "h/d?ssl=verify_full",
    "h/d?ssl=verify-ca&direct_tls=true",
])  # fmt: skip
def test_what_the_driver_takes_is_taken(rest: str) -> None:
    assert database_url(SERVER + rest) == SERVER + rest
