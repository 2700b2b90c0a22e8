"""Every command on the page for finance prints what the page says."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.sessions import Shell, differences, sessions
from tests.docs.test_readme import ROOT, environment
from tests.forking import command_in

PAGE = ROOT / "app/finance/FINANCE.md"


@pytest.fixture
def shell(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """Open a shell in an empty folder, which finds the tests."""
    commands = command_in(tmp_path_factory.mktemp("commands"), "tallyhook", "python")
    opened = Shell(tmp_path, environment(commands) | {"PYTHONPATH": str(ROOT)})
    yield opened
    opened.close()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="the page's sessions need bash")
@pytest.mark.soak
def test_the_page_for_finance_does_what_it_shows(shell: Shell) -> None:
    for session in sessions(PAGE):
        for command in session:
            printed = shell.run(command.text)
            assert differences(command.output, printed) == [], (command.text, printed)
