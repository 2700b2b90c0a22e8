"""Budget of log lines: some a minute, one with the number left out, and every error."""

import io
import json
import logging
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from app.core import logs as logs_budget
from app.core.errors import StoreUnavailable
from app.core.logs import LogLine, configure_logging, tell_left_out
from app.core.periodic import PeriodicTask, rest_when_idle


class Clock:
    """Clock that stands still until it is moved."""

    now = 50.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    """Set the clock of new budgets, and restore the loggers afterwards."""
    root = logging.getLogger()
    kept = root.handlers[:], root.level
    standing = Clock()
    monkeypatch.setattr(logs_budget.Budget.__init__, "__defaults__", (standing,))
    yield standing
    root.handlers[:], root.level = kept
    configure_logging()
    logging.captureWarnings(False)
    structlog.reset_defaults()


def limited(lines: int, *, form: Any = "json") -> io.StringIO:
    """Log to memory, so many lines a minute."""
    stream = io.StringIO()
    configure_logging(format=form, stream=stream, lines_per_minute=lines)
    return stream


def events(stream: io.StringIO) -> Counter[str]:
    """Count each event."""
    return Counter(json.loads(line)["event"] for line in stream.getvalue().splitlines())


def test_lines_beyond_the_budget_are_counted_and_reported_once(clock: Clock) -> None:
    stream, log, line = limited(100), structlog.get_logger(), LogLine("delivery", "source")
    for _ in range(150):
        log.info("one")
        line("shop")
        log.warning("two")
    assert events(stream) == {"one": 34, "delivery": 33, "two": 33}
    tell_left_out()
    assert sum(events(stream).values()) == 100
    clock.now += 60
    tell_left_out()
    tell_left_out()
    logged = [json.loads(each) for each in stream.getvalue().splitlines()[100:]]
    assert [(each["event"], each["count"]) for each in logged] == [("log lines left out", 350)]
    log.info("one")
    assert events(stream)["one"] == 35


def test_errors_are_always_written_and_use_nothing_up(clock: Clock) -> None:
    stream, log = limited(100), structlog.get_logger()
    for _ in range(500):
        log.error("broken")
        log.info("one")
        logging.getLogger("uvicorn.error").error("their own")
        logging.getLogger("uvicorn.error").warning("their warning")
    found = events(stream)
    assert (found["broken"], found["their own"]) == (500, 500)
    assert found["one"] + found["their warning"] == 100


def test_the_next_line_tells_of_those_left_out(clock: Clock) -> None:
    stream, log = limited(100), structlog.get_logger()
    for _ in range(120):
        log.info("one")
    clock.now += 61
    log.info("two")
    said = [json.loads(each)["event"] for each in stream.getvalue().splitlines()[100:]]
    assert said == ["log lines left out", "two"]


def test_at_the_end_it_is_logged_at_once(clock: Clock) -> None:
    stream, log = limited(100, form="console"), structlog.get_logger()
    for _ in range(107):
        log.info("one")
    tell_left_out(at_once=True)
    assert stream.getvalue().splitlines()[-1].endswith("log lines left out count=7")


def test_a_minute_with_room_left_takes_nothing_from_the_next(clock: Clock) -> None:
    stream, log = limited(100), structlog.get_logger()
    for _ in range(10):
        for _ in range(90):
            log.info("one")
        clock.now += 60
    assert events(stream) == {"one": 900}


# --- what goes wrong in every round ---------------------------------------------------------------


def test_what_goes_on_is_logged_at_once_and_then_once_a_minute(clock: Clock) -> None:
    """Another reason is logged at once, and each of two that take turns once a minute."""
    again, counts = logs_budget.Repeating(clock), []
    for clock.now in range(100, 280):
        counts += [each for each in (again.times("disk"), again.times("disk")) if each]
    assert counts == [1, 120, 120]
    assert [again.times("busy"), again.times("disk"), again.times("busy")] == [1, 0, 0]
    clock.now += 60
    assert [again.times("busy"), again.times("disk")] == [2, 120 + 1]


def test_that_it_is_over_is_logged_once(clock: Clock) -> None:
    """Not between two failures of a row."""
    again = logs_budget.Repeating(clock)
    assert not again.is_over()
    again.times("disk")
    clock.now += logs_budget.CALM_S - 0.1
    assert not again.is_over()
    clock.now += 0.1
    assert [again.is_over(), again.is_over()] == [True, False]
    assert again.times("disk") == 1


async def test_a_task_that_is_put_off_in_every_round_tells_it_once(clock: Clock) -> None:
    stream, rounds = limited(100), 0

    async def work() -> int:
        nonlocal rounds
        rounds += 1
        if rounds == 50:
            task.stop()
        raise StoreUnavailable("planted", reason="disk")

    task = PeriodicTask(work, component="sealing", rest=rest_when_idle(0.001))
    await task.run()
    (line,) = map(json.loads, stream.getvalue().splitlines())
    assert (line["event"], line["component"]) == (
        "a task was postponed and is tried again",
        "sealing",
    )
    assert (line["reason"], line["count"], rounds) == ("disk", 1, 50)
