"""Findings of `tallyhook doctor`."""

import stat
from dataclasses import replace

import pytest

from app.database.facts import DatabaseFacts
from app.monitoring.preflight import (
    MEND_SETTING,
    MIB,
    Check,
    has_reset_bug,
    of_clock,
    of_configuration,
    of_database,
    of_disk,
    of_profile,
    of_reach,
    of_secret_file,
)
from app.providers.profile import load_profile, shipped_profiles
from app.providers.provider_client import Probe, date_of
from reconcile.instants import DAY, SECOND, Instant
from tests.reconcile.build import T

SEEN = Probe(url="https://pay.example", status=404, tls="TLSv1.3", certificate_ends=T + 90 * DAY)
SERVER = DatabaseFacts(kind="PostgreSQL", version=(18, 4))
FILE = DatabaseFacts(kind="SQLite", version=(3, 51, 3), journal_mode="wal")


def states(signs: object) -> list[str]:
    """Return the state of each."""
    return [each.state for each in signs]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("date", "state"),
    [
        (T, "ok"),
        (T - SECOND, "ok"),
        (T + 3 * SECOND, "ok"),
        (T + 6 * SECOND, "weak"),
        (T - 6 * SECOND, "weak"),
        (T - 40 * SECOND, "must"),
        (T + 40 * SECOND, "must"),
        (None, "weak"),
    ],
)
def test_the_clock(date: Instant | None, state: str) -> None:
    """A difference beyond a cut second and the time of the answer is reported."""
    sign = of_clock(replace(SEEN, date=date), before=T, after=T + SECOND)
    assert sign.state == state


def test_a_slow_answer_is_no_skew() -> None:
    assert (
        of_clock(replace(SEEN, date=T + 5 * SECOND), before=T, after=T + 9 * SECOND).state == "ok"
    )


@pytest.mark.parametrize(
    ("mode", "state"),
    [(0o600, "ok"), (0o640, "ok"), (0o400, "ok"), (0o644, "must"), (0o660, "must"), (None, "must")],
)
def test_files_of_secrets(mode: int | None, state: str) -> None:
    assert of_secret_file("X", None if mode is None else stat.S_IFREG | mode).state == state


@pytest.mark.parametrize(
    ("version", "bug"),
    [
        ((3, 6, 23), False), ((3, 7, 0), True), ((3, 40, 1), True), ((3, 44, 5), True),
        ((3, 44, 6), False), ((3, 45, 0), True), ((3, 50, 6), True), ((3, 50, 7), False),
        ((3, 51, 2), True), ((3, 51, 3), False), ((4, 0, 0), False),
    ],
)  # fmt: skip
def test_which_sqlite_has_the_bug(version: tuple[int, ...], bug: bool) -> None:
    """The versions of SQLite's own page."""
    assert has_reset_bug(version) is bug
    assert states(of_database(replace(FILE, version=version))) == ["weak" if bug else "ok"]


def test_databases() -> None:
    assert states(of_database(SERVER)) == ["ok"]
    assert states(of_database(replace(SERVER, off=("fsync", "full_page_writes")))) == ["must"] * 2
    assert states(of_database(replace(SERVER, standbys=("It lags; wait",)))) == ["weak", "ok"]
    assert states(of_database(replace(SERVER, awaits=True))) == ["must", "ok"]
    assert states(of_database(replace(SERVER, moved="it moved; say so"))) == ["must", "ok"]
    assert states(of_database(replace(SERVER, no_writes="it reads; wait"))) == ["must", "ok"]
    assert states(of_database(replace(FILE, journal_mode="delete"))) == ["must"]


def test_the_disk() -> None:
    found = [list(of_disk(mib * MIB, low_water_mib=64)) for mib in (64, 500, 5000)]
    assert [states(signs) for signs in found] == [["must"], ["weak"], ["ok"]]
    assert list(of_disk(None, low_water_mib=64)) == []


def test_what_is_reached() -> None:
    assert states(of_reach("p", SEEN, now=T)) == ["ok", "ok"]
    assert states(of_reach("p", SEEN, now=T + 80 * DAY)) == ["ok", "weak"]
    assert states(of_reach("p", replace(SEEN, tls=None), now=T)) == ["ok", "weak"]
    assert states(of_reach("p", Probe(url="x", problem="timed_out"), now=T)) == ["must"]
    assert states(of_reach("p", replace(SEEN, tls_problem="expired"), now=T)) == ["must"]


def test_profiles() -> None:
    sound = load_profile("checkout")
    none, token = (replace(sound.signature, mac=mac) for mac in ("none", "token"))
    for profile, weakness in (
        (replace(sound, timestamp=None), "does not sign the time"),
        (replace(sound, signature=none, confirm="fetch_back"), "signs nothing"),
        (replace(sound, signature=token), "a password instead of a signature"),
        (replace(sound, confirm="fetch_back"), "does not cover everything"),
        (load_profile("snap_winpay"), "no event counts by itself"),
        (replace(sound, environment=replace(sound.environment, where=())), "do not state sandbox"),
    ):
        sign = next(of_profile("shop", profile))
        assert weakness in sign.sentence
        assert sign.state == "weak"
        assert sign.do
    assert states(of_profile("shop", sound)) == ["ok"]


def test_every_shipped_profile_can_be_judged() -> None:
    for name in shipped_profiles():
        signs = list(of_profile("shop", load_profile(name)))
        assert signs
        assert "must" not in states(signs)


def test_mistakes_of_the_configuration() -> None:
    (sign,) = of_configuration(("TALLYHOOK_X: must be a number",))
    assert sign == Check(
        what="TALLYHOOK_X",
        state="must",
        sentence="must be a number.",
        do=MEND_SETTING,
    )


@pytest.mark.parametrize(
    ("header", "moment"),
    [
        ("Fri, 20 Nov 2026 10:00:00 GMT", 1_795_168_800 * SECOND),
        ("Friday, 20-Nov-26 10:00:00 GMT", 1_795_168_800 * SECOND),
        ("", None),
        ("soon", None),
        ("99 99 99", None),
    ],
)
def test_dates(header: str, moment: int | None) -> None:
    """In the forms of RFC 9110, the obsolete ones too."""
    assert date_of(header) == moment
