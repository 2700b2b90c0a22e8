"""The files around the code: what lies at the top, what is depended on, and how it is made."""

import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePath

import pytest

from app.database.tables import metadata
from tests.architecture.form import UNFINISHED
from tests.architecture.tree import ROOT
from tests.waiting import PATIENCE_S

TOP = frozenset(
    {"pyproject.toml", "README.md", "Makefile", "config.example.env", "requirements.lock",
     "requirements-dev.lock", "reconcile", "app", "tests"}
)  # fmt: skip
MADE = re.compile(r"\..+|var|__pycache__|.+\.egg-info")
"""Names that tools create and git ignores, and dotfiles."""

TEXTS = ("*.md", "*.toml", "*.env", "*.mako", "Makefile", ".ci/*")


def top_level(names: Iterable[str]) -> Iterator[str]:
    seen = {name for name in names if not MADE.fullmatch(name)}
    yield from (f"{name} has no place at the top" for name in sorted(seen - TOP))
    yield from (f"{name} is missing at the top" for name in sorted(TOP - seen))


def hosts(lock: str) -> Iterator[str]:
    """Yield lines of the lock that name a host, which is the machine's choice."""
    for number, line in enumerate(lock.splitlines(), 1):
        if "://" in line or line.lstrip().startswith(("--index", "--extra-index", "--find-links")):
            yield f"requirements.lock:{number}: {line}"


