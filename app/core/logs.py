"""Logging: each event is one line of fields that are known to be harmless.

    from app.core.logs import log
    log.info("delivery stored", delivery=delivery_id, source="shop", verdict="stored")

Unknown fields are left out and counted in `dropped_fields`. The event must be a fixed text, because
a value in it would bypass the list of fields.
"""

import contextlib
import logging
import os
import re
import select
import stat
import sys
from collections.abc import Callable, MutableMapping
from json.encoder import encode_basestring_ascii
from time import monotonic
from typing import Any, Final, Literal, TextIO, cast

from app.core.clock import Clock, SystemClock
from app.core.masking import masked_reference
from reconcile.instants import EARLIEST, SECOND, format_instant

# Else structlog loads rich, 80 modules and 4 MiB, for tracebacks that we never write.
sys.modules.setdefault("rich", cast(Any, None))
import structlog  # noqa: E402

if not sys.modules["rich"]:
    del sys.modules["rich"]

log = structlog.get_logger()

MINUTE_S: Final = 60.0


CALM_S: Final = 2.0
"""Seconds without a failure after which a repeated problem counts as over."""

MOST_REASONS: Final = 100


class Repeating:
    """Kind of failure that can recur several times a second.

    Each reason is logged at once, then at most once a minute, and once at its end, so that lines do
    not fill the disk.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._failed_at = 0.0
        self._reasons: dict[str, tuple[float, int]] = {}
        """Time of the last log line, and number of failures since then, by reason."""

    def times(self, reason: str) -> int:
        """Count one more failure for this reason. Return how many a log line must report now, or
        0."""
        self._failed_at = now = self._clock()
        logged_at, count = self._reasons.get(reason, (now - MINUTE_S, 0))
        if now - logged_at < MINUTE_S:
            self._reasons[reason] = logged_at, count + 1
            return 0
        if len(self._reasons) >= MOST_REASONS:
            self._reasons.clear()
        self._reasons[reason] = now, 0
        return count + 1

    def is_over(self) -> bool:
        """Return whether a series of failures has just ended. Call this after each success."""
        if not self._reasons or self._clock() - self._failed_at < CALM_S:
            return False
        self._reasons.clear()
        return True


class Budget:
    """Limit on the number of log lines in a minute.

    The clock is read only when they are used up.
    """

    def __init__(self, lines: int | None, clock: Callable[[], float] = monotonic) -> None:
        """Allow this many lines in a minute; None for no limit."""
        self._lines = lines
        self._clock = clock
        self._left = lines or 0
        self._began = clock()
        self.left_out = 0
        """Number of lines left out since the log last reported it."""

    def take(self) -> bool:
        """Use up one line of the minute's budget. Return False if no line is left."""
        if self._left > 0:
            self._left -= 1
            return True
        if self._lines is None:
            return True
        if self._is_over():
            self._began, self._left = self._clock(), self._lines - 1
            return True
        self.left_out += 1
        return False

    def due_count(self, *, at_once: bool = False) -> int:
        """Return how many lines were left out, and reset this number. Return 0 within the first
        minute.

        at_once  whether to report earlier
        """
        if not (at_once or self._left > 0 or self._is_over()):
            return 0
        count, self.left_out = self.left_out, 0
        return count

    def _is_over(self) -> bool:
        return self._clock() - self._began >= MINUTE_S


