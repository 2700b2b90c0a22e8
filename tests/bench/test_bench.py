"""The bench's own pieces at a tiny size: right results hold, and wrong ones do not."""

import hashlib
import json
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import StringIO
from pathlib import Path

import httpx2
import pytest
from rich.console import Console

from app.core.clock import SystemClock
from app.providers.request import Incoming
from reconcile.instants import MINUTE, Instant
from reconcile.ledger.events import Delivery
from reconcile.ledger.fold import fold
from reconcile.ledger.history import History
from reconcile.ledger.policy import Policy
from tests.bench import machine, obvious, sampler, stored
from tests.bench.__main__ import arguments
from tests.bench.burst import Rounds, Turn, figures_of
from tests.bench.dataset import arrivals, fill
from tests.bench.generator import prepared
from tests.bench.load import Course, Leg, Target, is_whole, quantile, send
from tests.bench.orders import SCRIPTS, Stretch, order_reference
from tests.bench.report import Figure, number, print_figures, write_json
from tests.bench.requests import mixed, source
from tests.bench.shared import Shared, rate, shared_figures
from tests.bench.sizes import Bar
from tests.bench.stored import Audit

AT = Instant(1_795_168_800_000_000)
"""2026-11-20T10:00:00Z"""

SECRET = "whsec_" + "A" * 44
STRETCH = Stretch(seed=7, first=3, count=2 * len(SCRIPTS))


# --- the ground truth ----------------------------------------------------------------------------


def test_every_script_folds_to_the_outcome_the_ground_truth_says() -> None:
    numbers = range(STRETCH.first, STRETCH.first + STRETCH.count)
    for place, messages in zip(numbers, STRETCH.messages(ended_at=AT), strict=True):
        arrived = [
            Delivery(delivery_id=each.delivery_id, received_at=AT, event=each.event)
            for each in arrivals(iter(messages), source(SECRET), AT)
            if each.event
        ]
        history = History(order=order_reference(place), deliveries=frozenset(arrived))
        ledger = fold(history, policy=Policy(), as_of=AT + MINUTE)
        assert ledger.outcome == SCRIPTS[place % len(SCRIPTS)][0]


def test_the_ids_named_without_the_messages_are_those_of_the_messages() -> None:
    told = [m.event_id for order in STRETCH.messages(ended_at=AT) for m in order]
    assert list(STRETCH.event_ids()) == told
    assert len(set(told)) == STRETCH.events
    assert told != sorted(told)


def test_bodies_are_about_as_long_as_the_service_is_promised_to_get() -> None:
    sizes = [len(m.body) for order in STRETCH.messages(ended_at=AT) for m in order]
    assert 400 < sum(sizes) / len(sizes) < 500


def test_mixing_loses_and_adds_nothing() -> None:
    told = sorted(m.event_id for m in mixed(STRETCH, now=AT))
    assert told == sorted(STRETCH.event_ids())


def test_prepared_requests_are_genuine_and_whole() -> None:
    secret = SECRET
    requests, digests = prepared(STRETCH, secret)
    judge, total = source(secret), 0
    for request in requests:
        head, _, body = request.partition(b"\r\n\r\n")
        lines = [line.split(b": ", 1) for line in head.split(b"\r\n")[1:]]
        headers = [(name, value) for name, value in lines]
        assert (b"content-length", str(len(body)).encode()) in headers
        assert judge.verify(Incoming(headers, body), now=SystemClock().now()) is None
        total += int(hashlib.sha256(body).hexdigest(), 16)
    assert (len(requests), total) == (STRETCH.events, digests)


def test_a_body_has_the_length_that_was_asked_for_and_says_the_same() -> None:
    long = [m for order in replace(STRETCH, size=690).messages(ended_at=AT) for m in order]
    plain = [m for order in STRETCH.messages(ended_at=AT) for m in order]
    assert {len(each.body) for each in long} == {690}
    for one, other in zip(long, plain, strict=True):
        said, wanted = json.loads(one.body), json.loads(other.body)
        assert len(said.pop("note")) > 100
        assert said["id"] == wanted["id"]
        assert said["data"]["order"] == wanted["data"]["order"]


def test_requests_for_a_rate_are_dated_for_their_turns() -> None:
    requests, _ = prepared(STRETCH, SECRET, rate=1)
    dates = [int(each.split(b"webhook-timestamp: ")[1].split(b"\r")[0]) for each in requests]
    assert dates == list(range(dates[0], dates[0] + STRETCH.events))


# --- the load ------------------------------------------------------------------------------------


@contextmanager
def answering(body: bytes, *, status: int = 200) -> Iterator[Target]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def send_header(self, keyword: str, value: str) -> None:
            super().send_header(keyword.lower(), value)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield Target(port=listening.server_address[1], pid=os.getpid())
        finally:
            listening.shutdown()
            thread.join()


