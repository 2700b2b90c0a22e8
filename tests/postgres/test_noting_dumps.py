"""The nightly dump of our compose.yaml is noted by the statement that stands there."""

import re

import pytest
import yaml

from app.cli.golive import FOLDER
from app.receiving.inbox import Inbox
from app.receiving.inbox_store import last_backup
from reconcile.instants import EARLIEST, SECOND
from tests.postgres.conftest import ask_in_loop

pytestmark = pytest.mark.postgres


async def test_a_dump_is_noted_as_of_its_beginning(inbox: Inbox, url: str) -> None:
    compose = yaml.safe_load((FOLDER / "compose" / "compose.yaml").read_text())
    (script,) = compose["services"]["backup"]["command"]
    (statement,) = re.findall(r'--command="([^"]+)"', script)
    for began in (1_795_168_800, 1_795_255_200):
        await ask_in_loop(url, statement.replace("$${began}", str(began)))
        assert await inbox.database.on_snapshot(last_backup) == EARLIEST + began * SECOND
