"""Permissions: unlimited for the owner of the machine until there are operators, then by role."""

from collections.abc import AsyncIterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from app.access.operator_store import audit_entries
from app.access.operators import (
    ASKED_BY,
    MAY,
    ROLES,
    Action,
    permitted,
    register_operator,
    retire_operator,
)
from app.access.proposals import check_reason
from app.access.sessions import invite_operator
from app.context.context import AppContext
from app.core.errors import NotFoundError, UsageError
from app.orders.customers import checked_reason
from tests.api.driving import Driver, driving
from tests.rows import for_each
from tests.searching import every


@pytest.fixture
async def context(tmp_path: Path) -> AsyncIterator[AppContext]:
    async with driving(tmp_path) as driver:
        assert isinstance(driver, Driver)
        yield driver.service.context


async def who_may(context: AppContext, *, by: str | None, action: Action) -> str:
    async with context.database.reading() as connection:
        return (await permitted(connection, by=by, action=action)).role


async def test_without_operators_the_account_may_do_everything(context: AppContext) -> None:
    for action in MAY:
        assert await who_may(context, by=None, action=action) == "account"


async def test_from_the_first_operator_on_roles_decide(context: AppContext) -> None:
    await register_operator(context, name="Boss", role="admin", by=None)
    for role in ROLES:
        await register_operator(context, name=f"a {role}", role=role, by="Boss")
    for action, roles in MAY.items():
        for role in ROLES:
            if role in roles:
                assert await who_may(context, by=f"a {role}", action=action) == role
            else:
                with pytest.raises(UsageError, match="the role must be"):
                    await who_may(context, by=f"a {role}", action=action)
        for nobody in (None, "Mallory"):
            with pytest.raises(UsageError, match="name an operator with the role"):
                await who_may(context, by=nobody, action=action)


async def test_the_environment_names_who_asks(
    context: AppContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    await register_operator(context, name="Boss", role="admin", by=None)
    monkeypatch.setenv(ASKED_BY, "Boss")
    assert await who_may(context, by=None, action="erased") == "admin"


async def test_a_disabled_operator_may_do_nothing_and_the_name_is_not_given_again(
    context: AppContext,
) -> None:
    await register_operator(context, name="Boss", role="admin", by=None)
    await register_operator(context, name="Ann", role="finance", by="Boss")
    await retire_operator(context, name="Ann", by="Boss")
    with pytest.raises(UsageError, match="not an active operator"):
        await who_may(context, by="Ann", action="period_closed")
    with pytest.raises(UsageError, match="similar to Ann, the name of a present"):
        await register_operator(context, name="Ann", role="admin", by="Boss")
    with pytest.raises(NotFoundError):
        await retire_operator(context, name="Ann", by="Boss")


async def test_a_name_is_written_as_its_person_writes_it(context: AppContext) -> None:
    """With joiners that a script needs; never two that look alike, nor direction marks."""
    await register_operator(context, name="Boss", role="admin", by=None)
    await register_operator(context, name="علی\u200cرضا", role="finance", by="Boss")
    await invite_operator(context, name="ශ්\u200dරී", role="support", by="Boss")
    for name in ("علیرضا", "ශ්රී"):
        with pytest.raises(UsageError, match="choose another name"):
            await register_operator(context, name=name, role="viewer", by="Boss")
        with pytest.raises(UsageError, match="choose another name"):
            await invite_operator(context, name=name, role="viewer", by="Boss")
    for name in ("Bo\u200dss", "\u202eBoss", "Boss\u200b"):
        with pytest.raises(UsageError, match="printable"):
            await invite_operator(context, name=name, role="viewer", by="Boss")
    assert checked_reason(context, "با علی\u200cرضا حرف زدم")
    check_reason("با علی\u200cرضا\nحرف زدم")


@pytest.mark.parametrize(
    ("name", "refused"),
    [
        ("\u0430nn", "mixes Latin and Cyrillic"),  # Cyrillic a
        ("\u0391nn", "mixes Latin and Greek"),
        ("\u0410\u0412\u0415", "named ABE"),  # Cyrillic ABE
        ("\uff21nn", "similar to Ann"),  # fullwidth
        ("ANN", "similar to Ann"),
        ("B0ss", "named Boss"),
        ("Bi11", "similar to Bill"),
        ("B\u0456ll", "mixes Latin and Cyrillic"),
        ("\U0001d400nn", "similar to Ann"),  # a mathematical A
        ("Bi\u01c0l", "similar to Bill"),  # the click of a Khoisan language
        ("\u0410\u043d\u043d\u0430", None),  # Anna in Cyrillic
        ("\u5f20\u4f1f Zhang", None),
        ("Annika", None),
        ("Andr\u00e9", None),
    ][:: every(3)],
)
async def test_no_two_names_look_alike(context: AppContext, name: str, refused: str | None) -> None:
    """Names of disabled people are not given again either."""
    await register_operator(context, name="Boss", role="admin", by=None)
    for taken in ("Ann", "ABE", "Bill", "Andre"):
        await register_operator(context, name=taken, role="finance", by="Boss")
    await retire_operator(context, name="Ann", by="Boss")
    with nullcontext() if refused is None else pytest.raises(UsageError, match=refused):
        await register_operator(context, name=name, role="viewer", by="Boss")
    with nullcontext() if refused is None else pytest.raises(UsageError, match=refused):
        await invite_operator(context, name=name, role="viewer", by="Boss")


async def test_there_is_always_an_admin(context: AppContext) -> None:
    with pytest.raises(UsageError, match="must have the role admin"):
        await register_operator(context, name="Ann", role="finance", by=None)
    await register_operator(context, name="Boss", role="admin", by=None)
    with pytest.raises(UsageError, match="last admin"):
        await retire_operator(context, name="Boss", by="Boss")


async def test_the_trail_has_every_deed_in_order(context: AppContext) -> None:
    await register_operator(context, name="Boss", role="admin", by=None)
    await register_operator(context, name="Ann", role="finance", by="Boss")
    await retire_operator(context, name="Ann", by="Boss")
    async with context.database.reading() as connection:
        trail = await audit_entries(connection, limit=10)
    assert [(each.number, each.action, each.subject) for each in trail] == [
        (1, "operator_added", "Boss"),
        (2, "operator_added", "Ann"),
        (3, "operator_disabled", "Ann"),
    ]
    assert [each.who for each in trail[1:]] == ["Boss", "Boss"]
    assert trail[0].role == "account"


@for_each("name", ["", " Ann", "A\x1b[2J", "x" * 81])
async def test_a_name_is_a_name(context: AppContext, name: str) -> None:
    with pytest.raises(UsageError, match="printable"):
        await register_operator(context, name=name, role="admin", by=None)