def test_a_leg_counts_every_answer_but_the_warm_up() -> None:
    requests, _ = prepared(Stretch(seed=1, first=0, count=10), SECRET)
    with answering(b'{"verdict": "accepted"}') as target:
        leg = send(requests, target=target, connections=4, warm=8, times=2)
        first = send(requests, target=target, connections=4, warm=1, times=2, count=5)
    assert (first.sent, first.counted) == (10, 9)
    assert (leg.sent, leg.counted, leg.refused) == (80, 72, [])
    assert 0 < leg.p50_ms <= leg.p99_ms
    assert leg.rate == pytest.approx(72 / leg.seconds)


def test_the_clock_starts_with_the_last_answer_of_the_warm_up_and_stops_with_the_last() -> None:
    course = Course([b""], total=4, warm=2, pid=os.getpid())
    begun, ended = [], []
    for place in range(4):
        course.answer(place, 0.001, True)
        begun.append(course.started[0] > 0)
        ended.append(course.ended[0] > 0)
    assert (begun, ended) == ([False, True, True, True], [False, False, False, True])


@pytest.mark.parametrize(("body", "status"), [(b'{"verdict": "duplicate"}', 200), (b"", 503)])
def test_only_a_stored_delivery_counts_as_acknowledged(body: bytes, status: int) -> None:
    requests, _ = prepared(Stretch(seed=1, first=0, count=2), SECRET)
    with answering(body, status=status) as target:
        leg = send(requests, target=target, connections=2, warm=1)
    assert sorted(leg.refused) == list(range(8))


@pytest.mark.parametrize(
    ("data", "whole"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nab", True),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\na", False),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n", False),
        (b"HTTP/1.1 204 No Content\r\n\r\n", True),
    ],
)
def test_an_answer_is_whole_when_its_announced_body_is_there(data: bytes, whole: bool) -> None:
    assert is_whole(data) is whole


def test_a_family_counts_children_and_the_processor_time_of_those_that_ended() -> None:
    busy = "import time; ends = time.process_time() + 0.3\nwhile time.process_time() < ends: pass"
    before, alone = machine.family_seconds(os.getpid()), machine.family_mib(os.getpid())
    subprocess.run([sys.executable, "-c", busy], check=True)
    assert machine.family_seconds(os.getpid()) - before > 0.25
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        while machine.rss_mib(child.pid) < 5:
            time.sleep(0.01)
        assert child.pid in machine.family(os.getpid())
        assert machine.family_mib(os.getpid()) > alone
        child.communicate(b"\n")
    assert child.pid not in machine.family(os.getpid())


def test_quantiles_are_values_that_were_seen() -> None:
    values = [float(n) for n in range(1, 101)]
    assert (quantile(values, 0.5), quantile(values, 0.99), quantile([4.0], 0.99)) == (51, 100, 4)


# --- the comparison with the store ---------------------------------------------------------------


@pytest.fixture
def filled(tmp_path: Path) -> tuple[Path, int]:
    """Return a database with the stretch's deliveries and right ledgers, and the digests' sum."""
    path = tmp_path / "small.db"
    fill(path, STRETCH, source(SECRET))
    with closing(sqlite3.connect(path)) as connection, connection:
        outcomes = STRETCH.outcomes().elements()
        connection.executemany(
            "INSERT INTO ledgers "
            "(order_key, as_of, outcome, fulfillable, findings, substance, rules) "
            "VALUES (?, 0, ?, 0, '', '', '')",
            [(f"o{place}", outcome) for place, outcome in enumerate(outcomes)],
        )
        digests = connection.execute("SELECT digest FROM deliveries").fetchall()
    return path, sum(int(digest, 16) for (digest,) in digests)


def change(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement)


def test_the_audit_of_a_store_that_holds_just_what_was_sent_is_clean(
    filled: tuple[Path, int],
) -> None:
    path, digests = filled
    assert stored.audit(path, sent=[STRETCH], digests=digests) == Audit(
        stored=STRETCH.events,
        lost=0,
        surplus=0,
        bodies_agree=True,
        folded=STRETCH.count,
        outcomes_agree=True,
    )


def test_the_shares_of_the_disk_are_of_all_its_pages(filled: tuple[Path, int]) -> None:
    shares = stored.shares_of_disk(filled[0])
    assert "deliveries" in dict(shares)
    assert sum(share for _, share in shares) == pytest.approx(1)
    assert shares == sorted(shares, key=lambda each: -each[1])


