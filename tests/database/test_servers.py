"""Answers of a PostgreSQL server about the copies that commits wait for."""

import pytest

from app.database.nodes import Nodes
from app.database.servers import State


def state(
    *standbys: str,
    names: str = "*",
    commit: str = "on",
    off: tuple[str, ...] = (),
) -> State:
    return State(
        off=list(off),
        names=names,
        commit=commit,
        recovers=False,
        awaited=sum(each != "async" for each in standbys),
        standbys=list(standbys),
    )


@pytest.mark.parametrize(
    ("found", "expected", "told"),
    [
        (state("sync"), 1, None),
        (state("sync", "potential"), 2, None),
        (state("quorum", "quorum"), 2, None),
        (state("unknown"), 1, None),
        (state(), 0, None),
        (state("sync"), 2, "1 of 2 synchronous standbys"),
        (state("sync"), 2, "are on 2 copies"),
        (state("sync", "async"), 2, "1 of 2"),
        (
            state(names=""),
            1,
            "synchronous_standby_names is empty: acknowledged deliveries are on 1",
        ),
        (state("async", names=""), 1, "0 of 1"),
        (state("sync", commit="local"), 1, "are on 1 copy"),
    ],
)
def test_fewer_synchronous_standbys_than_expected_are_told(
    found: State, expected: int, told: str | None
) -> None:
    missing = found.missing(expected)
    assert missing is None if told is None else told in str(missing)


@pytest.mark.parametrize(
    ("found", "waits"),
    [
        (state("sync"), False),
        (state(), True),
        (state("async"), True),
        (state("sync", names="FIRST 2 (a, b)"), True),
        (state("quorum", "quorum", names="ANY 2 (a, b, c)"), False),
        (state(names=""), False),
        (state(commit="local"), False),
    ],
)
def test_commits_wait_in_vain_where_too_few_standbys_are_connected(
    found: State, waits: bool
) -> None:
    assert found.waits_in_vain is waits


def test_each_server_is_named_whose_settings_lose_data() -> None:
    nodes = Nodes(
        state("sync"),
        {"one:5432": state(off=("fsync",)), "two:5432": None},
        {"n1:5432": state("async", off=("full_page_writes",)), "n2:5432": None},
    )
    assert [told.partition(";")[0].partition(",")[0] for told in nodes.unsafe(0)] == [
        "node n1:5432: the standby is asynchronous: if it took over",
        "the database server two:5432 of TALLYHOOK_DATABASE_URL does not answer",
        "the database server one:5432 of TALLYHOOK_DATABASE_URL has fsync=off and would lose "
        "acknowledged deliveries",
        "the database node n1:5432 has full_page_writes=off and would lose acknowledged deliveries",
    ]
    assert [told.partition(",")[0] for told in nodes.down()] == [
        "the database node n2:5432 does not answer"
    ]
    alone = Nodes(state(names="", off=("fsync",)), {}, {})
    assert alone.unsafe(0) == [
        "the database server has fsync=off and would lose acknowledged deliveries; turn it on"
    ]