class _Libraries(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        """Write the first line of another library's message, without its values except uvicorn's.

        Of a Python warning, only the place and the category are written.
        """
        if not _OUTPUT.admits(record.levelno):
            return
        template = str(record.msg)
        if record.name.startswith("uvicorn"):
            with contextlib.suppress(TypeError, ValueError):  # the values don't fit the template
                template = record.getMessage()
        elif record.name == "py.warnings":
            # "file:line: Category: message": the message may quote a value.
            template = ": ".join(record.getMessage().split(": ")[:2])
        text = template.strip().partition("\n")[0]
        event: dict[str, Any] = {"event": text, "logger": record.name}
        if record.exc_info:
            event["exc_info"] = record.exc_info
            _describe_exception(event)
        names = (name for name, least in reversed(_LEVELS.items()) if record.levelno >= least)
        _OUTPUT.msg(_OUTPUT.render(next(names, "debug"), event))


def _route_libraries(*, least: int) -> None:
    root = logging.getLogger()
    root.handlers[:] = [_Libraries()]
    root.setLevel(logging.WARNING)
    logging.captureWarnings(True)
    for name in ("uvicorn", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
        logger.setLevel(least)
    access = logging.getLogger("uvicorn.access")
    access.handlers.clear()
    access.propagate = False
    access.disabled = True


# C0, DEL, C1; line and paragraph separators; zero-width and bidirectional controls, byte order
# mark; lone surrogates. Each can break a line, control a terminal or disguise a text.
_UNSAFE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)


def one_line(text: str, limit: int) -> str:
    """Return a text on one line, cut to `limit` characters, with every unsafe character escaped."""

    def escape(match: re.Match[str]) -> str:
        code = ord(match[0])
        return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"

    return _UNSAFE.sub(escape, _cut(text, limit))


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}… {len(text) - limit} more"


FIELDS: Final[dict[str, str]] = {
    "alarm": "an alarm's name, as in /readyz",
    "attempt": "a payment attempt's reference",
    "attempt_number": "which request retry this is, from 1",
    "batch": "how many items were handled together",
    "bytes": "a size",
    "chars": "a length of text",
    "code": "a problem's code, from a closed list",
    "command": "a command's name",
    "component": "the part of the service that logs",
    "count": "how many",
    "cursor": "a position in the outcome feed",
    "database": "where the database is: its file, or server and name; never a user or password",
    "delivery": "a delivery's id",
    "digest": "SHA-256 of a body",
    "due": "how many orders are due",
    "duration_ms": "how long it took, in milliseconds",
    "environment": "sandbox or live",
    "error_class": "the class of an exception, never its message",
    "error_where": "the innermost frames of a traceback: file, line, function",
    "event_id": "the provider's id of an event",
    "exit_code": "a process's exit code",
    "finding": "a finding's code",
    "findings": "how many findings",
    "generation": "the generation of an order's evidence",
    "host": "an address we listen on",
    "kind": "the provider's name for the kind of an event",
    "lag_ms": "how far behind, in milliseconds",
    "limit": "a limit that was reached",
    "logger": "the library that logs",
    "method": "an HTTP method",
    "migration": "a revision of the schema",
    "operator": "an operator's id, never a name",
    "order": "an order's reference",
    "outcome": "an order's outcome",
    "path": "a route's template, never the path that was asked for",
    "peer": "the kind of a request's address: this machine, a private network, public",
    "pid": "a process's number",
    "port": "a port we listen on",
    "problem": "why something failed, in a sentence that Tallyhook wrote",
    "profile": "a provider's profile",
    "queue": "the length of a queue",
    "reason": "a reason code, from a closed list",
    "received_at": "when a request arrived, RFC 3339",
    "rejections": "how many rejections",
    "retry_after_s": "when to try again, in seconds",
    "revision": "a revision's id",
    "run": "a reconciliation run's id",
    "scenario": "a scenario of the simulated provider",
    "seconds": "a length of time",
    "seed": "the seed of a simulation",
    "session": "the service's reference of a checkout session",
    "setting": "the name of a setting, never its value",
    "signal": "the name of a signal",
    "source": "a source's name",
    "status": "an HTTP status",
    "step": "a numbered step of a procedure",
    "table": "a table's name",
    "verdict": "what the receiver decided",
    "version": "our own version",
    "waited_ms": "how long something waited in a queue, in milliseconds",
    "way": "how something is sent: post or mail",
    "witness": "the name of a witness of the log",
}
"""All fields that may be logged, each with a description of its content."""

