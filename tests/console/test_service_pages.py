"""Pages of the service itself, and what is done from them."""

import asyncio
import re
from dataclasses import asdict, replace
from typing import Any
from zoneinfo import ZoneInfo

import httpx2
import pytest

from app.access.operators import MAY
from app.access.tokens import admit, issue_token
from app.config.load import load_settings
from app.console.application import build_console
from app.console.service_pages import ITEM_TITLES, problem_sentence
from app.console.words import ACTIONS, NOTIFICATIONS, prose_in
from app.context.context import AppContext
from app.core.jobs import Jobs
from app.evidence.keys import write_key
from app.evidence.seal import Sealer, open_signer, rename_log, seal_all
from app.evidence.verify_log import VerifiedLog, verify_own_log
from app.golive.examine import examine
from app.golive.golive import ITEMS
from app.monitoring.preflight import Check
from app.orders.notify_shop import STATES
from reconcile.instants import MINUTE, Instant
from tests.api.driving import SECRET, environ, of_order
from tests.console.conftest import RunningConsole, of_form, send, session_for
from tests.console.test_pages import shown
from tests.contexts import with_settings
from tests.waiting import soon


def test_every_word_has_a_sentence() -> None:
    assert set(ACTIONS) == set(MAY)
    assert set(NOTIFICATIONS) == set(STATES)
    assert set(ITEM_TITLES) == set(ITEMS)
    assert problem_sentence("status_503") == "The shop answered with status 503."
    assert problem_sentence("timed_out") == "The last try failed: timed out."


def test_a_sentence_of_a_page_has_commands_as_code_and_moments_in_its_zone() -> None:
    """Text written by others stays text; so does a lone backquote."""
    prose = prose_in(ZoneInfo("Africa/Nairobi"))
    assert prose("by 2026-12-31T22:00:00.5Z, run `tallyhook <x>` & look") == (
        'by <time title="2026-12-31 22:00:00.500 UTC">2027-01-01 01:00'
        "</time>, run <code>tallyhook &lt;x&gt;</code> &amp; look"
    )
    assert prose("a ` and <b>") == "a ` and &lt;b&gt;"


def test_a_command_that_shows_what_has_a_page_here_is_a_link_to_it() -> None:
    """Readers of the console have no command line."""
    prose = prose_in(ZoneInfo("UTC"))
    assert prose("`tallyhook deliveries show dlv_1` says why.") == (
        '<a href="/deliveries/dlv_1">its page</a> says why.'
    )
    assert prose("`tallyhook proposals show prp_1` shows it") == (
        '<a href="/proposals/prp_1">its page</a> shows it'
    )
    assert prose("`tallyhook proposals list` shows all") == (
        '<a href="/proposals">the list</a> shows all'
    )
    assert "<code>" in prose("look at one with `tallyhook deliveries show`")


