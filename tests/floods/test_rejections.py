"""Rejections beyond an allowance, and a queue beyond its limit, on a real server."""

import fcntl
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.api.driving import event, of_order
from tests.e2e.processes import serving
from tests.e2e.test_service import rows
from tests.floods.wire import ask, code_of, connect, genuine, post, status_of
from tests.waiting import until

KEPT = "SELECT count(*) FROM rejections"


def test_rejections_beyond_the_allowance_of_an_address(tmp_path: Path) -> None:
    """401 becomes 429, and nothing more is kept; genuine deliveries from the same address are
    stored. Nobody gets another's allowance by a header."""
    request = post("/webhooks/shop", "x-forwarded-for: 10.9.8.7", body=b"{}")
    packed = post("/webhooks/shop", "content-encoding: gzip", body=b"{}")
    with serving(tmp_path, REJECTIONS_PER_MINUTE_PER_ADDRESS="20") as process:
        answers = [ask(process, request, "127.0.5.1") for _ in range(60)]
        statuses = [status_of(answer) for answer in answers]
        assert statuses[:20] == [401] * 20
        assert 429 in statuses[20:]
        last = next(answer for answer in answers if status_of(answer) == 429)
        assert b"retry-after: 60\r\n" in last
        assert code_of(last) == "too_many_rejections"
        until(lambda: rows(tmp_path, KEPT) == [(statuses.count(401),)])
        whole = genuine(json.dumps(event("genuine")).encode())
        assert b'"accepted"' in ask(process, whole, "127.0.5.1")
        assert status_of(ask(process, request, "127.0.5.2")) == 401
        refused = {status_of(ask(process, packed, "127.0.5.3")) for _ in range(40)}
        assert refused == {415, 429}
        figures = process.request("GET", "/metrics")[2]
        assert b'tallyhook_deliveries_total{source="shop",verdict="too_many_rejections"}' in figures
        process.end()
    written = [line for line in process.lines if line.get("verdict") == "signature_missing"]
    assert len(written) == statuses.count(401) + 1


def test_rejections_of_all_together_are_counted_when_they_are_not_kept(tmp_path: Path) -> None:
    """From ever new addresses each gets 401, few are kept and logged, all are counted."""
    request = post("/webhooks/shop", body=b"{}")
    with serving(tmp_path, REJECTIONS_PER_MINUTE="10") as process:
        answers = [ask(process, request, f"127.0.8.{number}") for number in range(1, 61)]
        assert [status_of(answer) for answer in answers] == [401] * 60
        until(lambda: rows(tmp_path, KEPT)[0][0] >= 10)
        assert rows(tmp_path, KEPT)[0][0] <= 30
        figures = process.request("GET", "/metrics")[2].decode()
        assert (
            'tallyhook_deliveries_total{source="shop",verdict="signature_missing"} 60.0' in figures
        )


def test_behind_a_proxy_that_is_named_the_address_is_the_senders(tmp_path: Path) -> None:
    """Each sender behind it has an allowance; an unnamed proxy has only its own."""
    settings = {
        "FORWARDED_ALLOW_IPS": "127.0.6.0/24",
        "REJECTIONS_PER_MINUTE_PER_ADDRESS": "3",
        "MAX_CONNECTIONS_PER_ADDRESS": "2",
    }
    with serving(tmp_path, **settings) as process:

        def status(sender: str, proxy: str) -> int:
            request = post("/webhooks/shop", f"x-forwarded-for: {sender}", body=b"{}")
            return status_of(ask(process, request, proxy))

        assert [status("203.0.113.1", "127.0.6.1") for _ in range(4)] == [401, 401, 401, 429]
        assert status("203.0.113.2", "127.0.6.1") == 401
        # What the sender himself put in front of the proxy's word does not count.
        assert status("198.51.100.9, 203.0.113.1", "127.0.6.1") == 429
        spoofed = [status(f"203.0.113.{number}", "127.0.7.1") for number in range(4, 8)]
        assert spoofed == [401, 401, 401, 429]
        opened = [connect(process, "127.0.6.1") for _ in range(5)]
        opened[-1].sendall(b"GET /livez HTTP/1.1\r\nhost: a\r\n\r\n")
        assert opened[-1].recv(65_536).startswith(b"HTTP/1.1 200")
        for each in opened:
            each.close()


def test_a_full_queue_is_told_and_loses_nothing(tmp_path: Path) -> None:
    """With room for one, many at once get 200 or 503 with Retry-After; what got 200 is there."""

    def send(number: int) -> bytes:
        return ask(process, genuine(json.dumps(of_order(f"O-{number}", f"e-{number}")).encode()))

    with serving(tmp_path, INBOX_QUEUE="1", INBOX_BATCH="1") as process:
        with (tmp_path / "t.db.writing").open("r+b") as writing, ThreadPoolExecutor(24) as pool:
            fcntl.flock(writing, fcntl.LOCK_EX)  # nobody writes until the queue was full
            sent = [pool.submit(send, number) for number in range(120)]
            until(lambda: any(each.done() for each in sent))
            fcntl.flock(writing, fcntl.LOCK_UN)
            answers = [each.result() for each in sent]
        assert {status_of(answer) for answer in answers} == {200, 503}
        assert all(b"retry-after: 5\r\n" in each for each in answers if status_of(each) == 503)
        acknowledged = [n for n, answer in enumerate(answers) if status_of(answer) == 200]
        assert process.end() == 0  # what was accepted is read first
    kept = {row[0] for row in rows(tmp_path, "SELECT event_id FROM deliveries")}
    assert {f"e-{number}" for number in acknowledged} <= kept
