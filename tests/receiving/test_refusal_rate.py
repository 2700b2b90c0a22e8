"""Allowances of rejections: for each address, for all, and bounded in memory."""

from collections import Counter

import pytest

from app.receiving.refusals import MAX_ADDRESSES, RejectionRate, network_of


class Clock:
    """Seconds that stand still until they are moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def decisions(rate: RejectionRate, address: str, times: int) -> Counter[str]:
    """Count the decisions about so many rejections from one address."""
    return Counter(rate.decide(address) for _ in range(times))


def test_an_address_has_its_allowance_and_gets_it_back_with_time() -> None:
    clock = Clock()
    rate = RejectionRate(in_all=1000, per_address=60, clock=clock)
    assert decisions(rate, "192.0.2.1", 70) == {"kept": 60, "too_many": 10}
    assert decisions(rate, "192.0.2.2", 5) == {"kept": 5}
    clock.now += 10
    assert decisions(rate, "192.0.2.1", 70) == {"kept": 10, "too_many": 60}
    clock.now += 3600
    assert decisions(rate, "192.0.2.1", 70) == {"kept": 60, "too_many": 10}


def test_all_addresses_together_have_one_and_nobody_waits_for_it() -> None:
    clock = Clock()
    rate = RejectionRate(in_all=100, per_address=10, clock=clock)
    seen = Counter(rate.decide(f"192.0.2.{n % 50}") for n in range(400))
    assert seen == {"kept": 100, "counted": 400 - 100}
    clock.now += 60
    assert Counter(rate.decide(f"198.51.100.{n}") for n in range(200))["kept"] == 100


def test_ever_new_addresses_take_no_more_memory_and_no_more_than_the_common_allowance() -> None:
    rate = RejectionRate(in_all=50, per_address=10, clock=Clock())
    seen = Counter(
        rate.decide(f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}") for n in range(MAX_ADDRESSES * 3)
    )
    assert seen["kept"] == 50
    assert len(rate._addresses) == MAX_ADDRESSES


def test_an_address_that_goes_on_is_not_forgotten_for_new_ones() -> None:
    rate = RejectionRate(in_all=10**6, per_address=10, clock=Clock())
    decisions(rate, "192.0.2.1", 10)
    for n in range(MAX_ADDRESSES * 2):
        rate.decide(f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}")
        assert rate.decide("192.0.2.1") == "too_many"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("192.0.2.1", "192.0.2.2", False),
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::2%eth1", True),
        ("unknown", "_hidden", True),
        ("x" * 10_000, "", True),
        ("1.2.3.4" * 1000, "unknown", True),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("::ffff:192.0.2.1", "::ffff:192.0.2.2", False),
    ],
)
def test_whose_allowance_an_address_uses(one: str, other: str, same: bool) -> None:
    assert (network_of(one) == network_of(other)) is same
