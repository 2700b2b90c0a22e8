"""Errors of a driver, where only its own exception says what failed."""

import ssl
from pathlib import Path

import asyncpg
import pytest
from sqlalchemy.exc import DBAPIError

from app.core.errors import StoreUnavailable
from app.database.engine import hosts_of, reading_engine
from app.database.faults import as_store_error, driver_errors, is_not_there_yet


@pytest.mark.parametrize("named", [False, True])
async def test_a_missing_file_of_authorities_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("PGSSLROOTCERT", raising=False)
    if named:
        monkeypatch.setenv("PGSSLROOTCERT", str(tmp_path / "none.crt"))
    url = "postgresql+asyncpg://u:p@127.0.0.1:1/d?ssl=verify-full"
    engine = reading_engine(url, hosts=hosts_of(url))
    with pytest.raises(driver_errors()) as refused:
        await engine.connect()
    assert "PGSSLROOTCERT" in str(as_store_error(refused.value))


def test_an_untrusted_certificate_is_reported() -> None:
    """A start does not wait for that server."""
    error = as_store_error(ssl.SSLCertVerificationError("self-signed"))
    assert "certificate is not trusted" in str(error)
    assert str(as_store_error(ConnectionRefusedError())).startswith("the database does not answer")
    for cause, waits in ((ssl.SSLCertVerificationError(), False), (ConnectionRefusedError(), True)):
        told = as_store_error(cause)
        assert told is not None
        told.__cause__ = cause
        assert is_not_there_yet(told) is waits  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("cause", "waits"),
    [
        (asyncpg.TooManyConnectionsError("too many clients already"), True),
        (asyncpg.TargetServerAttributeNotMatched("none of the hosts match"), True),
        (asyncpg.ReadOnlySQLTransactionError("cannot execute INSERT"), False),
        (asyncpg.IdleInTransactionSessionTimeoutError("terminating connection"), False),
        (asyncpg.ConnectionDoesNotExistError("connection was closed"), True),
        (asyncpg.ProtocolViolationError("unsupported startup parameter: jit"), False),
        (asyncpg.InternalServerError("node is not a writer any more"), False),
        (asyncpg.InternalClientError("got result for unknown protocol state"), True),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_start_waits_for_a_server_that_is_full_or_no_primary_yet(
    cause: Exception, waits: bool
) -> None:
    told = as_store_error(cause)
    assert told is not None
    told.__cause__ = cause
    assert is_not_there_yet(told) is waits  # type: ignore[arg-type]
    assert ("takes no writes" in str(told)) is (type(cause) is asyncpg.ReadOnlySQLTransactionError)


@pytest.mark.parametrize(
    ("cause", "begins", "reason"),
    [
        (asyncpg.DiskFullError("could not extend file"), "the disk of the database server", "disk"),
        (asyncpg.TooManyConnectionsError("too many"), "the server has no free", "database"),
        (asyncpg.OutOfMemoryError("out of memory"), "the server is out of memory", "database"),
        (asyncpg.ProtocolViolationError("unsupported startup parameter"), "a pooler", "database"),
        (asyncpg.DuplicatePreparedStatementError("exists already"), "a pooler", "database"),
        (asyncpg.InvalidSQLStatementNameError("does not exist"), "a pooler", "database"),
        (asyncpg.InsufficientPrivilegeError("denied"), "the user of TALLYHOOK_DATA", "database"),
        (asyncpg.InvalidPasswordError("failed"), "the server does not accept", "database"),
        (asyncpg.LockNotAvailableError("lock timeout"), "the database is busy", "busy"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_what_a_server_lacks_is_named(cause: Exception, begins: str, reason: str) -> None:
    told = as_store_error(cause)
    assert isinstance(told, StoreUnavailable)
    assert (str(told).startswith(begins), told.reason) == (True, reason)


@pytest.mark.parametrize(
    ("cause", "confused"),
    [
        (asyncpg.InternalClientError("cannot switch to state 12; another operation (2) is"), True),
        (
            asyncpg.InterfaceError("cannot perform operation: another operation is in progress"),
            True,
        ),
        (asyncpg.InterfaceError("the server expects 2 arguments for this query, 1 passed"), False),
    ],
)
def test_a_driver_that_is_confused_by_a_server_that_ended_is_no_fault_of_ours(
    cause: Exception, confused: bool
) -> None:
    """SQLAlchemy takes its connection for a good one. It is given up, and the service goes on."""
    found = as_store_error(DBAPIError("SELECT 1", None, cause))
    assert isinstance(found, StoreUnavailable) is confused
