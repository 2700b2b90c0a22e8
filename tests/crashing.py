"""Make any function of the application raise an error that contains private values."""

import asyncio
import builtins
import gc
import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType, FunctionType
from typing import Any

from tests.architecture.tree import ROOT
from tests.cli.test_canaries import Canaries

APP = str(ROOT / "app")

CRASH = """
{kind}def crashed(*words, **more):
    private = planted_crash.private
    raise planted_crash(private) from ValueError(private)
{ending}
"""
"""Code that replaces a function's. `planted_crash` is a builtin, as names are looked up in the
function's own module."""

TELLING = (
    "app.core.clock.",
    "app.core.logs",
    "app.cli.main.",
    "app.cli.printing.note",
    "app.core.text.printable",
)
"""Functions that report a crash must not crash themselves."""

Point = tuple[str, FunctionType, Any]
"""A function's name, the function, and the first step that called it."""


def private(canaries: Canaries) -> str:
    """Return a text that contains a private value of every kind."""
    words = [canaries.word(kind) for kind in ("name", "token", "secret")]
    return " ".join([canaries.phone(), canaries.spelled(), *words])


class PlantedError(Exception):
    """Report an error that no code expects; message, note and cause contain private values."""


class Crash:
    """Make the errors to raise, and count them."""

    def __init__(self, private: str) -> None:
        self.private = private
        self.count = 0

    def __call__(self, private: str) -> PlantedError:
        """Return the error of one crash."""
        self.count += 1
        error = PlantedError(private, {"asked": private})
        error.add_note(private)
        return error


class Called:
    """Record which functions of the application run, and the step that called each first."""

    def __init__(self) -> None:
        self.step: Any = None
        self.first: dict[CodeType, Any] = {}

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        """Record one call, as the interpreter's profile function."""
        if self.step is not None and event == "call":
            code = frame.f_code
            if code not in self.first and code.co_filename.startswith(APP):
                self.first[code] = self.step

    @contextmanager
    def looking_on(self) -> Iterator[None]:
        """Record calls in this thread, and in threads that start meanwhile."""
        threading.setprofile(self)
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def begin(self, step: Any) -> None:
        """Assign the calls from now on to this step."""
        self.step = step
        sys.setprofile(self)

    async def go_on(self) -> None:
        """Set the profile function again and again: the database library's greenlets remove it."""
        while True:
            sys.setprofile(self)
            await asyncio.sleep(0)

    def points(self) -> list[Point]:
        """Return the recorded functions by name, without closures: their code can't be replaced."""
        found = {}
        gc.unfreeze()  # a command freezes all objects that exist when it starts
        for function in gc.get_objects():
            if type(function) is FunctionType and function.__code__ in self.first:
                code, name = function.__code__, f"{function.__module__}.{function.__qualname__}"
                if not code.co_freevars and not name.startswith(TELLING):
                    found[name] = (name, function, self.first[code])
        return [found[name] for name in sorted(found)]


def _crashing(function: Callable[..., Any]) -> CodeType:
    """Return code that raises as this kind of function does: at once, or when it is awaited."""
    waits = inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
    yields = inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
    source = CRASH.format(kind="async " if waits else "", ending="    yield" if yields else "")
    made: dict[str, Any] = {}
    exec(compile(source, function.__code__.co_filename, "exec"), made)
    code: CodeType = made["crashed"].__code__
    return code.replace(co_name=function.__name__)


@contextmanager
def crashing(function: FunctionType, crash: Crash) -> Iterator[None]:
    """Make every call of the function raise, by whatever name it is called."""
    own = function.__code__
    builtins.planted_crash = crash  # type: ignore[attr-defined]
    function.__code__ = _crashing(function)
    try:
        yield
    finally:
        function.__code__ = own
        del builtins.planted_crash  # type: ignore[attr-defined]
