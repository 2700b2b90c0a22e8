"""Pages of the service: notifications, audit trail, log, people, tokens and going live."""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from hmac import compare_digest
from typing import Any, Final
from urllib.parse import urlencode

from app.access import operators, sessions, tokens
from app.access.company_account import refuse_without_passwords
from app.access.proposals import VOUCHING, newcomer_notice
from app.console.view import Act, ActionResult, Document, Field, Form, View, stated
from app.console.words import ACTIONS, NOTIFICATIONS
from app.core.errors import ConfigurationError, NotFoundError, UsageError
from app.core.jobs import job_document
from app.core.text import capital, counted
from app.evidence import prove_sealed, seal, witnesses
from app.evidence.seal import rotate_key
from app.evidence.verify_log import VerifiedLog, verify_own_log
from app.golive.examine import Checked, check_all
from app.golive.golive import ITEMS, REHEARSED, STATED, last_checklist, note_checks, sign
from app.monitoring.health import overview
from app.orders.notify_shop import STATES, list_notifications, notification_document, redeliver
from reconcile.instants import format_instant, format_known

SIGNED: Final = (*REHEARSED, *STATED)

ITEM_TITLES: Final = {
    "api_keys": "Token and secrets",
    "webhook_verification": "The public address refuses what is not genuine",
    "environment_separation": "Sandbox and live are separate",
    "account_sharing": "Other shops on the same account are told apart",
    "acting_alone": "What one person may decide alone has a limit",
    "idempotency": "Starting a payment twice opens one session",
    "duplicates": "A webhook that arrives twice counts once",
    "rehearsal": "Every scenario was rehearsed",
    "support_ownership": "Who answers customers and the provider",
    "legal_documents": "Contract, terms, privacy notice and refund policy",
    "rollback": "How payments can be turned off",
}


def problem_sentence(problem: str | None) -> str | None:
    """Return a sentence on the last failed notification, if any."""
    if problem is None:
        return None
    kind, _, number = problem.partition("_")
    if kind == "status" and number.isdigit():
        return f"The shop answered with status {number}."
    return f"The last try failed: {problem.replace('_', ' ')}."


def notification_row(entry: Any) -> dict[str, Any]:
    """Return a notification's row for a list, with a sentence on its state."""
    means = problem_sentence(entry.problem) or NOTIFICATIONS[entry.state]
    return {**notification_document(entry), "sentence": means}


async def notifications_document(view: View) -> Document:
    """Return the content of `GET /notifications?state=&order=&before=`: the notifications to the
    shop."""
    filters, before = view.filters({"state": STATES, "order": None}), view.number("before")
    found = await list_notifications(view.context, **filters, before=before, limit=view.rows)
    return {
        "filters": filters,
        "before": before,
        "states": list(STATES),
        "notifications": [notification_row(each) for each in found],
        "next": found[-1].seq if len(found) == view.rows else None,
    }


def fact_words(facts: Mapping[str, object]) -> list[str]:
    """Return a phrase for each fact of an audit entry."""
    return [f"{name.replace('_', ' ')}: {value}" for name, value in facts.items()]


async def audit_document(view: View) -> Document:
    """Return the content of `GET /audit?who=&action=&subject=&before=`: the entries of the audit
    trail."""
    filters = view.filters({"who": None, "action": tuple(operators.MAY), "subject": None})
    before = view.number("before")
    found = await operators.trail(
        view.context, **filters, before=before or operators.AFTER_ALL, limit=view.rows
    )
    return {
        "filters": filters,
        "before": before,
        "actions": list(operators.MAY),
        "entries": [
            {
                **each.document(),
                "did": next(
                    (word for name, word in ACTIONS.items() if name == each.action),
                    each.action.replace("_", " "),
                ),
                "facts": fact_words(each.facts),
            }
            for each in found
        ],
        "next": found[-1].number if len(found) == view.rows else None,
    }


