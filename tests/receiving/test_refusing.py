"""Result of one request: its status, what is kept of it, and its log lines."""

import json
from dataclasses import replace
from io import StringIO
from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.core.clock import SetClock
from app.core.errors import StorePoisoned, StoreUnavailable
from app.providers.profile import load_profile
from app.providers.request import Incoming
from app.providers.source import Source
from app.receiving import receive
from app.receiving.framing import Item, Received
from app.receiving.receive import (
    RETRY_AFTER_S,
    Receiver,
    ReceiverAnswer,
    Unstored,
    receive_delivery,
)
from app.receiving.refusal_store import Rejection
from app.receiving.refusals import RefusedAges
from reconcile.instants import HOUR
from tests.api.driving import KEY, secret, signed
from tests.reconcile.build import T

BODY = b'{"id": "e1"}'
ROOM = 10


class Counting:
    """An allowance that decides as the test says, and the queue."""

    def __init__(self) -> None:
        self.decided = "kept"
        self.asked: list[str] = []
        self.kept: list[Item] = []
        self.fault: Exception | None = None

    def decide(self, address: str) -> str:
        """Decide about one more refusal."""
        self.asked.append(address)
        return self.decided

    def takes(self, source: str, incoming: Incoming) -> bool:
        """Decide about one more unsigned request."""
        return self.decide(incoming.address) == "kept"

    def to_note(self, source: str) -> int:
        """Return how many were not kept."""
        return len(self.asked) - 1

    async def submit(self, item: Item) -> None:
        """Keep it."""
        if self.fault is not None:
            raise self.fault
        self.kept.append(item)


class Service:
    """A receiver of one source."""

    def __init__(self, **more: Any) -> None:
        self.rate, self.unsigned, self.queue = Counting(), Counting(), Counting()
        shop = Source(name="shop", profile=load_profile("checkout"), secrets=[secret(KEY)])
        self.receiver = Receiver(
            sources={"shop": shop, **more},
            queue=cast(Any, self.queue),
            clock=SetClock(T),
            environment="sandbox",
            rejected_body_bytes=ROOM,
            rejection_rate=cast(Any, self.rate),
            unsigned=cast(Any, self.unsigned),
            ages=RefusedAges(),
        )

    async def takes(
        self, body: bytes | None = BODY, *, source: str = "shop", **more: Any
    ) -> ReceiverAnswer:
        """Answer a request; by itself a genuine one."""
        headers = more.pop("headers", signed(body or b"", at=T))
        incoming = Incoming(
            headers,
            body or b"",
            url="/webhooks/shop",
            source=source,
            address="8.8.8.8",
            oversized=body is None,
            **more,
        )
        return await receive_delivery(self.receiver, incoming)

    @property
    def rejected(self) -> list[tuple[str, int, bytes]]:
        """Verdict, size and what is kept of each body."""
        kept = [item for item in self.queue.kept if isinstance(item, Rejection)]
        return [(item.verdict, item.size, item.body) for item in kept]


@pytest.fixture
def service() -> Service:
    """Build a service that takes everything genuine."""
    return Service()


def unsigned() -> Any:
    """Make a source that nobody signs for."""
    known = Source(name="shop", profile=load_profile("checkout"), secrets=[secret(KEY)])
    return SimpleNamespace(name=known.name, unsigned=True)


async def test_what_is_genuine_is_kept_whole(service: Service) -> None:
    answer = await service.takes()
    (item,) = service.queue.kept
    assert isinstance(item, Received)
    assert (item.body, item.received_at, item.peer) == (BODY, T, "public")
    assert answer == ReceiverAnswer(200, "accepted", item.delivery_id, None)
    assert (service.rate.asked, service.unsigned.asked) == ([], [])


@pytest.mark.parametrize(
    ("words", "status", "verdict", "kept"),
    [
        ({"source": "new"}, 404, "source_unknown", (len(BODY), BODY[:ROOM])),
        ({"body": None}, 413, "body_too_large", (0, b"")),
        ({"headers": []}, 401, "signature_missing", (len(BODY), BODY[:ROOM])),
        ({"headers": signed(b"other", at=T)}, 401, "signature_mismatch",
         (len(BODY), BODY[:ROOM])),
        ({"headers": signed(BODY, at=T - HOUR)}, 401, "timestamp_too_old",
         (len(BODY), BODY[:ROOM])),
        ({"headers": signed(BODY, at=T + HOUR)}, 401, "timestamp_too_new",
         (len(BODY), BODY[:ROOM])),
    ],
)  # fmt: skip
async def test_what_is_kept_of_a_refused_one(
    service: Service,
    log: StringIO,
    words: dict[str, Any],
    status: int,
    verdict: str,
    kept: tuple[int, bytes],
) -> None:
    """Its verdict, its size, and the beginning of its body; the log has a line of it. Of one that
    was too large nothing was read."""
    answer = await service.takes(**words)
    assert (answer.status, answer.verdict) == (status, verdict)
    assert service.rejected == [(verdict, *kept)]
    (item,) = service.queue.kept
    assert (item.delivery_id, service.rate.asked) == (answer.delivery_id, ["8.8.8.8"])
    (line,) = [json.loads(each) for each in log.getvalue().splitlines()]
    assert (line["verdict"], line["delivery"], line["peer"]) == (
        verdict, answer.delivery_id, "public"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("decided", "expected"),
    [
        ("counted", (401, "signature_missing")),
        ("too_many", (429, "too_many_rejections")),
    ],
)
async def test_beyond_the_allowance_nothing_is_kept(
    service: Service, log: StringIO, decided: str, expected: tuple[int, str]
) -> None:
    """Nor written to the log."""
    service.rate.decided = decided
    answer = await service.takes(headers=[])
    assert (answer.status, answer.verdict) == expected
    assert (service.queue.kept, log.getvalue()) == ([], "")


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a" * 41, "a" * 40),
        ("a" * 40, "a" * 40),
        ("é\n\x7f ok", "??? ok"),
    ],
)
async def test_a_name_of_no_source_as_it_is_kept(service: Service, name: str, shown: str) -> None:
    """Short and printable."""
    await service.takes(source=name)
    assert [item.source for item in service.queue.kept] == [shown]