REFERENCES: Final = frozenset({"attempt", "event_id", "kind", "order", "session"})
"""Fields whose texts come from outside. Phone numbers and mail addresses in these texts are masked,
because a log is never erased."""

MAX_VALUE_CHARS: Final = 500

MAX_ITEMS: Final = 20

MAX_FRAMES: Final = 4

Format = Literal["json", "console", "auto"]
Render = Callable[[str, MutableMapping[str, Any]], str]

_LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}
_LEVEL_OF: Final = {"exception": "error", "fatal": "critical", "warn": "warning"}
_KEYS: Final = {name: f',"{name}":' for name in FIELDS}
_COLORS: Final = {"debug": 2, "info": 32, "warning": 33, "error": 31, "critical": 31}


def configure_logging(
    *,
    format: Format = "auto",
    level: str = "info",
    stream: TextIO | None = None,
    clock: Clock | None = None,
    lines_per_minute: int | None = None,
) -> None:
    """Send every log line of the process to `stream` (default: standard error).

    format            `json`, `console`, or `auto`: console on a terminal, else json
    level             lowest level that is logged
    lines_per_minute  maximum number of lines in a minute; further lines except errors are only
                      counted
    """
    to = sys.stderr if stream is None else stream
    terminal = to.isatty()
    if format == "auto":
        format = "console" if terminal else "json"
    dated = _Dated(clock or SystemClock())
    if _OUTPUT.reader is not None:
        _OUTPUT.reader.close()
    _OUTPUT.stream, _OUTPUT.reader = to, _reader_of(to)
    _OUTPUT.least = _LEVELS[level]
    _OUTPUT.budget = Budget(lines_per_minute)
    _OUTPUT.render = _Json(dated) if format == "json" else _Console(dated, colors=terminal)
    structlog.configure(
        processors=[_render],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS["debug"]),  # see `admits`
        context_class=dict,
        logger_factory=_logger,
        cache_logger_on_first_use=True,
    )
    _route_libraries(least=_LEVELS[level])


HELD_UP_MS: Final = 1_000
"""Milliseconds to wait for a slow reader of the log. After this time, lines are dropped until the
reader continues."""


class _Reader:
    def __init__(self, descriptor: int) -> None:
        self._given = self._descriptor = descriptor
        # Opened again, so that our writes never block: a terminal may have less room than a line
        # needs, and other processes write there, too. A socket, or a terminal of another user,
        # cannot be opened.
        way = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        with contextlib.suppress(OSError):
            self._descriptor = os.open(f"/proc/self/fd/{descriptor}", way)
        self._poll = select.poll()
        self._poll.register(self._descriptor, select.POLLOUT)
        self._held_up = self._broken = False

    def write(self, line: str) -> bool:
        """Write a line to the log's reader. Return whether the whole line was written. Raise
        OSError if nobody reads the log."""
        data = line.encode("utf-8", "backslashreplace")
        if self._broken:
            data = b"\n" + data
        left, since = data, monotonic()
        while left:
            if taken := self._taken(left[: select.PIPE_BUF]):  # a pipe takes that much at once
                left, since, self._held_up = left[taken:], monotonic(), False
            elif self._held_up or monotonic() - since >= HELD_UP_MS / 1000:
                self._held_up, self._broken = True, self._broken or left is not data
                return False
        self._broken = False
        return True

    def _taken(self, part: bytes) -> int:
        if not self._poll.poll(0 if self._held_up else HELD_UP_MS):
            return 0
        try:
            return os.write(self._descriptor, part)
        except BlockingIOError:  # another process was faster, or the end of a line needs more room
            return 0

    def close(self) -> None:
        if self._descriptor != self._given:
            os.close(self._descriptor)


