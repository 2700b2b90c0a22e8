"""The runbook's steps for database nodes, played as they stand there."""

import re
from pathlib import Path
from typing import Final

import pytest

from app.cli.golive import FOLDER
from tests.ha.cluster import Cluster, whole
from tests.ha.tools import tools
from tests.ha.watching import can_commit
from tests.memory import memory
from tests.postgres.server import programs
from tests.waiting import until

pytestmark = pytest.mark.postgres

RUNBOOK: Final = (FOLDER.parent / "RUNBOOK.md").read_text()


def step(name: str) -> list[str]:
    """Return the words of the runbook's command with this name, without its configuration."""
    (found,) = set(re.findall(rf"`patronictl -c /etc/patroni/config.yml ({name}\b[^`]*)`", RUNBOOK))
    return str(found).split()


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_the_steps_for_nodes_do_what_the_runbook_says(tmp_path: Path) -> None:
    """A switchover, a standby that is gone for long, one copy meanwhile, and a copy made anew."""
    with (
        programs(within=memory()) as (found, folder),
        whole(Cluster(tools(), found, folder, "strict")) as cluster,
    ):

        def commits(node: str) -> bool:
            return can_commit(cluster.url_of(node, "postgres"))

        assert all(word in cluster.control(*step("list")) for word in ("Leader", "Sync Standby"))
        cluster.control(*step("switchover"))
        until(lambda: cluster.leader() == "two" and cluster.is_whole(), otherwise=cluster.said)
        cluster.kill_node("one")
        until(lambda: not commits("two"))
        cluster.control(*step("edit-config"))
        until(lambda: commits("two"), otherwise=cluster.said)
        cluster.start_patroni("one")
        until(cluster.is_whole, otherwise=cluster.said)
        cluster.control(*(word.replace("=false", "=true") for word in step("edit-config")))
        cluster.control(*step("reinit"))
        until(lambda: not cluster.is_whole())
        until(cluster.is_whole, otherwise=cluster.said)
        assert commits("two")
