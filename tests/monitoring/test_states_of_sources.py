"""The alarms about sources by their state: only payments of other shops, or more than is kept."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.monitoring import watchdog
from app.monitoring.watchdog import WATCHES, Watched
from app.receiving.source_state import SourceState, SourceWord

LOOKS = {each.name: each.look for each in WATCHES}


@pytest.mark.parametrize("word", ["not_ours", "flooded", "not_placed"])
@pytest.mark.parametrize("name", ["not_ours", "flooded"])
async def test_a_source_in_such_a_state_raises_its_alarm(
    monkeypatch: pytest.MonkeyPatch, word: SourceWord, name: str
) -> None:
    async def states(context: Any) -> list[SourceState]:
        return [
            SourceState(
                source="shop", state=word, since=None, last=None, sentence="So it is.", do="look"
            )
        ]

    monkeypatch.setattr(watchdog, "source_states", states)
    alarm = await LOOKS[name](cast(Watched, SimpleNamespace(context=None)))
    assert (alarm is not None) is (word == name)
    assert alarm is None or alarm.sentence == "Source shop: So it is: look."