async def log_document(view: View) -> Document:
    sealed, unsealed = (await overview(view.context)).sealed
    known = await seal.known_log(view.context)
    try:
        newest = await prove_sealed.newest_checkpoint(view.context)
    except NotFoundError:
        newest = None
    job = view.console.jobs.newest("verify")
    return {
        "verifying": job_document(job),
        "verified": None
        if job is None or job.result is None
        else job.result.document() | {"sentence": job.result.sentence()},
        "leaves": sealed,
        "waiting": unsealed,
        "origin": None if known is None else known.origin,
        "earlier": []
        if known is None
        else [{"origin": each.origin, "leaves": each.size} for each in known.earlier],
        "signing_keys": []
        if known is None
        else [
            {"key": public, "fingerprint": seal.fingerprint_of(public), "in_force": place == 0}
            for place, public in enumerate(reversed(known.keys))
        ],
        "checkpoint": None
        if newest is None
        else {"size": newest.size, "at": format_instant(newest.at), "note": newest.note},
        **await witnesses.witness_document(view.context),
    }


async def people_document(view: View) -> Document:
    return {
        "people": [
            {
                "name": each.operator.name,
                "role": each.operator.role,
                "created_at": format_instant(each.operator.created_at),
                "disabled_at": format_known(each.operator.disabled_at),
                "can_sign_in": each.can_sign_in,
                "password": each.password,
                "company": each.company,
                "invited": each.invited,
                "sessions": each.sessions,
                "used_at": format_known(each.used_at),
            }
            for each in await sessions.sign_in_states(view.context)
        ]
    }


async def tokens_document(view: View) -> Document:
    now = view.context.clock.now()
    return {
        "tokens": [
            {**each.document(), "in_force": each.in_force(now)}
            for each in await tokens.known_tokens(view.context)
        ]
    }


def last_checks(view: View) -> Checked | None:
    """Return the result of the last finished go-live checks in this console, or None."""
    job = view.console.jobs.newest("checks")
    return None if job is None else job.result


async def golive_document(view: View) -> Document:
    """Return the checklist for `GET /golive`, with the last results."""
    job, found = view.console.jobs.newest("checks"), last_checks(view)
    items = await last_checklist(view.context, None if found is None else found.checklist)
    may_be_signed = ITEMS if found is not None else SIGNED
    return {
        "environment": view.context.database.environment,
        "left": sum(each.state != "passed" for each in items),
        "checks": job_document(job),
        "doctor": [] if found is None else [asdict(each) for each in found.doctor],
        "checklist": [
            each.document()
            | {
                "title": ITEM_TITLES[each.item],
                "signable": each.item in may_be_signed and each.state == "to_sign",
            }
            for each in sorted(items, key=lambda each: ITEMS.index(each.item))
        ],
    }


# --- actions --------------------------------------------------------------------------------------


async def ask_redeliver(view: View) -> Form:
    number = stated("number", view.number("number"))
    found = await list_notifications(view.context, state=None, before=number + 1, limit=1)
    if not found or found[0].seq != number:
        return Form(
            f"number {number}", "/notifications", "No notification has this number.", ready=False
        )
    row = notification_row(found[0])
    return Form(
        f"number {number}, order {row['order']}",
        "/notifications",
        f"It says: {row['outcome'].replace('_', ' ')}. {row['sentence']} "
        f"{counted(row['tries'], 'try', 'tries')} so far.",
        "The notification is sent once more with the same id, and for three more days if the "
        "shop does not accept it. A shop that follows the rules knows the id, and ignores the "
        "repeat.",
    )


async def do_redeliver(view: View, reason: str) -> str:
    number = view.number("number")
    assert number is not None
    await redeliver(view.context, [number], by=view.person.name, why=reason)
    return "/notifications"


MOST_AGAIN: Final = 1_000
"""Maximum number of notifications that the page sends again at once."""


async def _untaken(view: View) -> list[int]:
    state, order = view.choice("state", STATES), view.word("order")
    if state is None and order is None:
        raise UsageError("choose the notifications: give a state or an order")
    found = await list_notifications(view.context, state=state, order=order, limit=MOST_AGAIN + 1)
    return [each.seq for each in found]


