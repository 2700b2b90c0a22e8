"""One event is one line, and nothing passes that has no field of its own."""

import fcntl
import io
import json
import logging
import os
import pty
import unicodedata
import warnings
from collections.abc import Callable, Iterator
from threading import Thread
from typing import Any, TextIO

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from app.core import logs
from app.core.clock import SetClock
from app.core.logs import (
    FIELDS,
    MAX_VALUE_CHARS,
    LogLine,
    configure_logging,
    lost_lines,
    one_line,
)
from reconcile.instants import Instant

AT = Instant(1_795_168_800_123_456)
PHONE = "254700000001"


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """Restore the process's loggers."""
    root, uvicorn = logging.getLogger(), logging.getLogger("uvicorn.access")
    kept = root.handlers[:], root.level, uvicorn.disabled, uvicorn.propagate
    yield
    root.handlers[:], root.level = kept[:2]
    uvicorn.disabled, uvicorn.propagate = kept[2:]
    logging.captureWarnings(False)
    structlog.reset_defaults()


def to_memory(**options: Any) -> io.StringIO:
    """Log to memory, in JSON by default, with a clock that stands still."""
    stream = io.StringIO()
    configure_logging(**{"format": "json", "stream": stream, "clock": SetClock(AT), **options})
    return stream


def said(stream: io.StringIO) -> list[dict[str, Any]]:
    """Parse the lines."""
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_has_its_date_its_level_its_event_and_its_fields() -> None:
    stream = to_memory()
    structlog.get_logger().info("delivery stored", delivery="dlv_1", duration_ms=3, status=None)
    assert stream.getvalue() == (
        '{"at":"2026-11-20T10:00:00.123456Z","level":"info","event":"delivery stored",'
        '"delivery":"dlv_1","duration_ms":3,"status":null}\n'
    )


def test_fields_without_a_name_of_ours_are_dropped_and_counted() -> None:
    stream = to_memory()
    structlog.get_logger().info("x", phone=PHONE, body=PHONE, secret=PHONE, source="shop")
    assert said(stream)[0] | {"at": ""} == {
        "at": "", "level": "info", "event": "x", "source": "shop", "dropped_fields": 3,
    }  # fmt: skip
    assert PHONE not in stream.getvalue()


def test_the_console_drops_and_counts_too() -> None:
    stream = to_memory(format="console")
    structlog.get_logger().warning("late event", phone=PHONE, source="shop", reason="two words")
    assert stream.getvalue() == (
        "10:00:00.123 warning  late event source=shop reason='two words' dropped_fields=1\n"
    )


def test_no_field_is_for_bodies_people_or_secrets() -> None:
    personal = ("phone", "body", "secret", "token", "name", "email", "header", "message", "url")
    assert not [field for field in FIELDS if any(word in field for word in personal)]


@pytest.mark.parametrize("format", ["json", "console"])
@pytest.mark.parametrize("name", ["attempt", "event_id", "kind", "order", "session"])
def test_a_number_in_a_reference_is_masked(name: str, format: str) -> None:
    """In both kinds of lines; ids and digests of ours stay as they are."""
    stream = to_memory(format=format)
    reference, ours = f"ORD-{PHONE}", "dlv_123456789012"
    structlog.get_logger().warning("x", **{name: reference}, delivery=ours)
    LogLine("x", name, "delivery")(reference, ours)
    assert (stream.getvalue().count("001"), stream.getvalue().count(ours)) == (2, 2)
    assert PHONE not in stream.getvalue()


