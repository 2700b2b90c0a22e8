"""Set up what every test shares: the event loop, how hypothesis searches, temporary files."""

import gc
import io
import os
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import httpcore2
import jinja2
import pytest
import typer.main
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from app.access import credentials
from app.cli import main
from app.core.logs import configure_logging
from app.providers import profile
from tests.inline import statements_at_once, statements_in_threads
from tests.memory import memory
from tests.searching import LONG, examples

# Collecting tests makes millions of objects, all of which stay: searching them for garbage would
# find none and cost a quarter of the time.
gc.disable()

_COMMON: dict[str, Any] = {
    # The machine's two cores are shared: slowness is not a property of the code under test.
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow],
    "max_examples": examples(100),
}
settings.register_profile("ci", derandomize=True, database=None, print_blob=True, **_COMMON)
settings.register_profile("dev", **_COMMON)
settings.load_profile("ci" if os.environ.get("CI") else "dev")
if not LONG:
    # The search for constants in 1,100 modules takes each worker five seconds in a new clone.
    vars(providers)["is_local_module_file"] = lambda _: False

LONGEST = (
    "docs/test_readme.py",
    "browser/",
    "faults/test_disk_full.py",
    "postgres/test_contract.py",
    "database/test_sqlite.py",
    "postgres/test_faults.py",
    "simulation/test_simulation.py",
    "faults/test_interrupted.py",
    "docs/",
    "faults/test_failing_calls.py",
    "simulation/",
    "floods/test_flood.py",
    "reconcile/test_laws_by_generation.py",
    "reconcile/test_match_laws.py",
)
"""Files and folders that are begun first. A file stays with one worker, so a long file that is
begun last keeps one worker busy after all others have ended."""

WAITING = ("faults/", "e2e/", "floods/", "postgres/")
"""Other folders whose tests mostly wait, for a disk or for a process that they started."""

FAULTS = Path(__file__).with_name("faults")
"""Folder of the tests in which a disk fails, so they use one."""


def pytest_collection(session: pytest.Session) -> None:
    """Import the test modules in a different order in each worker.

    In a new clone the workers then compile the modules together; in the same order each of them
    would compile all, which takes as long as the rest of collecting.
    """
    worker = getattr(session.config, "workerinput", None)
    if worker is None or session.config.args != session.config.getini("testpaths"):
        return
    number, count = int(worker["workerid"].removeprefix("gw")), worker["workercount"]
    for path in sorted(FAULTS.parent.glob("*/**/test_*.py"))[number::count]:
        name = ".".join(path.relative_to(FAULTS.parents[1]).with_suffix("").parts)
        try:
            import_module(name)
        except Exception:
            return  # collecting the file reports what is wrong with it


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first, then spread those that wait among those that compute.

    `--no-loadscope-reorder` hands the files out in this order.
    """
    names = dict.fromkeys(_file_of(item) for item in items)
    places: dict[str, tuple[float, float]] = {}
    for waits in (True, False):
        others = [name for name in names if name.startswith(WAITING) == waits]
        places |= {name: (1, (n + 0.5) / len(others)) for n, name in enumerate(others)}
    for name in names:
        first = (n for n, each in enumerate(LONGEST) if name.startswith(each))
        places[name] = next(((0, n) for n in first), places[name])
    items.sort(key=lambda item: places[_file_of(item)])


def _file_of(item: pytest.Item) -> str:
    return item.nodeid.removeprefix("tests/").partition("::")[0]


def pytest_collection_finish() -> None:
    """Remove this machine's settings, so that no test depends on them. Collect garbage again, in
    larger portions than usual: that takes a twentieth less time."""
    for name in [name for name in os.environ if name.upper().startswith("TALLYHOOK_")]:
        del os.environ[name]
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """Run asynchronous tests on asyncio's own loop, whose debug aids and warnings are fullest."""
    return "asyncio", {"use_uvloop": False}


def _compiled_once(compile_: Callable[..., Any]) -> Callable[..., Any]:
    """Cache the code of a template for environments with the same filters, tests and globals."""
    kept: dict[Any, Any] = {}

    def compiled(self: jinja2.Environment, source: Any, *given: Any, **named: Any) -> Any:
        names = (sorted(self.filters), sorted(self.tests), sorted(self.globals))
        key = repr((source, given, named, names, self.trim_blocks, self.keep_trailing_newline))
        if key not in kept:
            kept[key] = compile_(self, source, *given, **named)
        return kept[key]

    return compiled


@pytest.fixture(scope="session", autouse=True)
def made_once() -> Iterator[None]:
    """Make once per process what the product makes once but tests would make for each service.

    That is the tree of commands (40 ms) and each group of them (10 ms), the trusted authorities,
    read from the disk (25 ms for each client), the profiles and their names (8 ms) and the code of
    the pages' templates (30 ms). Nobody who uses them changes them. A password's hash takes less
    memory, and so 1 ms, not 30.
    """
    names, by_first_word = cache(profile.shipped_profiles), cache(main.application_for)
    with (
        patch.object(profile, "read_profile", lru_cache(256)(profile.read_profile)),
        patch.object(profile, "shipped_profiles", lambda: list(names())),
        patch.object(jinja2.Environment, "compile", _compiled_once(jinja2.Environment.compile)),
        patch.object(typer.main, "get_command", cache(typer.main.get_command)),
        patch.object(main, "application_for", lambda words: by_first_word(tuple(words[:1]))),
        patch.object(httpcore2, "default_ssl_context", cache(httpcore2.default_ssl_context)),
        patch.object(credentials, "_MEMORY_KIB", 64),
        statements_at_once(),
    ):
        yield


@pytest.fixture
def database_in_threads() -> Iterator[None]:
    """Run SQLite as the product does, for tests of what its threads are for."""
    with statements_in_threads():
        yield


@pytest.fixture
def tmp_path(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """Return a folder for the test: in memory, except for tests of faults or marked `disk`."""
    faults = request.path.is_relative_to(FAULTS)
    if faults or request.node.get_closest_marker("disk") or memory() is None:
        yield tmp_path_factory.mktemp(request.node.originalname[:30])
        return
    with TemporaryDirectory(dir=memory(), prefix="tallyhook-", ignore_cleanup_errors=True) as name:
        yield Path(name)


@pytest.fixture(autouse=True)
def log() -> io.StringIO:
    """Return what the process logs during the test, in a service's format.

    Without this it would be printed in colour on the terminal, which takes seconds for a traceback.
    """
    stream = io.StringIO()
    configure_logging(format="json", level="info", stream=stream)
    return stream


@pytest.fixture
def workbooks_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read workbooks in this process: starting a child for each takes most of a test's time."""

    def write(work: Callable[..., Iterator[bytes]], *values: Any, limits: Any, to: Any) -> None:
        to.writelines(work(*values))

    monkeypatch.setattr("app.finance.files.workbooks.write_from_child", write)