def test_the_audit_sees_a_lost_delivery(filled: tuple[Path, int]) -> None:
    path, digests = filled
    change(path, "DELETE FROM deliveries WHERE id = (SELECT min(id) FROM deliveries)")
    found = stored.audit(path, sent=[STRETCH], digests=digests)
    assert (found.lost, found.bodies_agree) == (1, False)


@pytest.mark.parametrize("table", ["deliveries", "events"])
def test_the_audit_sees_a_doubled_row(filled: tuple[Path, int], table: str) -> None:
    path, digests = filled
    key, new = ("id", "'again'") if table == "deliveries" else ("digest", "'00'")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"CREATE TEMP TABLE copy AS SELECT * FROM {table} LIMIT 1")
        connection.execute(f"UPDATE copy SET {key} = {new}")
        if table == "events":
            connection.execute('UPDATE copy SET "row" = 1000000')
        connection.execute(f"INSERT INTO {table} SELECT * FROM copy")
    assert stored.audit(path, sent=[STRETCH], digests=digests).surplus == 1


def test_the_audit_sees_a_delivery_that_was_never_sent(filled: tuple[Path, int]) -> None:
    path, digests = filled
    less = replace(STRETCH, count=STRETCH.count - 1)
    assert stored.audit(path, sent=[less], digests=digests).surplus == 4


def test_the_audit_sees_a_wrong_outcome(filled: tuple[Path, int]) -> None:
    path, digests = filled
    change(path, "UPDATE ledgers SET outcome = 'failed' WHERE order_key = 'o0'")
    assert not stored.audit(path, sent=[STRETCH], digests=digests).outcomes_agree


# --- figures and their report --------------------------------------------------------------------


BAR, CEILING = Bar(10.0, "at least", 20.0), Bar(10.0, "at most", 5.0)


def figure(value: float = 1.0, **more: object) -> Figure:
    return Figure(name="speed", value=value, unit="per second", **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "bar", "verdict"),
    [(9.9, BAR, "MISSED"), (10.0, BAR, "held"), (20.0, BAR, "goal"),
     (5.0, CEILING, "goal"), (10.0, CEILING, "held"), (10.1, CEILING, "MISSED"),
     (1.0, None, "")],
)  # fmt: skip
def test_a_figure_holds_when_its_value_meets_its_bar(
    value: float, bar: Bar | None, verdict: str
) -> None:
    found = figure(value, bar=bar)
    assert (found.verdict, found.holds) == (verdict, verdict != "MISSED")


def test_a_bar_in_seconds_grows_with_the_job() -> None:
    assert CEILING.times(0.5) == Bar(5.0, "at most", 2.5)


def test_no_speed_makes_up_for_a_wrong_answer() -> None:
    assert not figure(99.0, bar=BAR, checks={"nothing is lost": False}).holds
    assert not figure(99.0, checks={"nothing is lost": False}).holds


def test_the_file_is_the_list_that_the_interface_promises(tmp_path: Path) -> None:
    path = tmp_path / "var" / "bench.json"
    write_json(path, [figure(9.0, bar=BAR, details={"rounds": 3}), figure()])
    missed, free = json.loads(path.read_text(encoding="utf-8"))
    assert set(missed) == {"name", "value", "unit", "bar", "holds", "details"} == set(free)
    assert (missed["bar"], missed["holds"], missed["details"]["rounds"]) == (10.0, False, 3)
    assert (free["bar"], free["holds"]) == (None, True)


def test_the_table_shows_correctness_beside_speed() -> None:
    console = Console(file=StringIO(), width=120)
    print_figures(console, [figure(9.0, bar=BAR, checks={"nothing is lost": False})])
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "≥ 10" in shown
    assert "nothing is lost: NO" in shown


def test_what_bounds_a_missed_figure_stands_below_the_table() -> None:
    console = Console(file=StringIO(), width=120)
    details = {"profile": ["fold c 75.0%"]}
    print_figures(console, [figure(9.0, bar=BAR, details=details)])
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "what bounds it\n  speed: fold c 75.0%" in shown


def test_numbers_are_as_long_as_they_are_useful() -> None:
    assert [number(v) for v in (1234567, 34543.2, 0.45321, 12, True, [2.0, 3.14159])] == [
        "1,234,567", "34,543", "0.453", "12", "True", "2, 3.14",
    ]  # fmt: skip


def leg(*, seconds: float = 1.0, refused: int = 0) -> Leg:
    return Leg(
        sent=110, counted=100, refused=list(range(refused)), seconds=seconds, p50_ms=1.0,
        p99_ms=2.0, generator_cpu=0.1, server_cpu=0.9,
    )  # fmt: skip


def turn(*, rate: float, whole: float = 1.0) -> Turn:
    return Turn(
        leg=leg(seconds=100 / rate), whole=whole * 110e-6, receiver=whole * 44e-6, settling=1.0
    )


