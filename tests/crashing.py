"""Makes any function of the application raise: what is raised, and where, holds private values."""

from __future__ import annotations

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
"""In place of a function's own code. A name of `builtins`: it is looked up where the function
stands."""


TELLING = (
    "app.core.clock.",
    "app.core.logs",
    "app.cli.main.",
    "app.cli.printing.note",
    "app.core.text.printable",
)
"""What a crash is told with does not crash itself."""

Point = tuple[str, FunctionType, Any]
"""A function by its name, and the first step that called it."""


def private(canaries: Canaries) -> str:
    """A text with something of every kind."""
    words = [canaries.word(kind) for kind in ("name", "token", "secret")]
    return " ".join([canaries.phone(), canaries.spelled(), *words])


class PlantedError(Exception):
    """Nobody foresees it: its message, its note and its cause tell everything."""


class Crash:
    """What the crashes have to tell, and how many there were."""

    def __init__(self, private: str) -> None:
        self.private = private
        self.count = 0

    def __call__(self, private: str) -> PlantedError:
        """The error of one crash."""
        self.count += 1
        error = PlantedError(private, {"asked": private})
        error.add_note(private)
        return error


class Called:
    """The code of the application that is run while this looks on, by the step that runs it."""

    def __init__(self) -> None:
        self.step: Any = None
        self.first: dict[CodeType, Any] = {}

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        """What the interpreter tells of each call."""
        if self.step is not None and event == "call":
            code = frame.f_code
            if code not in self.first and code.co_filename.startswith(APP):
                self.first[code] = self.step

    @contextmanager
    def looking_on(self) -> Iterator[None]:
        """In this thread, and in those that begin meanwhile."""
        threading.setprofile(self)
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def begin(self, step: Any) -> None:
        """Whatever is called from now on, this step calls."""
        self.step = step
        sys.setprofile(self)

    async def go_on(self) -> None:
        """Look on where a greenlet of the database's library has ended it, until cancelled."""
        while True:
            sys.setprofile(self)
            await asyncio.sleep(0)

    def points(self) -> list[Point]:
        """By name. Functions within others, whose code belongs to what is around them, are left
        out."""
        found = {}
        gc.unfreeze()  # a command lets the collector pass over all that is there when it begins
        for function in gc.get_objects():
            if type(function) is FunctionType and function.__code__ in self.first:
                code, name = function.__code__, f"{function.__module__}.{function.__qualname__}"
                if not code.co_freevars and not name.startswith(TELLING):
                    found[name] = (name, function, self.first[code])
        return [found[name] for name in sorted(found)]


def _crashing(function: Callable[..., Any]) -> CodeType:
    """Code that raises as a function of this kind does: at once, or when it is awaited."""
    waits = inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
    yields = inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
    words = {"kind": "async " if waits else "", "ending": "    yield" if yields else ""}
    made: dict[str, Any] = {}
    exec(compile(CRASH.format(**words), function.__code__.co_filename, "exec"), made)
    code: CodeType = made["crashed"].__code__
    return code.replace(co_name=function.__name__)


@contextmanager
def crashing(function: FunctionType, crash: Crash) -> Iterator[None]:
    """Every call of the function raises, by whatever name it is called."""
    own = function.__code__
    builtins.planted_crash = crash  # type: ignore[attr-defined]
    function.__code__ = _crashing(function)
    try:
        yield
    finally:
        function.__code__ = own
        del builtins.planted_crash  # type: ignore[attr-defined]