async def ask_redeliver_all(view: View) -> Form:
    found = await _untaken(view)
    query = urlencode({k: v for k in ("state", "order") if (v := view.word(k))})
    back, ready = f"/notifications?{query}", 0 < len(found) <= MOST_AGAIN
    if len(found) > MOST_AGAIN:
        line = (
            f"There are more than {MOST_AGAIN:,}. Find out first why the shop accepts none; then, "
            "to send all, have the machine's admin run: tallyhook notifications redeliver"
        )
    elif not found:
        line = "There is no notification to send."
    else:
        line = (
            f"{counted(len(found), 'notification')} of this list "
            f"{'is' if len(found) == 1 else 'are'} sent once more, each with the same id, and "
            "for three more days if the shop does not accept it. A shop that follows the rules "
            "knows the ids, and ignores the repeats."
        )
    sealed = Field("seen", "What was shown", kind="hidden", value=_numbers(found))
    return Form(
        counted(len(found[:MOST_AGAIN]), "notification"), back, line, ready=ready, fields=(sealed,)
    )


def _numbers(found: list[int]) -> str:
    return hashlib.sha256(" ".join(map(str, found)).encode()).hexdigest()


async def do_redeliver_all(view: View, reason: str) -> str:
    """Send all shown notifications again.

    Raises UsageError, and sends none, if the list has changed.
    """
    found = await _untaken(view)
    seen = compare_digest(view.given.get("seen", "").encode(), _numbers(found).encode())
    if len(found) > MOST_AGAIN or not seen:
        raise UsageError("the list has changed since it was shown: look at the list again")
    await redeliver(view.context, found, by=view.person.name, why=reason)
    return "/notifications"


async def ask_rotate_key(view: View) -> Form:
    return Form(
        "the key that signs the log",
        "/log",
        "Checkpoints and bundles are signed with a new key from now on. The old key endorses the "
        "new one, and the file of the old key is kept. What the old key has signed stays valid.",
        "Those who check evidence need the new public key through a separate channel. The page "
        "Log shows its fingerprint.",
        "A running service signs with the old key until it is restarted: have it restarted right "
        "afterwards. This cannot be undone, but another new key may follow.",
        reason=False,
        password=True,
    )


async def do_rotate_key(view: View, reason: str) -> ActionResult:
    try:
        key = await rotate_key(view.context, by=view.person.name)
    except ConfigurationError as error:
        raise UsageError("; ".join(error.problems)) from None
    return ActionResult(
        "A new key signs from now on",
        "/log",
        f"Its fingerprint is {key.public.fingerprint}. `tallyhook log key` on the machine "
        "shows it in the forms that others need; have its file backed up with the old one's.",
        "Have the service restarted now: until then it signs with the old key.",
    )


async def ask_verify_log(view: View) -> Form:
    return Form(
        "the log",
        "/log",
        "Leaves are recomputed from rows, hashes from leaves and heads from hashes, and every "
        "signature is checked. Nothing is changed.",
        "With a million deliveries it takes some minutes; the page of the log shows the "
        "result. What was found less than a minute ago is shown again.",
        reason=False,
    )


async def do_verify_log(view: View, reason: str) -> str:
    """Verify the transparency log in another process. Concurrent requests share one result."""

    async def work() -> VerifiedLog:
        try:
            return await view.console.work(verify_own_log)
        except NotFoundError:
            raise UsageError(
                "nothing is sealed yet: the running service seals new entries within seconds"
            ) from None

    await view.shared_job("verify", "log", work=work)
    return "/log"


