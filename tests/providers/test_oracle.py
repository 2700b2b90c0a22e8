"""We and the reference implementation of Standard Webhooks accept each other's signatures."""

from datetime import UTC, datetime

import time_machine
from hypothesis import given, settings
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from app.providers.request import Incoming
from reconcile.instants import SECOND
from tests.providers.builders import NOW, SECRET, source
from tests.rows import for_each
from tests.searching import examples

MOMENT = datetime.fromtimestamp(NOW // SECOND, UTC)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
# The oracle splits on every dot and colon alike; ids are what a provider could send.
IDS = st.from_regex(r"[A-Za-z0-9_-]{1,40}", fullmatch=True)
FIXED = settings(derandomize=True, database=None, max_examples=examples(150))


def accepted_by_oracle(headers: dict[str, str], body: str) -> bool | None:
    """Return its verdict at NOW, or None where it raises another error."""
    with time_machine.travel(MOMENT, tick=False):
        try:
            Webhook(SECRET).verify(body, headers, json_parse=False)
        except WebhookVerificationError:
            return False
        except Exception:
            return None
    return True


def accepted_by_us(headers: dict[str, str], body: str) -> bool:
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    return source().verify(Incoming(raw, body.encode()), now=NOW) is None


@FIXED
@given(body=TEXTS, event_id=IDS, offset=st.integers(-300, 300))
def test_the_reference_implementation_accepts_our_signatures(
    body: str, event_id: str, offset: int
) -> None:
    signed = source().sign(body.encode(), event_id=event_id, now=NOW + offset * SECOND)
    assert accepted_by_oracle(dict(signed), body) is True


@FIXED
@given(body=TEXTS, event_id=IDS, offset=st.integers(-300, 300))
def test_signatures_of_the_reference_implementation_verify(
    body: str, event_id: str, offset: int
) -> None:
    moment = datetime.fromtimestamp(NOW // SECOND + offset, UTC)
    headers = {
        "webhook-id": event_id,
        "webhook-timestamp": str(NOW // SECOND + offset),
        "webhook-signature": Webhook(SECRET).sign(event_id, moment, body),
    }
    assert accepted_by_us(headers, body)


@FIXED
@given(
    data=st.data(),
    body=st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=40),
    offset=st.integers(-310, 310),
)
def test_the_reference_implementation_agrees_on_damaged_requests(
    data: st.DataObject, body: str, offset: int
) -> None:
    headers = dict(source().sign(body.encode(), event_id="evt_01", now=NOW + offset * SECOND))
    name = data.draw(st.sampled_from(sorted(headers)))
    damage = data.draw(st.sampled_from(["none", "removed", "other", "stranger first"]))
    if damage == "removed":
        del headers[name]
    elif damage == "other":
        headers[name] += "x" if name == "webhook-id" else "0"
    elif damage == "stranger first":
        headers["webhook-signature"] = "v2,AAAA v1,AAAA " + headers["webhook-signature"]
    verdict = accepted_by_oracle(headers, body)
    if verdict is not None and not (damage == "other" and name == "webhook-signature"):
        assert accepted_by_us(headers, body) is verdict


@for_each("offset", [-301, -300, 0, 300, 301])
def test_the_reference_implementation_agrees_on_the_edges_of_the_tolerance(offset: int) -> None:
    headers = dict(source().sign(b"{}", event_id="evt_01", now=NOW + offset * SECOND))
    assert accepted_by_us(headers, "{}") is accepted_by_oracle(headers, "{}")
