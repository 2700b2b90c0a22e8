"""The page My account, where an operator manages their sign-in, sessions and work notices."""

from hmac import compare_digest
from typing import Final
from urllib.parse import urlencode

from app.access import credentials, sessions
from app.access.challenges import begun_at, new_challenge
from app.access.passkeys import PasskeyAnswer, creation_options, passkey_origin
from app.console.signing_in import link_grant_of, qr_code
from app.console.view import Act, ActionResult, Document, Field, Form, View
from app.core.errors import NotFoundError, UsageError
from app.core.text import counted
from app.monitoring import work_notices
from reconcile.instants import format_instant, format_known

PACE_WORDS: Final[dict[work_notices.Pace, str]] = {
    "at_once": "At once",
    "daily": "Each morning, together",
    "off": "Not at all",
}

WAY_WORDS: Final[dict[work_notices.Way, str]] = {
    "mail": "By mail",
    "post": "By a signed POST to the alarm address",
}


async def account_document(view: View) -> Document:
    """Return the content of `GET /me`: the operator's sign-in methods, sessions and notification
    choice."""
    me = view.person.name
    choice, account = (
        await work_notices.notice_choice(view.context, me),
        await sessions.account_of(view.context, me),
    )
    return {
        "password": account is not None,
        "second_factor": account is not None and account.totp is not None,
        "passkeys": [
            {
                "id": each.id,
                "name": each.label,
                "made_at": format_instant(each.made_at),
                "used_at": format_known(each.used_at),
            }
            for each in await sessions.own_passkeys(view.context, me)
        ],
        "company": view.person.way == "company",
        "linkable": view.console.company is not None and view.person.way == "password",
        "sessions": [
            {
                "session": each.id,
                "here": each.id == sessions.session_id(view.cookie),
                "began_at": format_instant(each.created_at),
                "used_at": format_instant(each.used_at),
                "ends_at": format_instant(each.until),
            }
            for each in await sessions.own_sessions(view.context, me)
        ],
        "choice": choice
        and {
            "pace": choice.pace,
            "way": choice.way,
            "address": choice.address,
            "due_at": format_instant(choice.due_at),
            "tries": choice.tries,
        },
        "ways": [
            {"way": way, "means": WAY_WORDS[way]} for way in work_notices.ways_set_up(view.context)
        ],
    }


BY_LINK: Final = (
    "The demo's visitor signed in with a link, and has no password and no second factor."
)


async def ask_change_password(view: View) -> Form:
    if await sessions.account_of(view.context, view.person.name) is None:
        return Form(view.person.name, "/me", BY_LINK, ready=False)
    least = (
        f"At least {credentials.PASSWORD_MIN} characters. Several words in a row make a good "
        "password."
    )
    return Form(
        view.person.name,
        "/me",
        "Your other sessions end, and this one stays open. If you have forgotten your password, "
        "ask an admin for an invitation.",
        reason=False,
        password=True,
        fields=(
            Field("new", "New password", kind="password", hint=least),
            Field("again", "The same again", kind="password"),
        ),
    )


async def do_change_password(view: View, reason: str) -> str:
    password, again = view.given.get("new", ""), view.given.get("again", "")
    if not compare_digest(password.encode(), again.encode()):
        raise UsageError("the two new passwords are not the same")
    await sessions.change_password(
        view.context,
        name=view.person.name,
        password=password,
        here=view.cookie,
        merchant=view.context.settings.merchant,
    )
    return "/me"


async def ask_second_factor(view: View) -> Form:
    if await sessions.account_of(view.context, view.person.name) is None:
        return Form(view.person.name, "/me", BY_LINK, ready=False)
    totp = view.given.get("totp") or credentials.new_totp_secret()
    address = credentials.totp_address(totp, view.person.name)
    parts = " ".join(totp[at : at + 4] for at in range(0, len(totp), 4))
    return Form(
        view.person.name,
        "/me",
        "Scan the picture with your authenticator, or type the secret below it. From then on you "
        "sign in with your password and the authenticator's code. An earlier secret no longer "
        "works.",
        "Your other sessions end, and this one stays open.",
        reason=False,
        password=True,
        picture=qr_code(address),
        secret=parts,
        fields=(
            Field("totp", "Secret", kind="hidden", value=totp),
            Field("code", "Code that it shows now", echo=False),
        ),
    )


