"""Parts of a context, and when each is built from settings."""

from pathlib import Path

import pytest

from app.context import configured
from app.core.clock import SystemClock
from app.core.errors import ConfigurationError
from app.core.phone_key import make_phone_key
from app.receiving.inbox import Inbox
from tests.api.driving import SECRET
from tests.contexts import settings_of, with_settings
from tests.rows import for_each

SOURCES = {"shop": {"secrets": [SECRET]}}


def inbox_of(path: Path) -> Inbox:
    """Return one that nobody has opened."""
    return Inbox(settings_of(path, sources=SOURCES), purpose="reading")


def test_sources_are_compiled_once_and_not_before_somebody_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled, compile_sources = [], configured.compile_sources

    def counting(*given: object, **words: object) -> object:
        compiled.append(given)
        return compile_sources(*given, **words)  # type: ignore[arg-type]

    monkeypatch.setattr(configured, "compile_sources", counting)
    context = inbox_of(tmp_path / "t.db").context(clock=SystemClock())
    assert compiled == []
    assert context.sources is context.sources
    assert [*context.sources] == ["shop"]
    assert len(compiled) == 1


def test_the_phone_key_is_known_once_it_was_made(tmp_path: Path) -> None:
    inbox = inbox_of(tmp_path / "t.db")
    assert inbox.context(clock=SystemClock()).phone_key is None
    made = make_phone_key(inbox.settings.phone_key_path)
    key = inbox.context(clock=SystemClock()).phone_key
    assert key is not None
    assert key.name == made.name
    inbox.settings.phone_key_path.write_text("no key")
    with pytest.raises(ConfigurationError, match="is not 64 hex digits"):
        _ = inbox.context(clock=SystemClock()).phone_key


def test_keys_and_journal_of_a_copy_lie_where_the_databases_own_do(tmp_path: Path) -> None:
    settings = settings_of(tmp_path / "t.db")
    copy = settings.for_copy(f"sqlite+aiosqlite:///{tmp_path}/copy/part.db")
    for each in (settings, copy):
        assert each.phone_key_path == tmp_path / "t.phone.key"
        assert each.evidence_key_path == tmp_path / "t.evidence.key"
        assert each.erasure_journal_path == tmp_path / "t.erasures"
    assert copy.database_url.endswith("/copy/part.db")


@for_each(
    ("settings", "deletes"),
    [({}, False), ({"retention_days": 90}, True), ({"retention_phones_days": 90}, True),
     ({"retention_rejections_days": 90}, False)],
)  # fmt: skip
def test_digests_of_phones_go_with_bodies_unless_they_have_days_of_their_own(
    tmp_path: Path, settings: dict[str, int], deletes: bool
) -> None:
    context = inbox_of(tmp_path / "t.db").context(clock=SystemClock())
    assert with_settings(context, **settings).settings.deletes_phones is deletes


def test_days_are_counted_in_utc_where_nobody_says_otherwise(tmp_path: Path) -> None:
    context = inbox_of(tmp_path / "t.db").context(clock=SystemClock())
    assert (context.zone, str(context.calendar_zone)) == (None, "UTC")
    assert str(with_settings(context, timezone="Africa/Nairobi").calendar_zone) == "Africa/Nairobi"
