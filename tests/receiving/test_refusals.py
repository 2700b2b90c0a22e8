"""Allowances, kinds of address and refused ages at their bounds, in literal figures."""

import pytest

from app.receiving import refusals
from app.receiving.refusals import Allowance, RefusedAges, RejectionRate, kind_of, network_of
from reconcile.instants import Instant
from tests.reconcile.build import T


@pytest.mark.parametrize(
    ("per_minute", "steps", "taken"),
    [
        (2, [0, 0, 0], [True, True, False]),
        (60, [0, *[0] * 59, 0, 1, 0], [True] * 60 + [False, True, False]),
        (60, [*[0] * 60, 0.99, 0.01, 0], [True] * 60 + [False, True, False]),
        (1, [0, 59.5, 0.5, 0], [True, False, True, False]),
        (1, [0, 600, 0], [True, True, False]),
        (0, [0, 600], [False, False]),
    ],
)
def test_so_many_a_minute(per_minute: int, steps: list[float], taken: list[bool]) -> None:
    """One comes back for each part of the minute, and never more than a minute has."""
    allowance, now, answers = Allowance(per_minute, 1_000), 1_000.0, []
    for step in steps:
        now += step
        answers.append(allowance.take(now))
    assert answers == taken


def test_an_address_that_must_wait_uses_nothing_of_the_others() -> None:
    rate = RejectionRate(in_all=3, per_address=1, clock=lambda: 0.0)
    assert [rate.decide(name) for name in ("a.b", "a.b", "c.d", "1.1", "2.2", "2.2")] == [
        "kept", "too_many", "kept", "kept", "counted", "too_many",
    ]  # fmt: skip


def test_as_many_addresses_as_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the bound all are; one more, and the one that was heard longest ago is forgotten."""
    monkeypatch.setattr(refusals, "MAX_ADDRESSES", 3)
    rate = RejectionRate(in_all=99, per_address=1, clock=lambda: 0.0)
    for name in ("1.1", "2.2", "3.3", "1.1", "4.4"):
        rate.decide(name)
    assert list(rate._addresses) == ["3.3", "1.1", "4.4"]


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("255.255.255.255", "255.255.255.255"),
        ("255.255.255.2555", "none"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8::8000:0:0:1", str(0x20010DB800000000)),
        ("2001:db8:0:1::", str(0x20010DB800000001)),
        ("fe80::1%eth0", str(0xFE80000000000000)),
        ("", "none"),
        ("unix", "none"),
    ],
)
def test_the_network_of_an_address(address: str, network: str) -> None:
    assert network_of(address) == network


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("127.0.0.1", "loopback"),
        ("::1", "loopback"),
        ("::ffff:127.0.0.1", "loopback"),
        ("10.0.0.1", "private"),
        ("::ffff:10.0.0.1", "private"),
        ("fe80::1%eth0", "private"),
        ("8.8.8.8", "public"),
        ("::ffff:8.8.8.8", "public"),
        ("2a00:1450::1", "public"),
        ("", "none"),
        ("unix", "none"),
    ],
)
def test_the_kind_of_an_address(address: str, kind: str) -> None:
    assert kind_of(address) == kind


def refused(*sent: tuple[str, str, int]) -> RefusedAges:
    """Make a receiver's memory of these: source, digest, and seconds after T."""
    found = RefusedAges()
    for source, digest, after in sent:
        found.refused(source, digest=digest, at=Instant(T + after), problem=f"It is old.{after}")
    return found


def test_the_alarm_counts_each_source_and_tells_the_latest() -> None:
    """By source, in their order; a source with too few is not among them."""
    found = refused(
        *[("till", name, 1) for name in "aab"],
        *[("shop", name, at) for name, at in (("a", 3), ("b", 2), ("c", 2), ("a", 9))],
        *[("other", name, 99) for name in "ab"],
    )
    alarm = found.alarm(Instant(T + 99))
    assert alarm is not None
    assert alarm.reason == "deliveries_refused_for_age"
    assert alarm.sentence.startswith(
        "7 genuine deliveries were refused because of their age (4 of shop, "
    )
    assert "3 of till)" in alarm.sentence
    assert "Reason of the latest refusal: It is old.9: set" in alarm.sentence
    assert "other" not in alarm.sentence


def test_bodies_that_are_remembered_of_a_source() -> None:
    """A hundred; the one that was refused longest ago goes, be it the first that came or not."""
    many = [("shop", str(n), 0) for n in range(100)]
    found = refused(*many, ("shop", "0", 0))
    assert len(found._sources["shop"]) == 100
    found.refused("shop", digest="new", at=T, problem="")
    assert (list(found._sources["shop"])[:2], len(found._sources["shop"])) == (["2", "3"], 100)
    assert found._sources["shop"]["0"].times == 2
