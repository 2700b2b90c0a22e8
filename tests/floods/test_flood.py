"""A flood of unsigned requests and slow clients stops no genuine delivery and fills nothing."""

from pathlib import Path

import pytest

from tests.floods.flood import RING_BYTES, Flooded, flood
from tests.forking import start

MIB = 1024 * 1024


def check(flooded: Flooded, *, per_address: int = 600) -> None:
    """Check what holds of every flood."""
    print(flooded)
    assert flooded.flooded.sent > 0
    assert flooded.flooded.acknowledged == flooded.flooded.sent
    assert flooded.slow_left == dict.fromkeys(flooded.slow_left, 0)
    assert flooded.grown_mib <= 20
    kept, size = flooded.rejections
    minutes = 2 + flooded.seconds // 60
    assert 0 < kept <= per_address * minutes
    assert size <= RING_BYTES
    assert flooded.log <= flooded.log_bound


@pytest.mark.slow
def test_some_unsigned_requests_and_slow_clients(tmp_path: Path) -> None:
    """The slow ones have four seconds in place of the usual ten."""
    soon = dict.fromkeys(("RECEIVE_DEADLINE_S", "SEND_DEADLINE_S"), "4")
    check(flood(tmp_path, unsigned=700, slow=40, rate=50, warm_s=1.5, start=start, **soon))


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_a_hundred_thousand_unsigned_requests_and_a_thousand_slow_clients(tmp_path: Path) -> None:
    check(flood(tmp_path, unsigned=100_000, slow=1_000, rate=100))
