"""Every command on the page for support does what the page says."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.sessions import Shell, sessions
from tests.docs.test_readme import assert_shown, environment, needs_curl
from tests.forking import command_in
from tests.ports import free_port

PAGE = Path(__file__).resolve().parents[2] / "app" / "evidence" / "SUPPORT.md"


@pytest.fixture
def shell(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """Open a shell in an empty folder."""
    commands = command_in(tmp_path_factory.mktemp("commands"))
    opened = Shell(tmp_path, environment(commands))
    yield opened
    opened.close()


@needs_curl
@pytest.mark.slow
@pytest.mark.soak
def test_the_sessions_of_support_do_what_the_page_shows(shell: Shell) -> None:
    ports = [free_port(), free_port()]
    for session in sessions(PAGE):
        assert_shown(shell, session, ports)