async def do_second_factor(view: View, reason: str) -> str:
    await sessions.set_second_factor(
        view.context,
        name=view.person.name,
        totp=view.given.get("totp", ""),
        code=view.given.get("code", ""),
        here=view.cookie,
    )
    return "/me"


def _session_of(view: View) -> str:
    return f"passkey {view.person.name} {view.person.began_at}"


async def ask_add_passkey(view: View) -> Form:
    me = view.person.name
    if await sessions.account_of(view.context, me) is None:
        return Form(me, "/me", BY_LINK, ready=False)
    console, now = view.console, view.context.clock.now()
    challenge = new_challenge(console.mark_key, to=_session_of(view), now=now)
    return Form(
        me,
        "/me",
        "Your computer, phone or security key makes a key that never leaves it. At sign-in it "
        "replaces the code; you still need your password.",
        "Your other sessions end, and this one stays open.",
        reason=False,
        password=True,
        fields=(
            Field("label", "Name of the passkey", hint="Such as: the grey security key"),
            Field("challenge", "Challenge", kind="hidden", value=challenge),
            Field("passkey", "Answer", kind="hidden"),
        ),
        passkey=creation_options(
            passkey_origin(console.origin),
            challenge,
            name=me,
            known=await sessions.own_passkeys(view.context, me),
        ),
    )


async def do_add_passkey(view: View, reason: str) -> str:
    console, challenge = view.console, view.given.get("challenge", "")
    now = view.context.clock.now()
    if begun_at(console.mark_key, challenge, to=_session_of(view), now=now) is None:
        raise UsageError(
            "this form is older than ten minutes, or another session opened it: open the form again"
        )
    answer = PasskeyAnswer(
        origin=passkey_origin(console.origin),
        challenge=challenge,
        text=view.given.get("passkey", ""),
    )
    label = view.given.get("label", "").strip()
    await sessions.add_passkey(
        view.context, answer, name=view.person.name, label=label, here=view.cookie
    )
    return "/me"


async def ask_remove_passkey(view: View) -> Form:
    known = await sessions.own_passkeys(view.context, view.person.name)
    found = next((each for each in known if each.id == view.needed("passkey")), None)
    if found is None:
        raise NotFoundError("you have no such passkey: look at the list")
    return Form(
        found.label,
        "/me",
        "This passkey no longer works. Your other sessions end, and this one stays open.",
        reason=False,
        password=True,
    )


async def do_remove_passkey(view: View, reason: str) -> str:
    identity, me = view.needed("passkey"), view.person.name
    await sessions.remove_passkey(view.context, identity, name=me, here=view.cookie)
    return "/me"


async def ask_link_company(view: View) -> Form:
    lines = (
        "You will sign in there. From then on you sign in with the company's account only: your "
        "password and all your sessions end, and your role here is what the company's account "
        "says.",
    )
    able = view.console.company is not None and view.person.way == "password"
    return Form(
        view.person.name,
        "/me",
        *(lines if able else ("There is nothing to link.",)),
        ready=able,
        reason=False,
        password=True,
    )


async def do_link_company(view: View, reason: str) -> ActionResult:
    """Return a page with a link to the company's sign-in."""
    grant = new_challenge(
        view.console.mark_key, to=link_grant_of(view.cookie), now=view.context.clock.now()
    )
    query = urlencode({"for": "link", "next": "/me", "grant": grant})
    return ActionResult(
        "Link the company's account",
        f"/sign-in/company?{query}",
        "Go on within ten minutes, and sign in there.",
    )