async def ask_invite(view: View) -> Form:
    refuse_without_passwords(view.context.settings.oidc)
    name = view.word("operator") or ""
    known = {each.name: each for each in await operators.known_operators(view.context)}
    role = known[name].role if name in known else "support"
    notice = newcomer_notice(name or "A new person", now=view.context.clock.now())
    return Form(
        name or "a person",
        "/people",
        "You get a link, shown once. With it they set their password, and a one-time code "
        "unless they are a viewer. It is good for 24 hours and one use.",
        "Anyone who has the link can sign in as that person: send it through a separate, safe "
        "channel. An operator who has a password sets a new one with it.",
        f"{notice}.",
        reason=False,
        fields=(
            Field("name", "Name", value=name, hint="As the audit trail will show it."),
            Field(
                "role", "Role", choices=tuple((each, each) for each in operators.ROLES), value=role
            ),
        ),
    )


async def do_invite(view: View, reason: str) -> ActionResult:
    """Create an invitation link and show it once."""
    chosen = view.given.get("role")
    role = next((each for each in operators.ROLES if each == chosen), None)
    if role is None:
        raise UsageError(f"role must be one of: {', '.join(operators.ROLES)}")
    name = view.given.get("name", "").strip()
    token = await sessions.invite_operator(view.context, name=name, role=role, by=view.person.name)
    return ActionResult(
        f"{name} is invited",
        "/people",
        f"{name} can open this link once, within 24 hours. It is not shown again, and a new "
        "invitation ends it.",
        f"{newcomer_notice(name, now=view.context.clock.now())}. {capital(VOUCHING)}.",
        secret=f"{view.console.origin}/invite#{token}",
    )


async def _operator(view: View) -> str:
    name = view.needed("operator")
    if name not in {each.name for each in await operators.known_operators(view.context)}:
        raise operators.no_operator(name)
    return name


async def ask_disable(view: View) -> Form:
    name = await _operator(view)
    return Form(
        name,
        "/people",
        f"{name} loses all access at once: all their sessions end, and they cannot sign in again.",
        "The audit trail keeps the name, and no other person ever gets it. This cannot be undone.",
        reason=False,
    )


async def do_disable(view: View, reason: str) -> str:
    await operators.retire_operator(view.context, name=await _operator(view), by=view.person.name)
    return "/people"


async def ask_end_sessions(view: View) -> Form:
    name = await _operator(view)
    return Form(
        name,
        "/people",
        f"All sessions of {name} end, on every device. They may sign in again at once: to "
        "prevent that, disable them."
        + (" This is you: you are sent to sign in." if name == view.person.name else ""),
    )


async def do_end_sessions(view: View, reason: str) -> str:
    name = await _operator(view)
    await sessions.end_sessions(view.context, name=name, by=view.person.name, reason=reason)
    return "/people"


async def ask_add_token(view: View) -> Form:
    return Form(
        "a program",
        "/tokens",
        "You get a token, shown once. Anyone who has it may use the API within its scope.",
        "read: orders and the outcome feed. orders: register orders. checkout: start payments. "
        "finance: reports. evidence: bundles.",
        reason=False,
        fields=(
            Field("name", "Name", hint="The program's name, such as shop."),
            *(
                Field(
                    scope,
                    f"It may: {scope}",
                    choices=(("yes", "yes"), ("", "no")),
                    value="yes" if scope in tokens.UNNAMED else "",
                )
                for scope in tokens.TOKEN_SCOPES
            ),
            Field(
                "until",
                "Until",
                hint="A date, a time, or a duration such as 90d or 12h. If empty: no end.",
                required=False,
            ),
        ),
    )


async def do_add_token(view: View, reason: str) -> ActionResult:
    """Create an API token and show it once."""
    name = view.given.get("name", "").strip()
    scopes = [scope for scope in tokens.TOKEN_SCOPES if view.given.get(scope) == "yes"]
    if not scopes:
        raise UsageError("choose at least one scope of the token")
    until = view.given.get("until", "").strip() or None
    token = await tokens.issue_token(
        view.context,
        name=name,
        scopes=scopes,
        until=until,
        zone=view.context.calendar_zone,
        by=view.person.name,
    )
    return ActionResult(
        f"The token of {name}",
        "/tokens",
        f"Its scopes: {', '.join(scopes)}. Save it now: it is not shown again.",
        "The program sends it in each request's header Authorization, after the word Bearer.",
        secret=token,
    )