async def test_what_waits_is_counted_so_far_and_no_further(
    console: RunningConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is sealed yet; the page says when it stopped counting."""
    async with console.signed_in("support") as client:
        whole = (await client.get("/now.json")).json()["state"]["unsealed"]
        monkeypatch.setattr("app.monitoring.health.COUNTED", whole)
        monkeypatch.setattr("app.console.orders_pages.COUNTED", whole)
        more = shown((await client.get("/")).text)
        monkeypatch.setattr("app.console.orders_pages.COUNTED", whole + 1)
        all_of_them = shown((await client.get("/")).text)
    assert whole > 0
    assert f"{whole} or more waiting" in more
    assert f"{whole} waiting" in all_of_them


async def test_the_trail_is_newest_first_and_pages_without_gap(
    console: RunningConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.console.view.ROWS", 2)
    seen, before = [], ""
    async with console.signed_in("finance") as client:
        while True:
            found = (await client.get(f"/audit.json?{before}")).json()
            seen += [each["number"] for each in found["entries"]]
            if found["next"] is None:
                break
            before = f"before={found['next']}"
        text = shown((await client.get("/audit?action=operator_added")).text)
        none = shown((await client.get("/audit?who=nobody")).text)
    numbers = [
        row[0] for row in console.driver.rows("SELECT number FROM audit ORDER BY number DESC")
    ]
    assert seen == numbers
    assert len(seen) >= 3
    assert "added an operator" in text
    assert "Nothing fits these filters" in none


async def verified(client: httpx2.AsyncClient) -> str:
    """Verify the log; return its page."""
    assert (await send(client, "/do/verify-log")).headers["location"].startswith("/log")
    return shown((await client.get("/log")).text)


async def test_of_eight_who_ask_at_once_one_verifies_the_log(
    console: RunningConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = list[str]()

    async def counted(context: AppContext) -> VerifiedLog:
        began.append("")
        return await verify_own_log(context)

    monkeypatch.setattr("app.console.service_pages.verify_own_log", counted)
    await seal_all(console.context, await open_signer(console.context))
    async with console.signed_in("viewer") as client:
        forms = [await of_form(client, "/do/verify-log") for _ in range(8)]
        sent = (client.post("/do/verify-log", data={"form": each}) for each in forms)
        answers = await asyncio.gather(*sent)
    assert {each.status_code for each in answers} == {303}
    assert len(began) == 1


async def test_the_log_is_verified_from_its_page(console: RunningConsole) -> None:
    """A row changed since it was sealed is reported."""
    async with console.signed_in("viewer") as client:
        signer = await open_signer(console.context)
        await seal_all(console.context, signer, sweep=True, progress=lambda *_: None)
        found = (await client.get("/log.json")).json()
        page = shown((await client.get("/log")).text)
        fits = await verified(client)
        key = load_settings(environ(console.driver.path.parent)).evidence_key_path
        own = key.rename(key.with_name("own"))
        write_key(key, secret=b"x" * 32)
        console.driver.clock.put(Instant(console.driver.clock.now() + MINUTE))
        foreign = await verified(client)
        own.replace(key)
        async with console.context.database.writing() as connection:
            await connection.exec_driver_sql("UPDATE deliveries SET source='other' WHERE 1=1")
        again = await verified(client)
        console.driver.clock.put(Instant(console.driver.clock.now() + MINUTE))
        broken = await verified(client)
    assert found["checkpoint"]["size"] == found["leaves"] > 0
    assert (found["witnesses"], found["left"]) == ([], [])
    assert "No witness is set up, so nobody outside the shop watches its log" in page
    assert "The log fits" in fits
    assert "is not the key of this machine" in foreign
    assert "is not the key of this machine" in again  # a minute is not over
    assert "Something does not fit" in broken


async def test_the_log_is_verified_once_for_all_who_ask_and_pages_answer_meanwhile(
    console: RunningConsole,
) -> None:
    begun, held = list[object](), asyncio.Event()

    async def work(use: Any, *args: Any, **words: Any) -> Any:
        begun.append(use)
        await held.wait()
        return VerifiedLog()

    jobs = Jobs(console.driver.clock, patience_s=0.01)
    application = build_console(replace(console.console, work=work, jobs=jobs))
    running = replace(console, application=application)
    async with running.signed_in("viewer") as client:
        pages = [await verified(client) for _ in range(3)]
        held.set()
        await jobs.settle([each for each in [jobs.newest("verify")] if each is not None])
        after = shown((await client.get("/log")).text)
    assert begun == [verify_own_log]
    assert all("It is being verified since" in each for each in pages)
    assert "The log fits" in after


async def test_somebody_is_invited_and_the_link_is_shown_once(console: RunningConsole) -> None:
    async with console.signed_in("admin") as client:
        wrong = await send(client, "/do/invite", name="Ben", role="owner")
        # Telephones put a space behind a word that they complete.
        told = await send(client, "/do/invite", name="Ben ", role="support")
        people = {
            each["name"]: each for each in (await client.get("/people.json")).json()["people"]
        }
        page = (await client.get("/people")).text
    link = re.search(r"/invite#([\w-]+)", told.text)
    assert link
    assert wrong.status_code == 400
    assert (people["Ben"]["role"], people["Ben"]["invited"]) == ("support", True)
    assert not people["Ben"]["can_sign_in"]
    assert people["a admin"]["sessions"] == 1
    assert link[1] not in page
    assert console.driver.rows("SELECT who FROM audit WHERE action='operator_invited'") == [
        ("a admin",)
    ]


async def test_sessions_are_ended_and_people_disabled_at_once(console: RunningConsole) -> None:
    viewer = await session_for(console.context, "a viewer")
    support = await session_for(console.context, "a support")
    async with console.signed_in("admin") as client:
        gone = await send(client, "/do/end-sessions?operator=a+viewer", reason="lost laptop")
        done = await send(client, "/do/disable?operator=a+support")
        last = await send(client, "/do/disable?operator=a+admin")
        assert (await client.get("/do/disable?operator=nobody")).status_code == 404
    for token in (viewer, support):
        async with console.client(token) as other:
            assert (await other.get("/")).status_code == 303
    assert (gone.status_code, done.status_code, last.status_code) == (303, 303, 400)
    assert "is the last admin" in shown(last.text)
    assert console.driver.rows(
        "SELECT subject, reason FROM audit WHERE action='sessions_ended'"
    ) == [("a viewer", "lost laptop")]


async def test_a_token_is_revoked_once(console: RunningConsole) -> None:
    await issue_token(console.context, name="books", by="a admin")
    async with console.signed_in("admin") as client:
        path = "/do/revoke-token?token=books"
        form = {"form": await of_form(client, path)}
        first, again = await client.post(path, data=form), await client.post(path, data=form)
        text = shown((await client.get("/tokens")).text)
        asked = shown((await client.get(path)).text)
    assert (first.status_code, again.status_code) == (303, 409)
    assert "revoked at" in text
    assert "It was revoked at" in asked
    assert len(console.driver.rows("SELECT 1 FROM audit WHERE action='token_revoked'")) == 1


async def test_an_item_is_signed_by_who_is_signed_in(console: RunningConsole) -> None:
    async with console.signed_in("support") as client:
        before = (await client.get("/golive.json")).json()
        path = "/do/sign-item?item=rollback"
        cross = await client.post(
            path,
            data={"form": await of_form(client, path), "reason": "tried on Monday"},
            headers={"Sec-Fetch-Site": "cross-site"},
        )
        signed = await send(client, path, reason="tried on Monday")
        unsignable = await client.get("/do/sign-item?item=api_keys")
        after = (await client.get("/golive.json")).json()
        text = shown((await client.get("/golive")).text)
    rollback = next(each for each in after["checklist"] if each["item"] == "rollback")
    assert (cross.status_code, signed.status_code, unsignable.status_code) == (403, 303, 400)
    assert (rollback["state"], rollback["by"]) == ("passed", "a support")
    assert after["left"] == before["left"] - 1
    assert "“tried on Monday”" in text
    assert "never been checked" in text
    # Nothing names an account of the machine: it is by a session, and by nobody who says so.
    assert console.driver.rows("SELECT who, facts FROM audit WHERE action = 'item_signed'") == [
        ("a support", "{}")
    ]


async def test_the_shop_is_told_again_by_number(console: RunningConsole) -> None:
    """Without a shop's address the form says so."""
    async with console.signed_in("support") as client:
        empty = shown((await client.get("/notifications")).text)
        none = shown((await client.get("/do/redeliver?number=1")).text)
        async with console.context.database.writing() as connection:
            sql = (
                "INSERT INTO notifications (seq, order_key, since, due_at, tries, problem) "
                "SELECT seq, order_key, at, NULL, 9, 'status_503' FROM revisions"
            )
            await connection.exec_driver_sql(sql)
        dead = (await client.get("/notifications.json?state=dead")).json()["notifications"]
        number = dead[0]["id"]
        sent = await send(client, f"/do/redeliver?number={number}", reason="the shop is back")
        waiting = (await client.get("/notifications.json?state=waiting")).json()["notifications"]
        text = shown((await client.get("/notifications")).text)
    assert "The shop has not been notified of anything yet" in empty
    assert "No notification has this number" in none
    assert sent.status_code == 303
    assert [each["id"] for each in waiting] == [number]
    assert "The shop answered with status 503." in text
    assert [each["id"] for each in dead] == sorted((n["id"] for n in dead), reverse=True)


async def test_the_shop_is_told_all_of_a_list_again(console: RunningConsole) -> None:
    """The form shows their count; all that were shown are sent, or none."""
    async with console.context.database.writing() as connection:
        sql = (
            "INSERT INTO notifications (seq, order_key, since, due_at, tries, problem) "
            "SELECT seq, order_key, at, NULL, 9, 'status_503' FROM revisions"
        )
        await connection.exec_driver_sql(sql)
    path = "/do/redeliver-all?state=dead"
    async with console.signed_in("support") as client:
        count = len((await client.get("/notifications.json?state=dead")).json()["notifications"])
        assert path in (await client.get("/notifications?state=dead")).text
        page = (await client.get(path)).text
        mark = page.partition('name="seen" value="')[2].partition('"')[0]
        stale = await send(client, path, reason="the shop is back", seen="0")
        sent = await send(client, path, reason="the shop is back", seen=mark)
        waiting = (await client.get("/notifications.json?state=waiting")).json()["notifications"]
        none = shown((await client.get(path)).text)
        all_of_all = await client.get("/do/redeliver-all")
    assert f"{count} notifications of this list are sent once more" in shown(page)
    assert (stale.status_code, sent.status_code, all_of_all.status_code) == (400, 303, 400)
    assert len(waiting) == count > 1
    assert "There is no notification to send" in none
    assert console.driver.rows(
        "SELECT who, reason FROM audit WHERE action = 'notifications_redelivered'"
    ) == [("a support", "the shop is back")]


async def test_a_new_evidence_key_is_begun_by_an_admin_with_the_password(
    console: RunningConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    signer = await open_signer(console.context)
    await seal_all(console.context, signer, sweep=True, progress=lambda *_: None)

    async def confirms(_: object, request: object, person: object, password: str) -> bool:
        return password == "right"

    monkeypatch.setattr("app.console.signing_in.SigningIn.confirms", confirms)
    async with console.signed_in("admin") as client:
        before = (await client.get("/log.json")).json()["signing_keys"]
        wrong = await send(client, "/do/rotate-key", password="wrong")
        done = await send(client, "/do/rotate-key", password="right")
        after = (await client.get("/log.json")).json()["signing_keys"]
    async with console.signed_in("finance") as client:
        assert (await client.get("/do/rotate-key")).status_code == 403
    assert wrong.status_code == 400
    (new,) = [each for each in after if each["in_force"]]
    assert new["fingerprint"] in shown(done.text)
    assert (len(before), len(after)) == (1, 2)
    assert console.driver.rows("SELECT who FROM audit WHERE action = 'key_rotated'") == [
        ("a admin",)
    ]


async def test_the_log_tells_its_earlier_origins(console: RunningConsole) -> None:
    await seal_all(console.context, await open_signer(console.context), sweep=True)
    async with console.signed_in("admin") as client:
        before = (await client.get("/log.json")).json()
        plain = shown((await client.get("/log")).text)
        renamed = await rename_log(console.context, by="a admin", reason="a backup was put back")
        told = (await client.get("/log.json")).json()
        page = shown((await client.get("/log")).text)
    assert (before["earlier"], "Earlier origins" in plain) == ([], False)
    leaves = renamed.earlier[0].size
    assert told["earlier"] == [{"origin": before["origin"], "leaves": leaves}]
    assert f"{before['origin']} {leaves} leaves" in " ".join(page.split())


PUBLISHED = "SELECT 1 FROM revisions WHERE order_key = 'ORD-9'"


async def nothing_to_seal(self: Sealer) -> int:
    """Replace a round of the service's own sealing."""
    return 0


@pytest.mark.usefixtures("folding")
async def test_letter_and_proofs_of_an_order_are_downloads(
    console: RunningConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Proofs cover what is sealed; the letter has the chosen form and is an audit entry."""
    async with console.signed_in("support") as client:
        with monkeypatch.context() as held:
            held.setattr(Sealer, "seal_some", nothing_to_seal)
            await console.driver.send(of_order("ORD-9", "evt_9", "declined"))
            await soon(lambda: bool(console.driver.rows(PUBLISHED)))
            early = await send(client, "/do/prove?order=ORD-9")
        signer = await open_signer(console.context)
        await seal_all(console.context, signer, sweep=True, progress=lambda *_: None)
        proofs = await send(client, "/do/prove?order=ORD-1")
        path = "/do/letter?order=ORD-1"
        letter = await send(client, path, ending="html", family="fraud", respond_by="")
        wrong = await send(client, path, ending="html", family="fraud", respond_by="soon")
        offered = (await client.get("/cases/ORD-1")).text
    found = proofs.json()
    kinds = {each["kind"] for each in found["proofs"]}
    assert early.status_code == 400
    assert "within seconds" in shown(early.text)
    assert (found["order"], kinds) == ("ORD-1", {"delivery", "revision"})
    assert all(len(each["path"]) > 0 for each in found["proofs"])
    assert "Statement on the payment of order ORD-1" in letter.text
    assert "SANDBOX" in letter.text
    assert wrong.status_code == 400
    assert letter.headers["content-disposition"].endswith('filename="letter-ORD-1.html"')
    assert "/do/letter" in offered
    assert console.driver.rows("SELECT count(*) FROM audit WHERE action = 'letter_taken'") == [(1,)]


async def test_a_token_is_made_on_its_page_and_shown_once(console: RunningConsole) -> None:
    """It is an audit entry; a wrong end, or no scope, makes none."""
    async with console.signed_in("admin") as client:
        path = "/do/add-token"
        none = await send(client, path, name="books", read="", orders="", until="")
        never = await send(client, path, name="books", read="yes", until="yesterday")
        made = await send(client, path, name="books ", read="yes", finance="yes", until="90d")
        page = (await client.get("/tokens")).text
        found = (await client.get("/tokens.json")).json()["tokens"]
    assert (none.status_code, never.status_code, made.status_code) == (400, 400, 200)
    shown_once = re.search(r"thk_sandbox_[\w-]+", made.text)
    assert shown_once is not None
    assert shown_once[0] not in page
    assert [(each["name"], each["scopes"], each["operator"]) for each in found] == [
        ("books", ["read", "finance"], None)
    ]
    assert await admit(console.context, shown_once[0], scope="finance") == "books"
    trail = console.driver.rows("SELECT who, subject FROM audit WHERE action='token_added'")
    assert trail == [("a admin", "books")]


async def test_the_checks_before_going_live_are_run_from_the_page(
    console: RunningConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page agrees with the doctor's JSON; the trail names who ran it, and items that only
    checks can show can be signed."""
    for name, value in environ(console.driver.path.parent, PUBLIC_URL="").items():
        monkeypatch.setenv(name, value)
    doctor: list[Check] = []

    async def kept() -> list[Check]:
        doctor.extend(await examine())
        return doctor

    monkeypatch.setattr("app.golive.examine.examine", kept)
    async with console.signed_in("finance") as client:
        before = (await client.get("/golive.json")).json()
        unchecked = shown((await client.get("/golive")).text)
        early = shown((await client.get("/do/sign-item?item=environment_separation")).text)
        done = await send(client, "/do/run-checks")
        document = (await client.get("/golive.json")).json()
        text = shown((await client.get("/golive")).text)
    assert (before["checks"], before["doctor"], done.status_code) == (None, [], 303)
    assert "run the checks to see which items" in early
    assert document["doctor"] == [asdict(each) for each in doctor]
    for each in document["doctor"]:
        for piece in re.split(r"\d{4}-\d\d-\d\dT[\d:]+Z", each["sentence"]):  # shown in the zone
            assert " ".join(piece.split()) in text
    states = {each["item"]: each["state"] for each in document["checklist"]}
    assert states["webhook_verification"] == "not_run_yet"
    assert {each["state"] for each in before["checklist"]} == {"not_run_yet", "to_sign"}
    assert ("not run yet" in unchecked, "failed" in unchecked) == (True, False)
    assert "run the checks, or tallyhook golive on the machine." in unchecked
    assert "Set TALLYHOOK_PUBLIC_URL" in text
    assert document["checks"]["by"] == "a finance"
    rows = console.driver.rows("SELECT who FROM audit WHERE action='golive_checked'")
    assert rows == [("a finance",)]
    async with console.signed_in("viewer") as client:
        assert (await client.post("/do/run-checks", data={"form": "x"})).status_code == 403


async def test_checks_that_take_too_long_say_so(
    console: RunningConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never() -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr("app.golive.examine.examine", never)
    monkeypatch.setattr("app.golive.examine.CHECKS_LIMIT_S", 0.0)
    async with console.signed_in("admin") as client:
        told = await send(client, "/do/run-checks")
        text = shown((await client.get("/golive")).text)
    assert told.status_code == 400
    assert "The checks failed: the checks took longer than" in text
    assert "tallyhook doctor" in text


async def test_a_person_chooses_how_they_are_notified(console: RunningConsole) -> None:
    """Only by ways that are set up; the page says what was chosen."""
    posts = {"url": "https://pager.example/in", "secret": SECRET}
    other = replace(console.console, context=with_settings(console.context, alarms=posts))
    async with console.signed_in("viewer") as client:
        none = shown((await client.get("/me")).text)
    here = replace(console, console=other, application=build_console(other))
    async with here.signed_in("support") as client:
        form = (await client.get("/do/choose-notices")).text
        mail = await send(client, "/do/choose-notices", pace="daily", way="mail", address="a@b.eu")
        done = await send(client, "/do/choose-notices", pace="daily", way="post", address="")
        page = shown((await client.get("/me")).text)
        off = await send(client, "/do/choose-notices", pace="off", way="post", address="")
        after = (await client.get("/me.json")).json()
    assert "Neither mail nor posts are set up" in none
    assert "By mail" not in form
    assert (mail.status_code, done.status_code, off.status_code) == (400, 303, 303)
    assert "You are notified each morning, by a signed POST to the alarm address." in page
    assert after["choice"] is None
