"""Every command in the README, and on the pages that go on where it ends, does what is shown."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from time import monotonic

import httpx2
import pytest

from app.cli.page_tables import TABLES, with_table
from tests.architecture.public_names import unknown_commands
from tests.docs.sessions import Command, Shell, differences, sessions
from tests.forking import command_in
from tests.ports import free_port
from tests.waiting import PATIENCE_S, until

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
GOES_ON = ("app/SHOP.md", "app/RUNNING.md", "app/finance/files/README.md")
"""Pages that go on where the one before ends, in the same shell."""
DEMO, *OWN_SHOP = sessions(README)
LINES = 150
WORDS = 50_000

needs_curl = pytest.mark.skipif(
    shutil.which("curl") is None or shutil.which("bash") is None,
    reason="the README's sessions need bash and curl, which this machine does not have",
)


def environment(*folders: Path) -> dict[str, str]:
    """Return this process's environment, with these folders first on the path.

    Settings of Tallyhook are left out. So are those of make: one that was started by another prints
    which folder it enters and leaves.
    """
    foreign = ("TALLYHOOK_", "MAKE", "MFLAGS")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(foreign)}
    return kept | {"PATH": os.pathsep.join(map(str, (*folders, kept["PATH"])))}


@pytest.fixture
def shell(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """Open a shell in a folder that has the commands where `make run` installs them."""
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv/bin").symlink_to(command_in(tmp_path_factory.mktemp("commands")))
    opened = Shell(tmp_path, environment())
    yield opened
    opened.close()


def on_ports(text: str, ports: list[int]) -> str:
    """Change the command to free ports, with more patience."""
    text = text.replace("127.0.0.1:8080", f"127.0.0.1:{ports[0]}")
    text = text.replace("127.0.0.1:8090", f"127.0.0.1:{ports[1]}")
    text = text.replace("--retry 20 ", f"--retry {PATIENCE_S:.0f} ")
    text = text.replace("tallyhook serve ", f"tallyhook serve --port {ports[0]} ")
    return text.replace("tallyhook sandbox ", f"tallyhook sandbox --port {ports[1]} ")


LOOKS = re.compile(r"tallyhook (log|deliveries list) ")
"""Commands that are asked again: who reads and seals is not as quick as the next command."""
QUIET = ("orders_due", "inbox_unread", "log_waiting")


def is_quiet(service: int, provider: int) -> bool:
    """Return whether everything was delivered, read, folded and sealed."""
    state = httpx2.get(f"http://127.0.0.1:{provider}/sandbox/state", trust_env=False).json()
    figures = httpx2.get(f"http://127.0.0.1:{service}/metrics", trust_env=False).text
    is_delivered = state["pending_events"] == state["undelivered"] == 0
    return is_delivered and all(f"\ntallyhook_{each} 0.0\n" in figures for each in QUIET)


def assert_shown(shell: Shell, session: list[Command], ports: list[int]) -> None:
    """Check that each command prints what is documented; instead of sleeping, wait for quiet."""
    for command in session:
        if command.text.startswith("sleep "):
            until(lambda: is_quiet(*ports) and is_quiet(*ports))
            continue
        printed = shell.run(on_ports(command.text, ports))
        if LOOKS.match(command.text):
            ends = monotonic() + PATIENCE_S
            while differences(command.output, printed) and monotonic() < ends:
                printed = shell.run(on_ports(command.text, ports))
        assert differences(command.output, printed) == [], (command.text, printed)


def test_the_demo_prints_what_the_readme_shows(tmp_path_factory: pytest.TempPathFactory) -> None:
    (command,) = DEMO
    commands = command_in(tmp_path_factory.mktemp("commands"))
    done = subprocess.run(
        [*command.text.split(), f"BIN={commands}", *("-o", ".venv/.made", "-o", ".venv/.runtime")],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    printed = [line for line in (done.stderr + done.stdout).splitlines() if line]
    assert differences(command.output, printed) == []


@needs_curl
def test_the_sessions_of_a_shop_do_what_the_readme_shows(shell: Shell) -> None:
    """From a checkout without data."""
    ports = [free_port(), free_port()]
    for session in [*OWN_SHOP, *chain.from_iterable(sessions(ROOT / page) for page in GOES_ON)]:
        assert_shown(shell, session, ports)


def test_a_changed_word_is_noticed() -> None:
    shown = Command("x", ["Paid in full [evt_1…].", "Fingerprint sha256:ab…"])
    good = ["Paid in full [evt_99].", "Fingerprint sha256:ffff"]
    assert differences(shown.output, good) == []
    assert differences(shown.output, ["Paid in part [evt_99].", good[1]])
    assert differences(shown.output, good[:1])
    assert differences(shown.output, [*good, "Traceback"])


@pytest.mark.parametrize("page", TABLES)
def test_a_table_of_what_the_program_knows_is_current(page: str) -> None:
    """`make write` would change nothing."""
    text = (ROOT / "app" / page).read_text(encoding="utf-8")
    assert with_table(text, TABLES[page]()) == text


def test_a_table_that_is_behind_is_seen() -> None:
    page = "# A\n\n| a | b |\n|---|---|\n| old | 1 |\n\nAfter.\n"
    new = with_table(page, "| a | b |\n|---|---|\n| new | 2 |\n| more | 3 |\n")
    assert new == page.replace("| old | 1 |", "| new | 2 |\n| more | 3 |")
    with pytest.raises(ValueError, match="not in list"):
        with_table("# A page without it\n", "| a |\n|---|\n")


def test_the_readme_is_short() -> None:
    assert README.read_text().count("\n") <= LINES


TOPS = ("app", "reconcile", "tests", ".github")
PAGES = [README, *(page for top in TOPS for page in (ROOT / top).rglob("*.md"))]


def test_all_pages_together_are_short() -> None:
    assert sum(len(page.read_text().split()) for page in PAGES) <= WORDS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_that_a_page_names_exists(page: Path) -> None:
    """With its options."""
    assert list(unknown_commands(page.read_text())) == []


def test_a_command_that_is_none_is_found() -> None:
    page = (
        "`tallyhook orders` `tallyhook deliveries poisonedd` `tallyhook prune --all` `tallyhook x`"
    )
    known = "`tallyhook orders show REF --as-of T`, `tallyhook --token-file F proposals list`"
    assert len(list(unknown_commands(page))) == 4
    assert list(unknown_commands(f"{known}, `tallyhook golive`")) == []


def test_every_link_between_pages_leads_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), (page, target)
