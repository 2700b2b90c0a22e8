"""Limits on connections: in all, of one address, and in time."""

from dataclasses import dataclass

import pytest

from app.receiving.connection_limits import ConnectionLimits, GateLimits


@dataclass(eq=False, slots=True)
class Connection:
    """One that is overdue from a moment on."""

    ends: float = 1e9
    aborted: int = 0

    def overdue(self, now: float) -> str | None:
        """Return the reason, once it is overdue."""
        return "receive_deadline" if now >= self.ends else None

    def abort(self) -> None:
        """Count the call."""
        self.aborted += 1


def gate(*, connections: int = 100, per_address: int = 100) -> ConnectionLimits:
    """Limits with one network of proxies."""
    return ConnectionLimits(
        GateLimits(
            receive_deadline_s=1,
            send_deadline_s=1,
            connections=connections,
            per_address=per_address,
            max_head_bytes=1,
            proxies=["10.0.0.0/8", "2001:db8::1"],
        )
    )


def test_as_many_as_there_may_be_in_all() -> None:
    """One more is refused, and counted; where one leaves there is room for one, and no more."""
    limits = gate(connections=2)
    first, second, third = Connection(), Connection(), Connection()
    assert [limits.admits(each, "") for each in (first, second, third)] == [True, True, False]
    assert limits.refused == {"too_many_connections": 1}
    limits.leaves(third)  # it never came in
    assert not limits.admits(third, "")
    limits.leaves(first)
    limits.leaves(first)
    assert [limits.admits(each, "") for each in (third, first)] == [True, False]
    assert (set(limits.open), limits.refused) == ({second, third}, {"too_many_connections": 3})


@pytest.mark.parametrize(
    ("address", "other", "let_in"),
    [
        ("192.0.2.1", "192.0.2.1", False),
        ("192.0.2.1", "192.0.2.2", True),
        ("2001:db8:1::1", "2001:db8:1::2", False),
        ("2001:db8:1::1", "2001:db8:2::1", True),
        ("10.1.2.3", "10.1.2.3", True),
        ("2001:db8::1", "2001:db8::1", True),
        ("", "", False),
        ("unix:", "unix:", False),
    ],
)
def test_as_many_as_one_address_may_have(address: str, other: str, let_in: bool) -> None:
    """A network of IPv6 is one address; proxies speak for everybody, and have no such bound."""
    limits = gate(per_address=2)
    here = [Connection(), Connection()]
    assert all(limits.admits(each, address) for each in here)
    assert limits.admits(Connection(), other) is let_in
    assert limits.refused == ({} if let_in else {"too_many_of_one_address": 1})
    limits.leaves(here[0])
    assert limits.admits(Connection(), address)


def test_an_address_that_has_left_is_not_remembered() -> None:
    limits = gate(per_address=1)
    for number in range(9):
        one = Connection()
        assert limits.admits(one, f"192.0.2.{number}")
        limits.leaves(one)
    assert not limits._of_address


def test_who_takes_too_long_is_closed_and_counted() -> None:
    """At the moment and after it, each by its own; who has left is not looked at."""
    limits = gate()
    early, late, gone = Connection(5), Connection(7), Connection(5)
    for each in (early, late, gone):
        limits.admits(each, "")
    limits.leaves(gone)
    for now, closed in ((4.9, (0, 0)), (5, (1, 0)), (7, (2, 1))):
        limits.sweep(now)
        assert (early.aborted, late.aborted) == closed
    assert (gone.aborted, limits.refused) == (0, {"receive_deadline": 3})