OTHERS: Final = "others"
"""Form value that ends all of the operator's other sessions."""


async def _ended(view: View) -> list[sessions.OwnSession]:
    asked, here = view.needed("session"), sessions.session_id(view.cookie)
    own = await sessions.own_sessions(view.context, view.person.name)
    if asked == OTHERS:
        return [each for each in own if each.id != here]
    found = [each for each in own if each.id == asked]
    if not found:
        raise NotFoundError("you have no open session with this number: look at the list")
    return found


async def ask_end_own_session(view: View) -> Form:
    found = await _ended(view)
    here = sessions.session_id(view.cookie)
    if not found:
        line = "You have no other session."
    elif [each.id for each in found] == [here]:
        line = "This is the session of this browser, so you will have to sign in again."
    else:
        ends = "It ends" if len(found) == 1 else "They end"
        line = f"{ends} at once. If you did not start it yourself, change your password too."
    return Form(counted(len(found), "session"), "/me", line, ready=bool(found), reason=False)


async def do_end_own_session(view: View, reason: str) -> str:
    found = [each.id for each in await _ended(view)]
    await sessions.end_own_sessions(view.context, name=view.person.name, ids=found)
    return "/me"


async def ask_choose_notices(view: View) -> Form:
    choice = await work_notices.notice_choice(view.context, view.person.name)
    ways = work_notices.ways_set_up(view.context)
    return Form(
        view.person.name,
        "/me",
        "You are notified of breaks that are assigned to you, and of proposals that wait for "
        "your approval: each once. The digest comes at 8 in the morning.",
        ready=bool(ways),
        reason=False,
        fields=(
            Field(
                "pace",
                "When",
                choices=tuple(PACE_WORDS.items()),
                value="at_once" if choice is None else choice.pace,
            ),
            Field(
                "way",
                "How",
                choices=tuple((way, WAY_WORDS[way]) for way in ways),
                value="mail" if choice is None else choice.way,
            ),
            Field(
                "address",
                "Mail address",
                value=(choice and choice.address) or "",
                hint=(
                    "Your own address. It is deleted when you choose another kind of notification."
                ),
                required=False,
            ),
        ),
    )


async def do_choose_notices(view: View, reason: str) -> str:
    when, how = view.given.get("pace"), view.given.get("way")
    pace = next((each for each in work_notices.PACES if each == when), None)
    way = next((each for each in work_notices.WAYS if each == how), None)
    if pace is None or way is None:
        raise UsageError("choose when and how you want to be notified")
    me, address = view.person.name, view.given.get("address", "")
    await work_notices.choose_notices(view.context, me, pace=pace, way=way, address=address, by=me)
    return "/me"


ACTS: Final = (
    Act(
        "Change your password",
        "password_changed",
        ask_change_password,
        do_change_password,
        done="Your password is changed, and your other sessions have ended.",
        kept=False,
    ),
    Act(
        "Set a second factor",
        "second_factor_set",
        ask_second_factor,
        do_second_factor,
        done="Your second factor is set, and your other sessions have ended.",
        kept=False,
    ),
    Act(
        "Add a passkey",
        "passkey_added",
        ask_add_passkey,
        do_add_passkey,
        done="Your passkey is saved, and your other sessions have ended.",
        kept=False,
    ),
    Act(
        "Remove your passkey",
        "passkey_removed",
        ask_remove_passkey,
        do_remove_passkey,
        done="Your passkey no longer works, and your other sessions have ended.",
        kept=False,
    ),
    Act(
        "Link the company's account",
        "company_linked",
        ask_link_company,
        do_link_company,
        kept=False,
    ),
    Act(
        "End your session",
        "me",
        ask_end_own_session,
        do_end_own_session,
        done="The session has ended.",
    ),
    Act(
        "Choose how you are notified",
        "notices_chosen",
        ask_choose_notices,
        do_choose_notices,
        done="Your choice is saved.",
    ),
)
