"""The database of very many deliveries at a tiny size: the program finds it sound, and a figure
with a wrong answer holds nothing."""

from dataclasses import replace
from typing import Any

import pytest

from tests.bench.many import PER_CUSTOMER, Many, Paces, figures_of, many
from tests.bench.sizes import QUICK

TINY = replace(QUICK, many_deliveries=1_000, many_orders=100, many_legs=1, warm=50)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Many:
    """Return the bench's results at a tiny size."""
    return many(tmp_path_factory.mktemp("many"), sizes=TINY)


def test_what_was_made_is_a_sound_database(found: Many) -> None:
    assert (found.report["bodies"], found.report["orders"]) == (1_000, 10)
    assert found.report["problems"] == []
    assert found.whole


def test_a_customer_is_erased_whole(found: Many) -> None:
    assert found.erased["kept"] == []
    assert (found.erased["orders"], found.erased["deliveries"]) == (1, PER_CUSTOMER)
    assert not found.traces


@pytest.mark.parametrize(
    ("wrong", "held"),
    [
        ({"traces": True}, [True, True, False]),
        ({"erased": {"deliveries": PER_CUSTOMER - 1, "kept": []}}, [True, True, False]),
        ({"report": {"bodies": 999, "found": 0}}, [False, False, True]),
        ({"report": {"bodies": 1_000, "found": 1}}, [False, False, True]),
        ({"whole": False}, [False, False, True]),
    ],
)
def test_speed_with_a_wrong_answer_holds_nothing(
    found: Many, wrong: dict[str, Any], held: list[bool]
) -> None:
    fast = replace(found, erase_s=0.1, legs=[(Paces(1, 1, 1), Paces(1, 1, 1))])
    assert all(figure.holds for figure in figures_of(fast))
    assert [figure.holds for figure in figures_of(replace(fast, **wrong))] == held