@pytest.mark.parametrize("fault", [StoreUnavailable("no", reason="disk"), StorePoisoned("no")])
async def test_a_refusal_that_cannot_be_kept_is_answered_all_the_same(
    service: Service, log: StringIO, fault: Exception
) -> None:
    service.queue.fault = fault
    answer = await service.takes(headers=[])
    assert (answer.status, answer.verdict) == (401, "signature_missing")
    await service.takes(headers=[])  # that it could not be kept either is logged a minute later
    first, second, _ = [json.loads(each) for each in log.getvalue().splitlines()]
    assert (first["event"], first["error_class"]) == (
        "a rejection was not stored",
        type(fault).__name__,
    )
    assert (first["delivery"], second["delivery"]) == (answer.delivery_id,) * 2


@pytest.mark.parametrize(("size", "status"), [(64 * 1024, 429), (64 * 1024 + 1, 413)])
@pytest.mark.parametrize("decided", ["counted", "too_many"])
async def test_what_nobody_signs_is_small_and_within_its_allowance(
    size: int, status: int, decided: str
) -> None:
    """64 KiB; and beyond the allowance it is asked to wait, and not kept."""
    service = Service(weak=unsigned())
    service.unsigned.decided = decided
    service.rate.decided = "counted"
    answer = await service.takes(b"x" * size, source="weak")
    assert answer.status == status
    assert service.queue.kept == []
    assert service.unsigned.asked == (["8.8.8.8"] if status == 429 else [])
    if status == 429:
        await service.takes(b"x" * size, source="weak")
        (dropped,) = service.queue.kept
        assert isinstance(dropped, Rejection)
        assert (dropped.verdict, dropped.count) == ("not_kept", 1)
        assert (dropped.size, dropped.body) == (0, b"")


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Make a clock that shows the one number in this list."""
    now = [100.0]
    monkeypatch.setattr(receive, "monotonic", lambda: now[0])
    return now


async def test_why_deliveries_are_not_stored_is_logged_once_a_minute(
    service: Service, log: StringIO, seconds: list[float]
) -> None:
    """Each reason at once, and when it is over. The sender is asked to try again."""
    faults: list[Any] = [StoreUnavailable("no", reason="disk")] * 2
    faults += [StoreUnavailable("no", reason="queue"), StorePoisoned("no")]
    for fault in faults:
        service.queue.fault = fault
        answer = await service.takes()
        assert (answer.status, answer.verdict, answer.reason) == (503, None, fault.reason)
    service.queue.fault = None
    seconds[0] += RETRY_AFTER_S
    for _ in range(2):
        assert (await service.takes()).status == 200
    changes = [json.loads(each) for each in log.getvalue().splitlines()]
    last = faults[-1].reason
    assert [(line["event"], line["reason"], line["count"]) for line in changes] == [
        ("deliveries are not stored", "disk", 0),
        ("deliveries are not stored", "queue", 2),
        ("deliveries are not stored", last, 3),
        ("deliveries are stored again", last, 4),
    ]


def test_the_count_begins_anew(log: StringIO, seconds: list[float]) -> None:
    unstored = Unstored()
    for _ in range(2):
        unstored.note("disk")
        seconds[0] += RETRY_AFTER_S
        unstored.over()
    lines = [json.loads(each)["count"] for each in log.getvalue().splitlines()]
    assert lines == [0, 1, 0, 1]


def test_a_few_that_are_not_stored_among_many_are_reported_once(
    log: StringIO, seconds: list[float]
) -> None:
    unstored = Unstored()
    for _ in range(9):
        unstored.note("queue")
        seconds[0] += RETRY_AFTER_S - 0.1
        unstored.over()
    seconds[0] += 0.1
    unstored.over()
    lines = [json.loads(each) for each in log.getvalue().splitlines()]
    assert [(line["event"], line["count"]) for line in lines] == [
        ("deliveries are not stored", 0),
        ("deliveries are stored again", 9),
    ]


async def test_headers_that_hold_a_token_of_any_source_are_not_kept() -> None:
    """A request under a wrong name may bring the token of a right one."""
    service = Service()
    private: Any = SimpleNamespace(private_headers=frozenset({b"x-token"}))
    service.receiver = replace(
        service.receiver, sources={**service.receiver.sources, "till": private}
    )
    headers = [(b"x-token", b"secret"), (b"x", b"y")]
    for source in ("new", "shop"):
        await service.takes(source=source, headers=headers)
    for item in service.queue.kept:
        assert "secret" not in item.headers
        assert "x: y" in item.headers
