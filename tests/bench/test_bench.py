"""The bench's own pieces at a tiny size: right results hold, and wrong ones do not."""

import hashlib
import json
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from app.core.clock import SystemClock
from app.providers.request import Incoming
from reconcile.matching.causes import ORDER_CAUSES
from tests.bench import engine, stored
from tests.bench.__main__ import arguments
from tests.bench.dataset import fill
from tests.bench.generator import prepared
from tests.bench.ingest import Rounds, Served, ingest_figures
from tests.bench.load import Course, Leg, Target, is_whole, quantile, send
from tests.bench.matching import match_figures, match_month
from tests.bench.orders import SCRIPTS, Stretch
from tests.bench.processes import Ran
from tests.bench.rebuild import Rebuilt, rebuild_figures
from tests.bench.report import Figure, number, print_figures, write_json
from tests.bench.requests import mixed, source
from tests.bench.shared import Shared, rate, shared_figures
from tests.bench.sizes import Bar
from tests.bench.stored import Audit

STRETCH = Stretch(seed=7, first=3, count=2 * len(SCRIPTS))


# --- the ground truth ----------------------------------------------------------------------------


def test_every_script_folds_to_the_outcome_the_ground_truth_says() -> None:
    numbers = range(STRETCH.first, STRETCH.first + STRETCH.count)
    for place, messages in zip(numbers, STRETCH.messages(ended_at=engine.AT), strict=True):
        ledger = engine.fold_once(engine.history_of(messages))
        assert ledger.outcome == SCRIPTS[place % len(SCRIPTS)][0]


def test_the_ids_named_without_the_messages_are_those_of_the_messages() -> None:
    told = [m.event_id for order in STRETCH.messages(ended_at=engine.AT) for m in order]
    assert list(STRETCH.event_ids()) == told
    assert len(set(told)) == STRETCH.events
    assert told != sorted(told)


def test_bodies_are_about_as_long_as_the_service_is_promised_to_get() -> None:
    sizes = [len(m.body) for order in STRETCH.messages(ended_at=engine.AT) for m in order]
    assert 400 < sum(sizes) / len(sizes) < 500


def test_mixing_loses_and_adds_nothing() -> None:
    told = sorted(m.event_id for m in mixed(STRETCH, now=engine.AT))
    assert told == sorted(STRETCH.event_ids())


def test_prepared_requests_are_genuine_and_whole() -> None:
    secret = "whsec_" + "A" * 44
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


def test_the_crooked_history_has_seven_deliveries_and_is_found_crooked() -> None:
    crooked = engine.crooked_history()
    assert len(crooked.deliveries) == 7
    assert engine.found_in(engine.fold_once(crooked)) >= engine.WANTED


def test_the_signed_kilobyte_is_a_genuine_kilobyte() -> None:
    reader, request = engine.signed_kilobyte()
    assert len(request.body) == 1024
    assert reader.verify(request, now=engine.AT) is None
    assert reader.verify(request._replace(body=request.body + b" "), now=engine.AT) is not None


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
    requests, _ = prepared(Stretch(seed=1, first=0, count=10), "whsec_" + "A" * 44)
    with answering(b'{"verdict": "accepted"}') as target:
        leg = send(requests, target=target, connections=4, warm=8, times=2)
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
    requests, _ = prepared(Stretch(seed=1, first=0, count=2), "whsec_" + "A" * 44)
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


def test_quantiles_are_values_that_were_seen() -> None:
    values = [float(n) for n in range(1, 101)]
    assert (quantile(values, 0.5), quantile(values, 0.99), quantile([4.0], 0.99)) == (51, 100, 4)


# --- the comparison with the store ---------------------------------------------------------------


@pytest.fixture
def filled(tmp_path: Path) -> tuple[Path, int]:
    """Return a database with the stretch's deliveries and right ledgers, and the digests' sum."""
    path = tmp_path / "small.db"
    fill(path, STRETCH, engine.new_source())
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


def test_a_filled_database_waits_for_all_its_orders_to_be_folded(
    filled: tuple[Path, int],
) -> None:
    assert stored.due(filled[0]) == STRETCH.count


# --- figures and their report --------------------------------------------------------------------


BAR, CEILING = Bar(10.0, "at least"), Bar(10.0, "at most")


