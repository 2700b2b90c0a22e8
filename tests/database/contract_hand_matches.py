"""Contract of every database for matches by hand: made once, taken back, dated."""

from dataclasses import replace

import pytest

from app.access.operator_store import audit_entries
from app.core.errors import UsageError
from app.finance.break_acts import match_lines, unmatch_break
from app.finance.break_store import hand_matches
from app.receiving.inbox import Inbox
from tests.database.builders import context, fetch
from tests.database.contract_breaks import missing, run, show
from tests.reconcile.build import seconds


class HandMatchContract:
    """Matches made by hand. A subclass gives `url`."""

    @pytest.mark.alike
    async def test_a_line_is_matched_by_hand_once(self, inbox: Inbox) -> None:
        """Only an unmatched line can be. The break that it closes cites who matched it."""
        at = context(inbox, at=2)
        await run(inbox, missing("A", lines=["stm_7.1"]), missing("B"), missing("C"), at=1)
        name = missing("A").identity
        with pytest.raises(UsageError, match="not an unmatched line"):
            await match_lines(at, name, lines=["stm_8.1"], reason="looks so", by="ann")
        await match_lines(at, name, lines=["stm_7.1"], reason="the customer said", by="ann")
        with pytest.raises(UsageError, match="already matched by hand"):
            await match_lines(at, missing("B").identity, lines=["stm_7.2"], reason="no", by="ann")
        await match_lines(
            at, missing("B").identity, lines=["bok_C.1"], reason="one of two", by="ann"
        )
        async with inbox.database.reading() as connection:
            found = await hand_matches(connection, as_of=seconds(9))
            earlier = await hand_matches(connection, as_of=seconds(1))
        pairs = [(each.one, each.other) for each in found]
        assert pairs == [("bok_A", "stm_7"), ("bok_B", "bok_C")]
        assert earlier == []
        await run(inbox, at=3)
        assert "match by ann" in (await show(inbox, missing("A"))).life.closed_by
        with pytest.raises(UsageError, match="is closed"):
            await match_lines(at, name, lines=["stm_9.1"], reason="again", by="ann")

    @pytest.mark.alike
    async def test_a_match_by_hand_is_taken_back(self, inbox: Inbox) -> None:
        """By name, or as the only one. The line is free again, and the past stays as it was."""
        lines = ["stm_7.1", "stm_8.1"]
        await run(inbox, missing("A", lines=lines), missing("B", lines=lines), at=1)
        a, b = missing("A").identity, missing("B").identity
        for line in lines:
            await match_lines(context(inbox, at=2), a, lines=[line], reason="both", by="ann")
        at = context(inbox, at=3)
        for name, line, why in (
            (b, "", "has no match by hand"),
            (a, "", "stm_7.1, stm_8.1; name one"),
            (a, "stm_9.1", "stm_7.1, stm_8.1; name one"),
        ):
            with pytest.raises(UsageError, match=why):
                await unmatch_break(at, name, line=line, reason="wrong", by="ann")
        with pytest.raises(UsageError, match="give a reason"):
            await unmatch_break(at, a, line="stm_7.1", reason=" ", by="ann")
        # A later version of the line is the same line.
        assert await unmatch_break(at, a, line="stm_7.5", reason="wrong", by="bob") == "stm_7.1"
        with pytest.raises(UsageError, match="already matched by hand"):
            await match_lines(at, b, lines=["stm_8.1"], reason="mine", by="ann")
        await match_lines(at, b, lines=["stm_7.1"], reason="mine", by="ann")
        assert await unmatch_break(at, a, reason="wrong", by="bob") == "stm_8.1"
        await match_lines(
            context(inbox, at=4), a, lines=["stm_8.1"], reason="right after all", by="ann"
        )
        known = {seconds(n): await self._hands(inbox, at=n) for n in (1, 2, 3, 4)}
        assert list(known.values()) == [
            [],
            [("bok_A", "stm_7"), ("bok_A", "stm_8")],
            [("bok_B", "stm_7")],
            [("bok_B", "stm_7"), ("bok_A", "stm_8")],
        ]
        trail = await fetch(inbox, audit_entries, limit=9, action="break_unmatched")
        assert [(each.who, each.facts["value"]) for each in trail] == [
            ("bob", "stm_7.1"), ("bob", "stm_8.1"),
        ]  # fmt: skip

    @staticmethod
    async def _hands(inbox: Inbox, *, at: int) -> list[tuple[str, str]]:
        found = await fetch(inbox, hand_matches, as_of=seconds(at))
        return [(each.one, each.other) for each in found]

    async def test_a_match_that_was_taken_back_closes_no_break(self, inbox: Inbox) -> None:
        at = context(inbox, at=2)
        await run(inbox, missing("A", lines=["stm_7.1"]), at=1)
        name = missing("A").identity
        await match_lines(at, name, lines=["stm_7.1"], reason="so", by="ann")
        await unmatch_break(at, name, reason="not so", by="ann")
        await run(inbox, at=3)
        assert (await show(inbox, missing("A"))).life.closed_by == ()

    @pytest.mark.alike
    async def test_a_match_closes_both_halves_until_a_run_does_not_use_it(
        self, inbox: Inbox
    ) -> None:
        """Seen again, both are open, once: later runs add no step. Taken back, both are open."""
        near = missing("A", lines=["stm_7.1"])
        half = replace(missing("half"), cause="settled_never_notified", subject="stm_7")
        await run(inbox, near, half, at=1)
        await match_lines(
            context(inbox, at=2), near.identity, lines=["stm_7.1"], reason="so", by="a"
        )
        for each in (near, half):
            assert (await show(inbox, each)).life.state == "closed"
        for at in (3, 4):
            await run(inbox, near, half, at=at)
            for each in (near, half):
                found = await show(inbox, each)
                assert (found.life.state, found.life.matched) == ("open", ())
                assert "does not explain the break" in found.life.because
                assert [step.kind for step in found.steps] == ["opened", "matched", "reopened"]
        at_5 = context(inbox, at=5)
        await unmatch_break(at_5, half.identity, reason="no", by="a")
        assert await self._hands(inbox, at=9) == []
        await match_lines(at_5, half.identity, lines=["bok_A"], reason="so", by="a")
        await run(inbox, at=6)
        for each in (near, half):
            assert "match by a" in (await show(inbox, each)).life.closed_by

    @pytest.mark.alike
    async def test_a_match_is_of_the_order_where_its_break_has_no_line(self, inbox: Inbox) -> None:
        """A capture's break states its source, which matches nothing. An order may be named, with
        dots in its reference."""
        alone = replace(missing("A.1"), cause="not_settled", subject="shop")
        astray = replace(missing("stray", lines=["A.1", "A.2"]), subject="stm_8")
        other = replace(missing("other", lines=["A.1", "A.2"]), subject="stm_9")
        await run(inbox, replace(alone, candidates=missing("A", lines=["stm_7.3"]).candidates),
                  astray, other, at=1)  # fmt: skip
        at = context(inbox, at=2)
        for found, line in ((alone, "stm_7.3"), (astray, "A.1"), (other, "A.2")):
            await match_lines(at, found.identity, lines=[line], reason="so", by="ann")
        assert await self._hands(inbox, at=9) == [
            ("A.1", "stm_7"), ("stm_8", "A.1"), ("stm_9", "A.2"),
        ]  # fmt: skip
        assert await unmatch_break(at, other.identity, line="A.2", reason="no", by="ann") == "A.2"