def _reader_of(stream: TextIO) -> _Reader | None:
    try:
        descriptor = stream.fileno()
        mode = os.fstat(descriptor).st_mode
    except (OSError, ValueError):  # the stream is closed or in memory
        return None
    if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor):
        return _Reader(descriptor)
    return None


class _Output:
    """The only log output of the process. All loggers share this output, because cached loggers
    would otherwise keep an old configuration."""

    def __init__(self) -> None:
        self.stream: TextIO | None = None
        self.reader: _Reader | None = None
        self.least = 0
        self.render: Render = _Json(_Dated(SystemClock()))
        self.lost = 0
        self.budget = Budget(None)

    def admits(self, level: int) -> bool:
        if level < self.least:
            return False
        admitted = level >= _LEVELS["error"] or self.budget.take()
        if admitted and self.budget.left_out:
            self.tell_left_out()
        return admitted

    def tell_left_out(self, *, at_once: bool = False) -> None:
        count = self.budget.due_count(at_once=at_once)
        if count:
            self.msg(self.render("warning", {"event": "log lines left out", "count": count}))

    def msg(self, line: str) -> None:
        """Write a line in one call. A failure is only counted, because it must not stop a
        delivery."""
        stream = sys.stderr if self.stream is None else self.stream
        try:
            if self.reader is None:
                stream.write(line)
                stream.flush()
            elif not self.reader.write(line):
                self.lost += 1
        except (OSError, ValueError):
            # The disk is full, the reader is gone or the stream is closed: nobody to inform.
            self.lost += 1

    debug = info = warning = error = critical = exception = fatal = warn = log = msg


class LogLine:
    """Log line that is written often, with its texts encoded only once.

    `LogLine("delivery", "delivery", "source")(delivery_id, name)` writes the line of
    `log.info("delivery", delivery=delivery_id, source=name)`. Raises KeyError for an unknown field.
    """

    def __init__(self, event: str, *names: str) -> None:
        self._event = event
        self._names = names
        self._keys = [(_KEYS[name], name in REFERENCES) for name in names]
        self._head = f'","level":"info","event":{encode_basestring_ascii(event)}'

    def __call__(self, *values: str | int | None) -> None:
        """Write the line at the level info. The values stand in the order of the field names."""
        if not _OUTPUT.admits(20):
            return
        render = _OUTPUT.render
        if not isinstance(render, _Json):
            fields = dict(zip(self._names, values, strict=True))
            _OUTPUT.msg(render("info", _masked({"event": self._event, **fields})))
            return
        parts = ['{"at":"', render.dated(), self._head]
        for (key, refers), value in zip(self._keys, values, strict=True):
            if refers and type(value) is str:
                value = masked_reference(value)
            parts.append(key)
            parts.append(_json(value) if type(value) is not int else str(value))
        parts.append("}\n")
        _OUTPUT.msg("".join(parts))


def lost_lines() -> int:
    """Return the number of log lines that could not be written since the process started."""
    return _OUTPUT.lost


def tell_left_out(*, at_once: bool = False) -> None:
    """Log the number of lines that were left out in the last minute.

    Call it regularly, because no further line may come after a flood.

    at_once  whether to log before the minute is over
    """
    _OUTPUT.tell_left_out(at_once=at_once)


def _logger(*_: Any) -> _Output:
    return _OUTPUT


def _render(_: Any, method: str, event: MutableMapping[str, Any]) -> str:
    level = _LEVEL_OF.get(method, method)
    if not _OUTPUT.admits(_LEVELS.get(level, 50)):
        raise structlog.DropEvent
    if "exc_info" in event:
        _describe_exception(event)
    return _OUTPUT.render(level, _masked(event))