async def ask_revoke_token(view: View) -> Form:
    name = view.needed("token")
    found = next(
        (each for each in await tokens.known_tokens(view.context) if each.name == name), None
    )
    if found is None:
        raise tokens.no_token(name)
    return Form(
        name,
        "/tokens",
        f"Its scopes: {', '.join(found.scopes)}.",
        "The next request with this token is refused. If its program must continue, give it a "
        "new token first. This cannot be undone."
        if found.revoked_at is None
        else f"It was revoked at {format_instant(found.revoked_at)}.",
        ready=found.revoked_at is None,
        reason=False,
    )


async def do_revoke_token(view: View, reason: str) -> str:
    await tokens.withdraw_token(view.context, name=view.needed("token"), by=view.person.name)
    return "/tokens"


async def ask_run_checks(view: View) -> Form:
    return Form(
        "Going live",
        "/golive",
        "The checks look at the configuration, keys, clock, database, disk and certificates, as "
        "the commands `tallyhook doctor` and `tallyhook golive` do.",
        "They check whether the provider and the shop answer. They also send wrong requests and "
        "one right request to your own public address, and check that only the right one is "
        "accepted. No order changes, and no money moves.",
        reason=False,
    )


async def do_run_checks(view: View, reason: str) -> str:
    await note_checks(view.context, by=view.person.name)
    await view.job("checks", "golive", work=partial(view.console.work, check_all))
    return "/golive"


async def ask_sign_item(view: View) -> Form:
    item = stated("item", view.choice("item", ITEMS))
    sentence = {**REHEARSED, **STATED}.get(item)
    if sentence is None:
        found = last_checks(view)
        checked = () if found is None else found.checklist
        sentence = next(
            (e.sentence for e in checked if (e.item, e.state) == (item, "to_sign")), None
        )
    if sentence is None:
        raise UsageError(
            "this item needs no signature now: run the checks to see which items to sign"
        )
    return Form(
        ITEM_TITLES[item],
        "/golive",
        f"You state, in your name: {sentence.removesuffix('.')}.",
        "Statements are added, and never changed.",
        why="What you state, and where it is kept",
    )


async def do_sign_item(view: View, reason: str) -> str:
    await sign(view.context, view.needed("item"), by=view.person.name, note=reason)
    return "/golive"


ACTS: Final = (
    Act(
        "Notify the shop again",
        "notifications_redelivered",
        ask_redeliver,
        do_redeliver,
        button="Send it again",
        done="The notification is being sent again; its state says whether the shop accepted it.",
    ),
    Act(
        "Send all these notifications again",
        "notifications_redelivered",
        ask_redeliver_all,
        do_redeliver_all,
        button="Send all of them again",
        done="These notifications are being sent again; their states say whether the shop accepted "
        "them.",
    ),
    Act("Begin a new evidence key", "key_rotated", ask_rotate_key, do_rotate_key),
    Act("Verify the log", "log", ask_verify_log, do_verify_log, button="Verify it now"),
    Act("Invite somebody", "operator_invited", ask_invite, do_invite, button="Make the link"),
    Act(
        "Disable an operator",
        "operator_disabled",
        ask_disable,
        do_disable,
        button="Disable them",
        done="The operator no longer has access.",
    ),
    Act(
        "End sessions",
        "sessions_ended",
        ask_end_sessions,
        do_end_sessions,
        button="End them all",
        done="All sessions of the operator have ended.",
    ),
    Act("Make a token", "token_added", ask_add_token, do_add_token),
    Act(
        "Revoke a token",
        "token_revoked",
        ask_revoke_token,
        do_revoke_token,
        done="The token was revoked; the next request with it is refused.",
    ),
    Act("Run the checks", "golive_checked", ask_run_checks, do_run_checks, button="Run them now"),
    Act(
        "Sign an item",
        "item_signed",
        ask_sign_item,
        do_sign_item,
        button="State it",
        done="Your statement is below.",
    ),
)