def figure(value: float = 1.0, **more: object) -> Figure:
    return Figure(name="speed", value=value, unit="per second", **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "bar", "holds"),
    [(9.9, BAR, False), (10.0, BAR, True), (10.1, BAR, True),
     (9.9, CEILING, True), (10.0, CEILING, True), (10.1, CEILING, False)],
)  # fmt: skip
def test_a_figure_holds_when_its_value_meets_its_bar(value: float, bar: Bar, holds: bool) -> None:
    assert figure(value, bar=bar).holds is holds


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


def test_numbers_are_as_long_as_they_are_useful() -> None:
    assert [number(v) for v in (1234567, 34543.2, 0.45321, 12, True)] == [
        "1,234,567", "34,543", "0.453", "12", "True",
    ]  # fmt: skip


def test_a_fold_without_the_findings_it_must_have_does_not_hold() -> None:
    quick = engine.Cost(best=1.0, median=1.0)
    assert engine.fold_figure(quick, engine.WANTED, 7).holds
    assert not engine.fold_figure(quick, frozenset({"redelivered"}), 7).holds


def leg(*, seconds: float = 1.0, refused: int = 0) -> Leg:
    return Leg(
        sent=110, counted=100, refused=list(range(refused)), seconds=seconds, p50_ms=1.0,
        p99_ms=2.0, generator_cpu=0.1, server_cpu=0.9,
    )  # fmt: skip


def rounds(*, refused: int = 0, lost: int = 0) -> Rounds:
    served = [Served(leg=leg(seconds=9.0), waiting=0, settling=0.0)]
    served += [Served(leg=leg(seconds=2.0, refused=refused), waiting=5, settling=2.0)]
    audit = Audit(
        stored=220, lost=lost, surplus=0, bodies_agree=True, folded=55, outcomes_agree=True
    )
    return Rounds(served=served, idle=[leg(), leg()], audit=audit)


def test_the_ingest_ratio_leaves_the_warm_up_out_and_shows_the_folding_left_over() -> None:
    ratio = ingest_figures(rounds())[0]
    assert (ratio.value, ratio.holds) == (0.5, True)
    assert ratio.details["with the folding that was left over"] == 0.25


def test_the_ingest_ratio_does_not_hold_beside_a_starved_yardstick() -> None:
    starved = rounds()
    starved.idle = [replace(each, server_cpu=0.5) for each in starved.idle]
    assert not ingest_figures(starved)[0].holds


@pytest.mark.parametrize("wrong", [{"refused": 1}, {"lost": 1}])
def test_the_ingest_ratio_does_not_hold_when_a_delivery_is_missing(wrong: dict[str, int]) -> None:
    assert not ingest_figures(rounds(**wrong))[0].holds


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


def test_a_rebuild_on_two_cores_does_not_hold_with_other_ledgers() -> None:
    start, one, two = (
        Ran(seconds=seconds, processor=seconds, peak_rss_mib=1.0) for seconds in (1.0, 11.0, 6.0)
    )
    rebuilt = Rebuilt(
        events=1_000_000, ran=one, on_two=two, digests=("a", "a"), first=one, empty=start,
        scan=1.0, before=0, ledgers=250_000, right=True,
    )  # fmt: skip
    _, figure, _ = rebuild_figures(rebuilt)
    assert (figure.value, figure.holds) == (200_000, True)
    _, figure, _ = rebuild_figures(replace(rebuilt, digests=("a", "b")))
    assert not figure.holds


def test_an_unknown_part_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        arguments(["nothing"])
    assert "there is no 'nothing'" in capsys.readouterr().err


# --- matching ------------------------------------------------------------------------------------


def test_a_month_is_matched_in_a_process_of_its_own_and_compared(tmp_path: Path) -> None:
    """Every break of the truth is found and no other; speed with a wrong answer holds nothing."""
    found = match_month(tmp_path, orders=2_500)
    assert (found.false, found.missed, found.ties) == (0, 0, True)
    assert found.breaks >= len(ORDER_CAUSES)
    assert found.of_each == 1
    for wrong in (replace(found, false=1), replace(found, missed=1), replace(found, ties=False)):
        assert not match_figures(wrong)[0].holds
