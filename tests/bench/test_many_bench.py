"""The database of very many deliveries at a tiny size: the program finds it sound, and a figure
with a wrong answer holds nothing."""

from dataclasses import replace
from typing import Any

import pytest

from tests.bench.many import PER_CUSTOMER, Many, many, many_figures
from tests.bench.sizes import QUICK

TINY = replace(QUICK, many_deliveries=1_000, many_orders=100, many_legs=1)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Many:
    """Return the bench's results at a tiny size."""
    return many(tmp_path_factory.mktemp("many"), sizes=TINY)


def test_what_was_made_is_a_sound_database(found: Many) -> None:
    assert (found.report["bodies"], found.report["orders"]) == (1_000, 10)
    assert found.report["problems"] == []


def test_a_customer_is_erased_whole(found: Many) -> None:
    assert found.erased["kept"] == []
    assert (found.erased["orders"], found.erased["deliveries"]) == (1, PER_CUSTOMER)
    assert not found.traces


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"traces": True}, "erase --phone among many"),
        ({"erased": {"deliveries": PER_CUSTOMER - 1, "kept": []}}, "erase --phone among many"),
        ({"report": {"bodies": 999, "orders": 10, "found": 0}}, "db check of many deliveries"),
        ({"report": {"bodies": 1_000, "orders": 9, "found": 0}}, "db check of many deliveries"),
        ({"report": {"bodies": 1_000, "orders": 10, "found": 1}}, "db check of many deliveries"),
        (
            {"deep": {"bodies": 1_000, "orders": 10, "found": 1}},
            "db check --deep of many deliveries",
        ),
    ],
)
def test_speed_with_a_wrong_answer_holds_nothing(
    found: Many, wrong: dict[str, Any], named: str
) -> None:
    fast = replace(found, erase_s=0.1, check_s=0.001, metrics_ms=[1.0], p99_ms=[(1.0, 1.0)])
    assert all(figure.holds for figure in many_figures(fast))
    held = {figure.name: figure.holds for figure in many_figures(replace(fast, **wrong))}
    assert [name for name, holds in held.items() if not holds] == [named]