HOSTILE = [
    "a\r\nb", "a\nb", "\x1b[31mred", "\x00", "\x7f", "\x85", "\x9b31m", "\u2028", "\u2029",
    "\u202egnp.exe", "\u2066x\u2069", "\u200fx", "\ufeff", "\ud800", "\x08" * 9, "\t", "\x0b\x0c",
    "\U000e0041", '"}\n{"level":"info"', "\\n", "é€😀",
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_stays_one_line_of_json_and_reads_back_equal(text: str) -> None:
    stream = to_memory()
    structlog.get_logger().info(text, reason=text)
    written = stream.getvalue()
    assert all(32 <= ord(character) < 127 for character in written[:-1])
    line = json.loads(written)
    assert (line["event"], line["reason"]) == (text, text)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_stays_one_printable_line_on_the_console(text: str) -> None:
    stream = to_memory(format="console")
    structlog.get_logger().info(text, reason=text)
    written = stream.getvalue()
    assert len(written.splitlines()) == 1
    assert not dangerous(written[:-1])


def dangerous(text: str) -> list[str]:
    """Return the controls, formats, separators and surrogates of Unicode."""
    return [c for c in text if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp")
            or unicodedata.bidirectional(c) in
            ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")]  # fmt: skip


@given(st.text(st.characters()))
def test_any_text_is_made_one_safe_line(text: str) -> None:
    line = one_line(text, 100)
    assert len(line.splitlines()) <= 1
    assert not dangerous(line)


def test_values_are_cut_at_their_limit_and_not_before() -> None:
    stream = to_memory()
    log = structlog.get_logger()
    log.info("x", reason="a" * MAX_VALUE_CHARS)
    log.info("x", reason="a" * (MAX_VALUE_CHARS + 1))
    log.info("x", reason=["a"] * 21)
    lines = said(stream)
    assert lines[0]["reason"] == "a" * MAX_VALUE_CHARS
    assert lines[1]["reason"] == "a" * MAX_VALUE_CHARS + "… 1 more"
    assert lines[2]["reason"] == ["a"] * 20 + ["1 more"]


class Talkative:
    """Object whose text would say too much."""

    def __str__(self) -> str:
        return PHONE

    __repr__ = __str__


class Text(str):
    """Text that shows itself as another."""

    __slots__ = ()

    def __str__(self) -> str:
        return PHONE


@pytest.mark.parametrize("format", ["json", "console"])
def test_of_other_objects_only_the_type_is_written(format: str) -> None:
    stream = to_memory(format=format)
    structlog.get_logger().info("x", reason=Talkative(), order=[Talkative()], source={"a": PHONE})
    assert PHONE not in stream.getvalue()
    assert "Talkative" in stream.getvalue()


@pytest.mark.parametrize(("value", "written"), [
    (True, True), (1.5, 1.5), (float("inf"), "inf"), (frozenset({"b", "a"}), ["a", "b"]),
    (Text("ok"), "ok"), (10**30, 10**30), ((), []),
])  # fmt: skip
def test_values_of_json_are_written_as_such(value: Any, written: Any) -> None:
    stream = to_memory()
    structlog.get_logger().info("x", reason=value)
    assert said(stream)[0]["reason"] == written


def fail() -> None:
    """Raise an error that quotes personal data."""
    raise ValueError(f"cannot parse {PHONE}")


@pytest.mark.parametrize("format", ["json", "console"])
def test_an_exception_is_its_class_and_its_places_never_its_message(format: str) -> None:
    stream = to_memory(format=format)
    try:
        fail()
    except ValueError:
        structlog.get_logger().exception("it failed", step=3)
    assert PHONE not in stream.getvalue()
    assert "ValueError" in stream.getvalue()
    assert "test_logs.py" in stream.getvalue()
    assert "fail < test_logs.py" in stream.getvalue()
    assert len(stream.getvalue().splitlines()) == 1
    assert "error" in stream.getvalue()


@pytest.mark.parametrize("level", ["debug", "info", "warning", "error"])
def test_lines_below_the_level_are_not_written(level: str) -> None:
    stream = to_memory(level=level)
    log = structlog.get_logger()
    for method in ("debug", "info", "warning", "error"):
        getattr(log, method)("x")
    written = [line["level"] for line in said(stream)]
    assert written == ["debug", "info", "warning", "error"][-len(written) :]
    assert written[0] == level


def test_a_logger_that_was_used_before_follows_a_new_configuration() -> None:
    log = structlog.get_logger()
    to_memory(level="error")
    log.info("v")  # the logger takes its methods here, for good
    first = to_memory()
    log.info("x")
    second = to_memory(format="console", level="warning")
    log.info("y")
    log.error("z")
    assert [line["event"] for line in said(first)] == ["x"]
    assert second.getvalue() == "10:00:00.123 error    z\n"


LIBRARIES: list[tuple[Callable[[], None], str | None]] = [
    (lambda: logging.getLogger("uvicorn.error").info("Started [%d]", 42), "Started [42]"),
    (lambda: logging.getLogger("uvicorn.error").info("Bad %d", "x"), "Bad %d"),
    (lambda: logging.getLogger("uvicorn.access").info("GET %s", PHONE), None),
    (lambda: logging.getLogger("aiosqlite").debug("execute %s", PHONE), None),
    (lambda: logging.getLogger("httpx2").info("GET %s", PHONE), None),
    (lambda: logging.getLogger("some.library").warning("took %s", PHONE), "took %s"),
    (lambda: logging.getLogger("asyncio").error(f"never got\nfuture: {PHONE}"), "never got"),
    (lambda: warnings.warn(f"deprecated {PHONE}", UserWarning, stacklevel=1), "UserWarning"),
]  # fmt: skip


@pytest.mark.parametrize(("speak", "event"), LIBRARIES)
def test_libraries_speak_through_us_without_their_values(
    speak: Callable[[], None], event: str | None
) -> None:
    stream = to_memory()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(True)
        speak()
    logging.captureWarnings(False)
    assert PHONE not in stream.getvalue()
    assert len(said(stream)) == (0 if event is None else 1)
    assert event is None or event in said(stream)[0]["event"]
    assert event is None or said(stream)[0]["logger"]


def test_a_library_exception_is_its_class_and_places() -> None:
    stream = to_memory()
    try:
        fail()
    except ValueError:
        logging.getLogger("uvicorn.error").error("Exception in ASGI application\n", exc_info=True)
    line = said(stream)[0]
    assert line["event"] == "Exception in ASGI application"
    assert line["error_class"] == "builtins.ValueError"
    assert PHONE not in stream.getvalue()


class Terminal(io.StringIO):
    """Stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_auto_is_coloured_text_on_a_terminal_and_json_elsewhere() -> None:
    terminal = Terminal()
    to_memory(format="auto", stream=terminal)
    structlog.get_logger().info("x")
    assert terminal.getvalue() == "10:00:00.123 \x1b[32minfo    \x1b[0m x\n"
    stream = to_memory(format="auto")
    structlog.get_logger().info("x")
    assert said(stream)[0]["event"] == "x"


class Full(io.StringIO):
    """Stream on a full disk."""

    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")


def test_a_log_that_cannot_be_written_stops_nobody_and_is_counted() -> None:
    before = lost_lines()
    to_memory(stream=Full())
    structlog.get_logger().info("x")
    closed = io.StringIO()
    to_memory(stream=closed)
    closed.close()
    structlog.get_logger().info("x")
    assert lost_lines() == before + 2


@pytest.fixture
def pipe() -> Iterator[tuple[int, TextIO]]:
    """Open a pipe of 4 KiB; yield its reading end, and a stream to write to."""
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    with open(writing, "w", encoding="utf-8") as stream:
        yield reading, stream
    os.close(reading)


def test_a_log_that_nobody_reads_holds_nobody_up(
    pipe: tuple[int, TextIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines are lost and counted, and written again, whole, when somebody reads."""
    monkeypatch.setattr(logs, "HELD_UP_MS", 1)
    reading, stream = pipe
    before = lost_lines()
    to_memory(stream=stream)
    for number in range(200):
        structlog.get_logger().info("x", count=number)
    lost = lost_lines() - before
    kept = [json.loads(line)["count"] for line in os.read(reading, 65_536).splitlines()]
    assert kept == list(range(200 - lost))
    assert 0 < lost < 200
    structlog.get_logger().info("x", count=200)
    assert json.loads(os.read(reading, 65_536))["count"] == 200
    assert lost_lines() == before + lost


def test_a_terminal_that_nobody_reads_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as that of a dead connection."""
    monkeypatch.setattr(logs, "HELD_UP_MS", 1)
    reading, writing = pty.openpty()
    before = lost_lines()
    with open(writing, "w", encoding="utf-8") as stream:
        to_memory(stream=stream)
        for number in range(1_000):
            structlog.get_logger().info("x", count=number)
        lost = lost_lines() - before
        to_memory()
        kept = os.read(reading, 65_536)
    os.close(reading)
    assert 0 < lost < 1_000
    assert json.loads(kept.splitlines()[0])["count"] == 0


def test_a_line_that_was_cut_off_does_not_run_into_the_next(
    pipe: tuple[int, TextIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "HELD_UP_MS", 1)
    reading, stream = pipe
    to_memory(stream=stream)
    logs._OUTPUT.msg("a" * 10_000 + "\n")
    assert os.read(reading, 65_536) == b"a" * 4096
    structlog.get_logger().info("x", count=7)
    cut, line = os.read(reading, 65_536).split(b"\n", 1)
    assert (cut, json.loads(line)["count"]) == (b"", 7)
    structlog.get_logger().info("x", count=8)
    assert json.loads(os.read(reading, 65_536))["count"] == 8


def test_a_line_waits_a_moment_for_who_is_slow(
    pipe: tuple[int, TextIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "HELD_UP_MS", 60_000)
    reading, stream = pipe
    to_memory(stream=stream)
    read = list[bytes]()

    def slowly() -> None:
        while part := os.read(reading, 1_000):
            read.append(part)

    reader = Thread(target=slowly)
    reader.start()
    before = lost_lines()
    for number in range(500):
        structlog.get_logger().info("x", count=number)
    to_memory()
    stream.close()
    reader.join()
    assert [json.loads(line)["count"] for line in b"".join(read).splitlines()] == list(range(500))
    assert lost_lines() == before
