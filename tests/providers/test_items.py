"""Several events in one body: each is verified, stored and identified separately."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from app.core.errors import ConfigurationError
from app.core.reading import Unreadable
from app.providers.profile import load_profile
from app.providers.request import Incoming
from app.providers.source import Source
from tests.providers.builders import NOW, made, only, profile_file, refused

ITEM = "notificationItems[*].NotificationRequestItem"
SIGNED = "{json:id}:{json:order}:{json:type?}:{json:amount?}"


def item(number: int, **more: Any) -> dict[str, Any]:
    return {"id": f"e{number}", "order": f"o{number}", "type": "paid", "amount": 5, **more}


def body_of(*items: Any) -> bytes:
    wrapped = [{"NotificationRequestItem": each} for each in items]
    return json.dumps({"live": "false", "notificationItems": wrapped}).encode()


def each_signed(folder: Path) -> Source:
    """Return a source in which every item is signed separately, as at Adyen."""
    return made(
        folder,
        signature={"where": "json:more.sig", "signed": SIGNED, "per_item": True},
        event={"items": ITEM},
        environment={"where": "root:live", "sandbox": "false", "live": "true"},
    )


def signed(source: Source, *items: Any) -> bytes:
    return source.signed(body_of(*items), event_id="x", now=NOW).body


def test_every_item_is_verified_and_read(tmp_path: Path) -> None:
    source = each_signed(tmp_path)
    body = signed(source, item(1), item(2))
    assert source.verify(Incoming([], body), now=NOW) is None
    reading = source.read(Incoming([], body), digest="d" * 64)
    assert [event.event_id for event in reading.events] == ["e1", "e2"]
    assert (reading.environment, reading.unread) == ("sandbox", ())


@pytest.mark.parametrize("forged", [0, 1, 2])
@pytest.mark.parametrize("key", ["id", "order", "type"])
def test_one_forged_item_refuses_all(forged: int, key: str, tmp_path: Path) -> None:
    source = each_signed(tmp_path)
    document = json.loads(signed(source, item(1), item(2), item(3)))
    document["notificationItems"][forged]["NotificationRequestItem"][key] = "other"
    refusal = refused(source.verify(Incoming([], json.dumps(document).encode()), now=NOW))
    assert refusal.reason == "signature_mismatch"


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{}", body_of(), body_of(item(1)), body_of(None), body_of(item(1), None),
     b'{"notificationItems": {}}', b'{"notificationItems": [1, "x", null, {}]}'],
)  # fmt: skip
def test_a_body_without_signed_items_is_refused(body: bytes, tmp_path: Path) -> None:
    refusal = refused(each_signed(tmp_path).verify(Incoming([], body), now=NOW))
    assert refusal.reason == "signature_missing"


def batched(folder: Path, items: str = "events[*]") -> Source:
    """Return a source in which the whole body is signed once."""
    return made(folder, event={"items": items})


def test_an_event_in_another_batch_is_equal_and_has_its_own_digest(tmp_path: Path) -> None:
    source = batched(tmp_path)
    body = b'{"n": 1, "events": [{"id":"e1", "type":"x"},{"id":"e2","type":"x"}]}'
    first = source.read(Incoming([], body), digest="a")
    again = source.read(Incoming([], b'{"n": 2, "events":[ {"id":"e2","type":"x"} ]}'), digest="b")
    assert first.events[1] == again.events[0]
    assert again.raws == (b'{"id":"e2","type":"x"}',)
    assert again.events[0].digest == hashlib.sha256(again.raws[0]).hexdigest()


def test_an_unreadable_event_does_not_affect_the_others(tmp_path: Path) -> None:
    events = [item(1), {"id": 7, "type": "paid"}, item(3)]
    reading = batched(tmp_path).read(
        Incoming([], json.dumps({"events": events}).encode()), digest="d"
    )
    assert [event.event_id for event in reading.events] == ["e1", "e3"]
    ((raw, problem),) = reading.unread
    assert json.loads(raw) == events[1]
    assert problem == "event 2 of 3: id is not a text"


def test_an_event_that_is_one_object_of_the_body_is_equal_on_redelivery(tmp_path: Path) -> None:
    source = batched(tmp_path, "event")
    body = b'{"attempt_number": %d, "event": {"id": "e1", "type": "paid"}}'
    assert only(source, body % 1) == only(source, body % 2)


def test_the_body_itself_may_be_the_list_of_events(tmp_path: Path) -> None:
    body = json.dumps([item(1), item(2)]).encode()
    assert len(batched(tmp_path, "[*]").read(Incoming([], body), digest="d").events) == 2


@pytest.mark.parametrize("events", [b"[]", b"1", b"{}", b"null", b"[1]", b"[{}, null]", b"["])
def test_a_body_without_events_is_unreadable(events: bytes, tmp_path: Path) -> None:
    with pytest.raises(Unreadable):
        batched(tmp_path).read(Incoming([], b'{"events": %b}' % events), digest="d")


@pytest.mark.parametrize(
    ("signature", "message"),
    [
        ({"per_item": True, "where": "header:x"}, "signature.where: must be json:PATH"),
        ({"signed": "{json:order}"}, "signature.signed: does not cover event.kind"),
    ],
)
def test_a_profile_with_unsigned_items_is_reported(
    signature: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        load_profile(profile_file(tmp_path, signature=signature, event={"items": "events[*]"}))