def rounds(**checks: bool) -> Rounds:
    """Return a warm-up that nothing may count, and two rounds."""
    done = Rounds(drained=[9_000.0, 9_000.0, 9_000.0], checks=checks)
    rates = {"service": 2_000, "obvious": 100, "lean": 1_000, "nothing": 8_000}
    for side, each in rates.items():
        whole = 400.0 if side == "service" else 100.0
        done.turns[side] = [turn(rate=1.0), *(turn(rate=each, whole=whole) for _ in range(2))]
    done.profile = Counter({("receive", "a"): 40, ("read", "b"): 15, ("fold", "c"): 45})
    return done


def test_a_burst_is_compared_with_all_that_do_less_without_the_warm_up() -> None:
    obvious, lean, receiver, whole, drained = figures_of(rounds(whole=True))
    assert [obvious.value, lean.value, drained.value] == pytest.approx([20, 2, 9_000])
    assert [receiver.value, whole.value] == pytest.approx([1.6, 4])
    told = [whole.details[f"of it {stage}"] for stage in ("receive", "read", "fold", "seal")]
    assert told == pytest.approx([160, 60, 180, 0])
    assert whole.details["profile"] == ["fold c 45.0%", "receive a 40.0%", "read b 15.0%"]
    assert drained.details["profile"] == ["fold c 75.0%", "read b 25.0%"]


def test_no_figure_of_a_burst_holds_with_a_delivery_lost() -> None:
    assert not any(figure.holds for figure in figures_of(rounds(none_is_lost=False)))


@pytest.mark.parametrize("opened", [obvious.with_sessions, obvious.with_a_thread])
async def test_the_obvious_receiver_keeps_what_is_genuine_once(
    tmp_path: Path, opened: obvious.Opens
) -> None:
    app = obvious.application(str(tmp_path / "o.db"), SECRET, opened)
    requests, _ = prepared(replace(STRETCH, count=1), SECRET)
    statuses = []
    async with app.router.lifespan_context(app):
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://bench") as client:
            for request in [*requests, requests[0], requests[0] + b" "]:
                head, _, body = request.partition(b"\r\n\r\n")
                lines = [line.split(b": ", 1) for line in head.split(b"\r\n")[1:]]
                headers = [(name, value) for name, value in lines if name != b"content-length"]
                answer = await client.post("/webhooks/shop", content=body, headers=headers)
                statuses.append(answer.status_code)
    assert statuses == [200] * 5 + [401]
    with closing(sqlite3.connect(tmp_path / "o.db")) as connection:
        assert connection.execute("SELECT count(*) FROM webhook").fetchone() == (4,)


def test_a_profile_charges_processor_time_to_the_stage_that_used_it(tmp_path: Path) -> None:
    """A child process folds for half a second."""
    samples = sampler.planted(tmp_path)
    code = (
        "import time\nfrom tests.bench.test_bench import AT, STRETCH\n"
        "from reconcile.ledger.fold import fold\n"
        "from reconcile.ledger.history import History\n"
        "from reconcile.ledger.policy import Policy\n"
        "ends = time.thread_time() + 0.5\n"
        "while time.thread_time() < ends:\n"
        "    fold(History(order='1', deliveries=frozenset()), policy=Policy(), as_of=AT)\n"
    )
    subprocess.run([sys.executable, "-c", code], env=os.environ | samples, check=True)
    found = sampler.sampled(tmp_path, 0)
    spent = dict.fromkeys(sampler.STAGES, 0)
    for (stage, _), used in found.items():
        spent[stage] += used
    assert spent["fold"] > 0.1e9  # between two folds it is nobody's
    assert spent["start"] > spent["seal"] + spent["read"] == 0


def test_processes_that_take_turns_are_no_faster_together() -> None:
    assert rate([leg(seconds=2.0)]) == 50.0
    assert rate([leg(seconds=0.5), leg(seconds=2.0)]) == 100.0


def test_the_ratio_on_postgresql_is_that_of_sides_that_met_the_same_machine() -> None:
    served = [[leg(seconds=seconds)] for seconds in (99.0, 2.0, 20.0, 2.0)]
    idle = [[leg(seconds=seconds)] for seconds in (1.0, 1.0, 10.0, 0.5)]
    shared = Shared(served=served, idle=idle, sent=1, stored=1)
    ratio = shared_figures({1: shared, 2: shared})[0]
    assert ratio.value == 0.5
    assert ratio.details["per round"] == [0.5, 0.5, 0.25]


def test_an_unknown_part_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        arguments(["nothing"])
    assert "there is no 'nothing'" in capsys.readouterr().err
