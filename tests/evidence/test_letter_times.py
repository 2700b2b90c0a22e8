"""report.html tells times in the merchant's zone, which the bundle says itself."""

import json
from datetime import UTC
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from app.evidence.letter_times import TIMES, Times, letter_zone, zone_in
from app.evidence.verify import unpack
from app.evidence.verify_evidence import verify_evidence
from reconcile.instants import Instant, parse_instant
from tests.api.driving import driving
from tests.contexts import with_settings
from tests.evidence.conftest import Bundles, Forge, build, written
from tests.evidence.world import LATER, live_through

NAIROBI, NEW_YORK = ZoneInfo("Africa/Nairobi"), ZoneInfo("America/New_York")


async def test_a_bundle_tells_times_to_people_in_the_zone_and_says_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data stay UTC; it verifies where no zone is known, and another zone's times do not."""
    async with driving(tmp_path, with_worker=False) as driver:
        driver.context = with_settings(driver.context, timezone="Africa/Nairobi")
        await live_through(driver)
        driver.clock.put(LATER)
        archive = await build(driver)
    files = unpack(archive)
    page = files["report.html"].decode()
    assert "Times are those of Africa/Nairobi: EAT is UTC+03:00." in page
    assert "2026-11-20 13:00:00 EAT" in page
    assert "T10:0" not in page
    assert "10:00:00Z" in files["history.json"].decode()
    assert json.loads(files[TIMES])["zone"] == "Africa/Nairobi"

    def unknown(*_: object) -> None:
        raise AssertionError("what is known of zones here counts for nothing")

    monkeypatch.setattr("app.core.zones.ZoneInfo", unknown)
    found = verify_evidence(archive)
    assert found.valid, found.steps
    assert {each.passed for each in found.steps if each.name == "rendered"} == {True}


def test_times_of_another_zone_do_not_give_the_page(bundles: Bundles, forge: Forge) -> None:
    """A bundle of UTC has none; with some laid beside, the page is not what follows."""
    assert TIMES not in unpack(bundles.redacted)
    document = {"zone": "Africa/Nairobi", "from_utc_s": [["2026-11-20T00:00:00Z", 10_800, "EAT"]]}

    def laid_beside(members: dict[str, bytes]) -> None:
        members[TIMES] = written(document)

    found = verify_evidence(forge(bundles.redacted, laid_beside, rendering=False))
    assert {each.passed for each in found.steps if each.name == "rendered"} == {False}
    again = verify_evidence(forge(bundles.redacted, laid_beside))
    assert again.valid
    assert "the shop's time zone and its offsets from UTC (times.json)" in again.not_proven


def test_a_zone_of_a_bundle_tells_what_the_real_one_did() -> None:
    """Before, in and after the hour that comes twice, and at the end of the calendar."""
    moments = [
        parse_instant(each)
        for each in ("2026-07-01T10:00:00Z", "2026-11-01T05:30:00Z", "2026-11-01T06:30:00.25Z",
                     "9999-12-31T23:59:59Z")
    ]  # fmt: skip
    noted = letter_zone(NEW_YORK)
    assert noted is not None
    first = [Times(noted).at(each) for each in moments]
    kept = zone_in(json.loads(json.dumps(noted.document())))
    assert [Times(kept).at(each) for each in moments] == first
    assert first[:3] == [
        "2026-07-01 06:00:00 EDT", "2026-11-01 01:30:00 EDT", "2026-11-01 01:30:00.250 EST",
    ]  # fmt: skip
    assert kept.document() == noted.document()
    assert noted.words() == (
        "Times are those of America/New_York: EDT is UTC-04:00, EST is UTC-05:00."
    )


def test_utc_is_written_as_it_always_was() -> None:
    assert (letter_zone(None), letter_zone(UTC), letter_zone(ZoneInfo("UTC"))) == (None,) * 3
    assert Times(None).at(Instant(0)) == "1970-01-01T00:00:00Z"
    assert Times(None).words() == "Times are UTC."
    for spans in ([], [["no", 1, "X"]]):
        with pytest.raises(ValueError, match=r"."):
            zone_in({"zone": "X", "from_utc_s": spans})