def _masked(event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for name in REFERENCES.intersection(event):
        if isinstance(value := event[name], str):
            event[name] = masked_reference(value)
    return event


def _describe_exception(event: MutableMapping[str, Any]) -> None:
    """Replace an exception in a log event by its class and frames, because the exception's message
    may quote a body."""
    given = event.pop("exc_info")
    error = given[1] if isinstance(given, tuple) else given
    if not isinstance(error, BaseException):
        error = sys.exc_info()[1] if error else None
    if error is not None:
        event["error_class"], event["error_where"] = class_and_places(error)


def class_and_places(error: BaseException) -> tuple[str, str]:
    """Return an unexpected error's class and its frames, innermost first, as in `journal.py:120
    commit < app.py:31 receive`."""
    places: list[str] = []
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        name = code.co_filename.replace("\\", "/").rpartition("/")[2]
        places.append(f"{name}:{trace.tb_lineno} {code.co_name}")
        trace = trace.tb_next
    kind = type(error)
    where = " < ".join(reversed(places[-MAX_FRAMES:]))
    return f"{kind.__module__}.{kind.__qualname__}", where


class _Dated:
    def __init__(self, clock: Clock) -> None:
        self._now = clock.now
        self._second = -1
        self._text = ""

    def __call__(self) -> str:
        second, fraction = divmod(self._now(), SECOND)
        if second != self._second:
            self._second, self._text = second, format_instant(EARLIEST + second * SECOND)[:-1]
        return f"{self._text}.{fraction:06d}Z"


class _Json:
    def __init__(self, dated: _Dated) -> None:
        self.dated = dated

    def __call__(self, level: str, event: MutableMapping[str, Any]) -> str:
        line = f'{{"at":"{self.dated()}","level":"{level}","event":{_json(event.pop("event", ""))}'
        dropped = 0
        for name, value in event.items():
            key = _KEYS.get(name)
            if key is None:
                dropped += 1
            elif type(value) is int:
                line += f"{key}{value}"
            else:
                line += key + _json(value)
        return f'{line},"dropped_fields":{dropped}}}\n' if dropped else line + "}\n"


def _json(value: Any) -> str:
    if type(value) is str:
        text = value if len(value) <= MAX_VALUE_CHARS else _cut(value, MAX_VALUE_CHARS)
        encoded: str = encode_basestring_ascii(text)
        return encoded
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple | set | frozenset):
        return f"[{','.join(_json(item) for item in _items(value))}]"
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        finite = value - value == 0
        return repr(float(value)) if finite else f'"{value}"'
    if isinstance(value, str):
        return _json(str.__str__(value))
    return _json(f"<{type(value).__name__}>")  # its text could contain anything


def _items(value: Any) -> list[Any]:
    items = sorted(value, key=str) if isinstance(value, set | frozenset) else list(value)
    kept = [item if isinstance(item, str | int) else type(item).__name__ for item in items]
    rest = len(kept) - MAX_ITEMS
    return kept if rest <= 0 else [*kept[:MAX_ITEMS], f"{rest} more"]


class _Console:
    def __init__(self, dated: _Dated, *, colors: bool) -> None:
        self._dated = dated
        self._colors = colors

    def __call__(self, level: str, event: MutableMapping[str, Any]) -> str:
        text = one_line(str(event.pop("event", "")), MAX_VALUE_CHARS)
        fields = [f"{name}={_shown(value)}" for name, value in event.items() if name in FIELDS]
        if len(fields) < len(event):
            fields.append(f"dropped_fields={len(event) - len(fields)}")
        head = f"{level:<8}"
        if self._colors:
            head = f"\x1b[{_COLORS.get(level, 0)}m{head}\x1b[0m"
        return " ".join([self._dated()[11:23], head, text, *fields]).rstrip() + "\n"


def _shown(value: Any) -> str:
    if isinstance(value, list | tuple | set | frozenset):
        return ",".join(_shown(item) for item in _items(value))
    text = (
        str(value) if isinstance(value, str | int | float | None) else f"<{type(value).__name__}>"
    )
    text = one_line(text, MAX_VALUE_CHARS)
    return f"'{text}'" if " " in text or not text else text


_OUTPUT = _Output()