def unexplained(pyproject: str) -> Iterator[str]:
    """Yield dependencies without a comment that gives the reason."""
    project = tomllib.loads(pyproject)["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    for name in (name for group in groups for name in group):
        lines = [line for line in pyproject.splitlines() if line.strip().startswith(f'"{name}"')]
        if not lines or not all(re.search(r'",\s*# \S', line) for line in lines):
            yield f"pyproject.toml: {name} has no reason beside it"


def unlocked(lock: str, wanted: Iterable[str]) -> Iterator[str]:
    """Yield dependencies that the lock does not have with a hash."""
    for name in (re.split(r"[\[><=;~! ]", one)[0] for one in wanted):
        if not re.search(rf"(?m)^{re.escape(name)}==\S+.*\\\n +--hash=sha256:", lock):
            yield f"the lock: {name} is missing; make lock"


def unfinished(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        yield from (line for line in text.splitlines() if any(word in line for word in UNFINISHED))


def test_the_top_level_is_what_the_design_says() -> None:
    assert not list(top_level(os.listdir(ROOT)))


def test_another_entry_and_a_missing_one_are_found() -> None:
    assert list(top_level([*TOP, "scripts", ".ci", "var", "x.egg-info"])) == [
        "scripts has no place at the top"
    ]
    assert list(top_level(TOP - {"Makefile"})) == ["Makefile is missing at the top"]


LOCKS = ("requirements.lock", "requirements-dev.lock")
PINNED = re.compile(r"(?m)^(\S+)==\S+")


@pytest.mark.parametrize("lock", LOCKS)
def test_no_lock_names_a_host(lock: str) -> None:
    assert not list(hosts((ROOT / lock).read_text()))


def test_the_runtime_is_what_is_tested() -> None:
    """It has each dependency of the program, in the version of the other lock."""
    runtime, tested = ((ROOT / lock).read_text() for lock in LOCKS)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["build"]]
    assert not list(unlocked(runtime, wanted))
    versions = [{found[0] for found in PINNED.finditer(lock)} for lock in (runtime, tested)]
    assert versions[0] < versions[1]


def unpacked(names: Iterable[str], patterns: Iterable[str]) -> Iterator[str]:
    """Yield files beside the code that no pattern takes into the package."""
    for name in names:
        apart = name.endswith((".py", ".md", "pyproject.toml")) or "/pictures/" in name
        if not apart and not any(PurePath(name).match(pattern) for pattern in patterns):
            yield name


def test_what_is_installed_has_every_file_that_is_read() -> None:
    """`pip install .` takes the files beside the code, so that it runs from any folder."""
    told = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    patterns = told["package-data"]["app"]
    listed = subprocess.run(
        ["git", "ls-files", "app"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    names = [name.removeprefix("app/") for name in listed]
    assert len(names) > 300
    assert not list(unpacked(names, patterns))
    assert list(unpacked(["a/b.toml", "a/c.toml"], ["a/b.toml"])) == ["a/c.toml"]


@pytest.mark.parametrize(
    "line", ["a @ https://x.example/a.whl", "--index-url x", "# from http://x"]
)
def test_a_host_in_the_lock_is_found(line: str) -> None:
    assert list(hosts(f"a==1\n{line}\n"))


def test_every_dependency_has_a_reason_and_is_locked() -> None:
    pyproject = (ROOT / "pyproject.toml").read_text()
    project = tomllib.loads(pyproject)["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    assert not list(unexplained(pyproject))
    assert not list(unlocked((ROOT / "requirements-dev.lock").read_text(), wanted))


def test_a_dependency_without_a_reason_or_a_lock_is_found() -> None:
    text = '[project]\ndependencies = [\n  "a>=1", # why\n  "b[x]>=1",\n]\n' \
        'optional-dependencies = { dev = ["c>1"] }\n'  # fmt: skip
    assert [line.split()[1] for line in unexplained(text)] == ["b[x]>=1", "c>1"]
    lock = "a==1 \\\n    --hash=sha256:00\nc==2\n"
    assert [line.split()[2] for line in unlocked(lock, ["a>=1", "b[x]>=1", "c>1"])] == [
        "b",
        "c",
    ]


def test_no_text_file_is_unfinished() -> None:
    paths = [path for pattern in TEXTS for path in _own(pattern)]
    assert ROOT / "Makefile" in paths
    assert not list(unfinished(path.read_text(encoding="utf-8") for path in paths))
    assert list(unfinished([f"x\n{UNFINISHED[1]} later\n"])) == [f"{UNFINISHED[1]} later"]


def _own(pattern: str) -> Iterator[Path]:
    for place in (ROOT, ROOT / "app", ROOT / "reconcile", ROOT / "tests"):
        found = place.glob(pattern) if place == ROOT else place.rglob(pattern)
        yield from (path for path in found if path.is_file())


def test_bare_make_lists_every_target_with_its_help() -> None:
    make = shutil.which("make")
    if make is None:
        pytest.skip("make is not installed")
    done = subprocess.run([make, "-C", str(ROOT), "--no-print-directory"], capture_output=True,
                          text=True, timeout=PATIENCE_S, check=True)  # fmt: skip
    targets = {line.split()[1] for line in done.stdout.splitlines() if line.startswith("make ")}
    assert targets >= {"help", "run", "test", "check", "fmt", "bench", "nightly", "lock", "clean"}
    written = re.findall(r"(?m)^([a-z]+):", (ROOT / "Makefile").read_text())
    assert targets == set(written)
    assert all(len(line.split()) > 3 for line in done.stdout.splitlines())


PYTHON = """#!/bin/sh
case "$*" in
  "-m venv .venv") mkdir -p .venv/bin && cp "$0" .venv/bin/python && : > .venv/bin/tallyhook ;;
  *"pip install"*) for last; do :; done; echo "$last" >> installed ;;
esac
"""
"""A Python that notes what it installs instead."""


def test_make_installs_only_what_its_target_needs(tmp_path: Path) -> None:
    """It holds after the other target, and again only after a lock has changed."""
    make = shutil.which("make")
    if make is None:
        pytest.skip("make is not installed")
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in ("pyproject.toml", *LOCKS):
        (tmp_path / name).touch()
    python, installed = tmp_path / "python", tmp_path / "installed"
    python.write_text(PYTHON)
    python.chmod(0o755)
    given = {k: v for k, v in os.environ.items() if not k.startswith("MAKE")}

    def makes(target: str) -> list[str]:
        installed.write_text("")
        words = [make, "-s", "PYTHON=./python", "BIN=.venv/bin", target]
        subprocess.run(words, cwd=tmp_path, env=given, capture_output=True, timeout=PATIENCE_S)
        return installed.read_text().split()

    def change(lock: str) -> None:
        for stamp in (tmp_path / ".venv").glob(".*"):
            os.utime(stamp, (2, 2))
        for name in ("pyproject.toml", *LOCKS):
            os.utime(tmp_path / name, (3, 3) if name == lock else (1, 1))

    runtime, everything = ([lock, "."] for lock in LOCKS)
    assert [makes("run"), makes("run")] == [runtime, []]
    change("requirements.lock")
    assert [makes("run"), makes("run")] == [runtime, []]
    assert [makes("test"), makes("test"), makes("run")] == [everything, [], []]
    change("requirements-dev.lock")
    assert [makes("run"), makes("lint"), makes("run")] == [everything, [], []]
    shutil.rmtree(tmp_path / ".venv")
    assert [makes("test"), makes("run")] == [everything, []]


@pytest.mark.parametrize(
    ("failing", "code"), [("nothing", 0), ("types", 2), ("test", 2), (".venv/.made", 2)]
)
def test_ci_fails_where_the_checks_or_the_tests_do(tmp_path: Path, failing: str, code: int) -> None:
    """It asks for both, whichever ends first; this `make` only records the requests."""
    asked, no_root = tmp_path / "asked", "echo 1000"
    noting = f'echo "$@" >> {asked}; case "$@" in *{failing}) exit 2;; esac'
    for name, does in (("make", noting), ("id", no_root)):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{does}\n")
        program.chmod(0o755)
    done = subprocess.run([ROOT / ".ci" / "run"], capture_output=True, timeout=PATIENCE_S,
                          env={"PATH": f"{tmp_path}:{os.environ['PATH']}"})  # fmt: skip
    assert done.returncode == code
    targets = {
        line.removeprefix("--no-print-directory ") for line in asked.read_text().splitlines()
    }
    made = {".venv/.made"}
    assert targets == (made if failing in made else {*made, "lint types", "test"})


def strangers(page: str, files: frozenset[str]) -> Iterator[str]:
    """Yield code files that a page names in backticks and that do not exist."""
    for name in re.findall(r"`([\w/]+\.py)`", page):
        if not any(path == name or path.endswith(f"/{name}") for path in files):
            yield name


def test_every_file_that_a_page_names_is_there() -> None:
    files = frozenset(str(path.relative_to(ROOT)) for path in _own("*.py"))
    found = {
        str(path.relative_to(ROOT)): list(strangers(path.read_text(), files))
        for path in _own("*.md")
        if path.name != "SUPPORT.md"  # it names files of a bundle
    }
    assert {page: names for page, names in found.items() if names} == {}


def test_a_file_that_is_gone_is_found() -> None:
    assert list(strangers("see `gone.py` and `a/b.py`", frozenset({"app/a/b.py"}))) == ["gone.py"]


def test_the_page_of_the_database_tells_of_every_table() -> None:
    told = (ROOT / "app" / "database" / "README.md").read_text()
    rows = "".join(line for line in told.splitlines() if line.startswith("| `"))
    assert [name for name in metadata.tables if f"`{name}`" not in rows] == []


def test_the_page_of_the_database_tells_what_keeps_appends_out_on_a_cluster() -> None:
    told = (ROOT / "app" / "database" / "README.md").read_text().partition("**On Citus")[2]
    named = re.findall(r"`(\w+/\w+\.py)`", told.partition("\n\n")[0])
    keeping = [
        f"{path.parent.name}/{path.name}"
        for path in (ROOT / "app").glob("*/*.py")
        if "reading(settled=True)" in path.read_text()
    ]
    assert sorted(named) == sorted(keeping)


def test_every_room_says_how_data_flows_through_it() -> None:
    rooms = [path.parent for path in (ROOT / "app").glob("*/__init__.py")]
    assert [room.name for room in rooms if not (room / "README.md").exists()] == []
