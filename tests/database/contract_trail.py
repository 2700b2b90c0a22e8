"""Contract of every database for acts of people: the check reports a row of any table that changed
without an entry of the trail."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from app.access.operator_store import (
    Operator,
    add_operator,
    disable_operator,
    operators,
    set_role,
)
from app.access.operators import SERVICE, note_in_trail, register_operator
from app.access.session_store import (
    Passkey,
    add_passkey,
    add_session,
    any_credential,
    delete_passkeys,
    note_signature,
    passkeys_of,
    renew_session,
    revoke_own_sessions,
    sessions_of,
)
from app.access.sessions import session_id
from app.access.tokens import issue_token
from app.evidence.attachments import AttachRequest, attach
from app.finance.bank_store import bank_texts, rewrite_bank_texts
from app.finance.book_line_store import empty_lines, lines_with
from app.finance.import_digest_store import digests_again
from app.finance.match_rules import save_rules
from app.finance.withdraw_import import withdraw_import
from app.golive.golive import sign
from app.orders.order_facts import OrderFacts, tell_order
from app.privacy.trail_store import prove_trail
from app.receiving.inbox import Inbox
from reconcile.money import Money
from tests.database.builders import commit, context, fetch, rolled_back, tamper, tamper_in
from tests.database.contract_imports import bank, book, statement
from tests.reconcile.build import seconds

TABLE: Final = re.compile(r"(?:UPDATE|INTO|FROM) (\w+)")
LINES: Final = "the lines of import {} have changed since it was imported"

PLANTED: Final = {
    LINES.format(1): [
        "UPDATE book_lines SET minor=minor+900 WHERE reference='A-1'",
    ],
    LINES.format(2): [
        "UPDATE book_lines SET until=NULL WHERE reference='A-2' AND since=1",
    ],
    LINES.format(3): [
        "UPDATE statement_lines SET fee=fee+1, net=net-1",
        "INSERT INTO statement_lines (subject, kind, source, ordinal, since, line, currency, "
        "gross, fee, net) VALUES ('x', 'payment', 'shop', 0, 3, 'stm_x', 'KES', 5, 0, 5)",
    ],
    LINES.format(4): [
        "UPDATE bank_lines SET booked_at=booked_at+1 WHERE since=4",
        "UPDATE bank_lines SET reference='P-9', told='x' || told WHERE since=4",
    ],
    LINES.format(6): [
        "DELETE FROM book_lines WHERE since=6",
    ],
    "import 3 differs from the trail": [
        "UPDATE imports SET file='other.csv' WHERE number=3",
    ],
    "import 6 differs from the trail": [
        "UPDATE imports SET withdraws=4 WHERE number=6",
        "UPDATE imports SET withdraws=NULL WHERE number=6",
    ],
    "import 2 differs from the trail": [
        "UPDATE imports SET withdraws=1 WHERE number=2",
    ],
    "1 line of book imports was not added or withdrawn by a recorded import": [
        "INSERT INTO book_lines (match_key, kind, since, line, reference, minor, currency) "
        "VALUES ('x', 'order', 0, 'bok_x', 'X', 5, 'KES')",
        "UPDATE book_lines SET until=3 WHERE reference='A-2' AND since=2",
    ],
    "rules 1 differs from the trail": [
        "UPDATE match_rules SET toml=toml || ' '",
    ],
    "operator Fin differs from the trail": [
        "UPDATE operators SET role='admin' WHERE name='Fin'",
    ],
    "operator Eve is not in the trail": [
        "INSERT INTO operators (name, role, created_at) VALUES ('Eve', 'admin', 1)",
    ],
    "token shop differs from the trail": [
        "UPDATE tokens SET scopes='read finance' WHERE name='shop'",
        "UPDATE tokens SET hash='x' || hash WHERE name='shop'",
    ],
    "token eve is not in the trail": [
        "INSERT INTO tokens (name, hash, created_at, scopes) VALUES ('eve', 'x', 1, 'read')",
    ],
    "the signature on rollback differs from the trail": [
        "UPDATE signoffs SET signer='Bob'",
        "UPDATE signoffs SET note='other'",
    ],
    " differs from the trail": [
        "UPDATE attachments SET sha256='x' || sha256",
    ],
    "the closing of 2026-10 is not in the trail": [
        "INSERT INTO closings VALUES ('2026-10', 1, 1, 1, 'Ann', NULL, 'x', '{}')",
    ],
    "the decision about break brk_1 is not in the trail": [
        "INSERT INTO break_deeds (number, break_id, at, who, deed, value, reason, minor, currency) "
        "VALUES (9, 'brk_1', 1, 'Ann', 'accepted', '', 'paid in cash', 1, 'KES')",
    ],
}
"""Changes of a table, by what is reported about them."""


async def found(inbox: Inbox) -> list[str]:
    """Return the problems that a check of every line finds."""
    looked: list[int] = []
    problems = await fetch(inbox, prove_trail, looked.append)
    assert sum(looked) >= 5
    return problems


async def everything(inbox: Inbox, folder: Path) -> None:
    """Do one act of each kind."""
    await book(inbox, folder, "A-1,1.00,KES,,254711223344,", "A-2,2.00,KES,,,", at=1)
    await book(inbox, folder, "A-2,3.00,KES,,,", at=2)
    await statement(inbox, folder, "p1,A-1,1.00,0.10,KES,P-1,payment", at=3)
    await bank(inbox, folder, "2026-10-01,0.90,KES,,to 254711223344", at=4)
    await book(inbox, folder, "A-1,9.00,KES,,,", at=5)
    here = context(inbox, at=5)
    await register_operator(here, name="Ann", role="admin", by=None)
    await register_operator(here, name="Fin", role="finance", by="Ann")
    await issue_token(here, name="shop", scopes=("read",), by="Ann")
    late = context(inbox, at=6)
    await withdraw_import(late, 5, kind="book", by="Fin", reason="the wrong file")
    await save_rules(late, 'date_window = "2 days"\n', by="Ann")
    await sign(late, "rollback", by="Ann", note="seen")
    await tell_order(late, OrderFacts(order="A-1", money=Money(minor=100, currency="KES")))
    paper = AttachRequest(
        about="order", subject="A-1", name="a.txt", content=b"seen\n", kind="delivery", note="",
        by="Ann",
    )  # fmt: skip
    await attach(late, paper)


DIGESTS: Final = {
    1: "8fb96c2629727e25830b1c4637dc62ec975b46856df11bd36ade860c38492857",
    3: "952b456030510512861ed5c0e356df554bd0d53fff5f319eb80e503c95ee6858",
    4: "a1068a80c2343f85afae48e8c5bada93d2662c3b2425166a7ea47ede9605d6bb",
}
"""Digests of the lines of three imports, one of each kind. They are sealed for ever, so they
stay."""


class TrailContract:
    """Acts of people, in their tables and in the trail. A subclass gives `url`."""

    async def test_a_row_changed_past_the_trail_is_found(
        self, inbox: Inbox, tmp_path: Path
    ) -> None:
        await everything(inbox, tmp_path)
        assert await found(inbox) == []
        for sentence, changes in PLANTED.items():
            for sql in changes:
                async with rolled_back(inbox) as connection:
                    await tamper_in(connection, TABLE.findall(sql)[0], sql)
                    problems = await prove_trail(connection, lambda count: None)
                assert any(sentence in each for each in problems), sql
        assert await found(inbox) == []

    @pytest.mark.alike
    async def test_sealed_digests_stay_what_they_are(self, inbox: Inbox, tmp_path: Path) -> None:
        await everything(inbox, tmp_path)
        again = await fetch(inbox, digests_again, lambda count: None)
        now = {number: again.facts[number]["lines_sha256"] for number in DIGESTS}
        assert now == DIGESTS, now

    async def test_an_act_whose_row_is_gone_is_reported(self, inbox: Inbox, tmp_path: Path) -> None:
        await everything(inbox, tmp_path)
        for table in ("imports", "match_rules", "signoffs", "attachments", "tokens"):
            await tamper(inbox, table, f"DELETE FROM {table}")
        shown = await found(inbox)
        missing = [f"import {number}" for number in range(1, 7)] + ["rules 1", "token shop"]
        missing += ["the signature on rollback"]
        for name in missing:
            assert f"the trail has {name}, but it is missing here" in shown
        assert sum("the trail has attachment att_" in each for each in shown) == 1

    @pytest.mark.alike
    async def test_numbers_that_an_erasure_takes_out_change_no_digest_that_counts(
        self, inbox: Inbox, tmp_path: Path
    ) -> None:
        """Phones of a book are in no digest. Texts of a bank have one of their own, which counts
        until an erasure rewrites some."""
        await everything(inbox, tmp_path)
        async with inbox.database.writing() as connection:
            lines = await lines_with(connection, phones=["254711223344"])
            assert lines
            await empty_lines(connection, lines)
            texts = [each async for some in bank_texts(connection) for each in some]
            await rewrite_bank_texts(
                connection, [(key, ("", "", "", "to •••")) for key, _, _ in texts]
            )
        assert await found(inbox) != []
        await commit(
            inbox, note_in_trail, SERVICE, action="erased", subject="a customer", at=seconds(9),
            facts={"bank_lines": len(texts)},
        )  # fmt: skip
        assert await found(inbox) == []
        await tamper(inbox, "bank_lines", "UPDATE bank_lines SET minor=minor+1 WHERE since=4")
        assert any(LINES.format(4) in each for each in await found(inbox))

    async def test_passkeys_are_their_persons_and_count_their_signatures(
        self, inbox: Inbox
    ) -> None:
        now = seconds(60)
        keys = [
            Passkey(id=each, name=name, label=each, public_key=b"\0\xff", sign_count=0, made_at=now)
            for name, each in (("Ann", "grey"), ("Ann", "phone"), ("Fin", "office"))
        ]
        assert [await commit(inbox, add_passkey, each) for each in keys] == [True] * 3
        assert not await commit(inbox, add_passkey, replace(keys[0], name="Fin")), "it is Ann's"
        assert await fetch(inbox, passkeys_of, "Ann") == keys[:2]
        for noted in (True, False):  # the second time it was used meanwhile
            at = seconds(70)
            assert await commit(inbox, note_signature, keys[0], count=7, now=at) is noted
        used = replace(keys[0], sign_count=7, used_at=seconds(70))
        assert await fetch(inbox, passkeys_of, "Ann") == [used, keys[1]]
        assert await commit(inbox, delete_passkeys, "Fin", "grey") == 0
        assert await commit(inbox, delete_passkeys, "Ann", "grey") == 1
        assert await commit(inbox, delete_passkeys, "Ann") == 1
        assert await fetch(inbox, passkeys_of, "Fin") == keys[2:]

    async def test_an_operator_of_the_company_can_sign_in_without_a_password(
        self, inbox: Inbox
    ) -> None:
        ann = Operator(name="Ann", role="viewer", created_at=seconds(1), company="issuer ann")
        assert not await fetch(inbox, any_credential)
        await commit(inbox, add_operator, ann)
        assert await fetch(inbox, any_credential)
        await commit(inbox, set_role, "Ann", "admin")
        assert await fetch(inbox, operators) == [replace(ann, role="admin")]
        await commit(inbox, disable_operator, "Ann", now=seconds(2))
        assert not await fetch(inbox, any_credential)

    async def test_a_person_ends_their_own_sessions_and_nobody_elses(self, inbox: Inbox) -> None:
        now = seconds(60)
        for name, token in (("Ann", "here"), ("Ann", "phone"), ("Fin", "office")):
            await commit(inbox, add_session, token=token, name=name, now=now, until=seconds(600))
        assert await commit(inbox, renew_session, "here", new="here again", now=now)
        assert not await commit(inbox, renew_session, "here", new="anything", now=now)
        own = await fetch(inbox, sessions_of, "Ann", now=now, used_after=seconds(0))
        assert {each.id for each in own} == {session_id("here again"), session_id("phone")}
        ids = [session_id("phone"), session_id("office")]
        assert await commit(inbox, revoke_own_sessions, "Ann", ids, now=now) == 1
        assert await commit(inbox, revoke_own_sessions, "Ann", [], now=now) == 0
        left = await fetch(inbox, sessions_of, "Fin", now=now, used_after=seconds(0))
        assert [each.id for each in left] == [session_id("office")]
