"""Fuzzing of shipped profiles: no request makes one raise, or accept a changed body as genuine."""

import time
from collections import Counter
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from app.providers.profile import shipped_profiles
from app.providers.request import Incoming
from tests.providers.fuzzing import REASONS, Target, fuzz, targets
from tests.rows import for_each

SEED = 20261120
SHORT = 60
LONG = 60_000
"""Requests for each profile."""


@cache
def all_targets() -> tuple[Target, ...]:
    return tuple(targets())


def fuzzed(*, seed: int, runs: int) -> Counter[str]:
    """Fuzz every profile, and print the counts of the answers."""
    began, total = time.monotonic(), Counter[str]()
    for target in all_targets():
        total += fuzz(target, seed=seed, runs=runs)
    print(f"seed {seed}: {dict(total.most_common())} in {time.monotonic() - began:.0f} s")
    return total


def test_fuzzing_starts_from_requests_that_each_profile_accepts() -> None:
    assert [target.name for target in all_targets()] == list(shipped_profiles())
    for target in all_targets():
        source, asked = target.genuine[0]
        assert source.verify(asked.request, now=asked.now) is None, target.name


def test_a_mutated_request_is_accepted_or_refused() -> None:
    total = fuzzed(seed=SEED, runs=SHORT)
    assert total["runs"] == SHORT * len(all_targets())
    assert all(total[word] > 10 for word in ("accepted", "read", "unreadable", *REASONS))


class Broken:
    """A source with one faulty step."""

    def __init__(self, source: Any, **steps: Any) -> None:
        self._source, self._steps = source, steps

    def __getattr__(self, name: str) -> Any:
        return self._steps.get(name, getattr(self._source, name))


def fragile(incoming: Incoming, **_: Any) -> None:
    """Verify like a faulty verifier that decodes every header as text."""
    for _name, value in incoming.headers:
        value.decode("utf-8")


PLANTED: dict[str, dict[str, Any]] = {
    "raises on bytes that are no text": {"verify": fragile},
    "takes any body": {"verify": lambda *_, **__: None},
    "gives no reading": {"read": lambda *_, **__: None},
    "raises on a body": {"read": lambda incoming, **_: 1 // (len(incoming.body) % 7)},
    "acknowledges with a text": {"acknowledge": lambda *_, **__: "ok"},
}


@for_each("name", PLANTED)
def test_fuzzing_finds_a_planted_mistake(name: str) -> None:
    (target,) = (each for each in all_targets() if each.name == "stripe")
    broken = replace(
        target,
        genuine=[(Broken(source, **PLANTED[name]), asked) for source, asked in target.genuine],
    )
    assert fuzz(target, seed=SEED, runs=200)["runs"] == 200
    with pytest.raises(AssertionError, match="stripe, seed"):
        fuzz(broken, seed=SEED, runs=200)


@pytest.mark.soak
@pytest.mark.timeout(7_200)
def test_a_million_mutated_requests_are_accepted_or_refused() -> None:
    total = fuzzed(seed=SEED + 1, runs=LONG)
    assert total["runs"] > 1_000_000
