"""The second half of the worlds: a file of its own, so that another core can live through them."""

from __future__ import annotations

import io

import pytest

from tests.simulation.test_simulation import AT_ONCE, GATE, every_promise_is_kept


@pytest.mark.slow
@pytest.mark.parametrize("first", range(GATE // 2, GATE, AT_ONCE))
def test_every_promise_is_kept_in_every_further_world(first: int, log: io.StringIO) -> None:
    """Whatever is lost, doubled, delayed, killed or cut off: all ends as the provider knows it."""
    every_promise_is_kept(first, log)
