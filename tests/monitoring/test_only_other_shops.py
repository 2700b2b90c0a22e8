"""The alarm about sources that bring only payments of other shops."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.monitoring import watchdog
from app.monitoring.watchdog import WATCHES, Watched
from app.receiving.source_state import SourceState, SourceWord

(LOOK,) = (each.look for each in WATCHES if each.name == "not_ours")


@pytest.mark.parametrize(("word", "raised"), [("not_ours", True), ("not_placed", False)])
async def test_a_source_of_other_shops_alone_raises_an_alarm(
    monkeypatch: pytest.MonkeyPatch, word: SourceWord, raised: bool
) -> None:
    async def states(context: Any) -> list[SourceState]:
        return [
            SourceState(
                source="shop", state=word, since=None, last=None, sentence="So it is.", do="look"
            )
        ]

    monkeypatch.setattr(watchdog, "source_states", states)
    alarm = await LOOK(cast(Watched, SimpleNamespace(context=None)))
    assert (alarm is not None) is raised
    assert alarm is None or alarm.sentence == "Source shop: So it is. In each case, look."
