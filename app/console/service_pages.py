"""Pages of the service itself: notifications, the audit trail, the log, people, tokens, go-live."""

from __future__ import annotations

from typing import Any, Final

from app.access.operators import AFTER_ALL, MAY, trail
from app.access.sessions import sign_in_states
from app.access.tokens import known_tokens
from app.console.jobs import Checked
from app.console.view import ROWS, Document, View
from app.console.words import ACTIONS, NOTIFICATIONS
from app.core.errors import NotFoundError
from app.core.jobs import job_document
from app.evidence.prove_sealed import newest_checkpoint
from app.evidence.seal import fingerprint_of, known_log
from app.evidence.witnesses import witness_document
from app.golive.golive import ITEMS, REHEARSED, STATED, last_checklist
from app.monitoring.health import overview
from app.orders.notify_shop import STATES, list_notifications
from reconcile.instants import Instant, format_instant

SIGNED: Final = (*REHEARSED, *STATED)
"""Items that a person may state at any time; of what is checked, the checks say first whether one
may."""

ITEM_TITLES: Final = {
    "api_keys": "Token and secrets",
    "webhook_verification": "The public address refuses what is not genuine",
    "environment_separation": "Sandbox and live are apart",
    "idempotency": "The same start twice gives one session",
    "duplicates": "A webhook that comes twice counts once",
    "rehearsal": "Every scenario was rehearsed",
    "support_ownership": "Who answers customers and the provider",
    "legal_documents": "Contract, terms, privacy notice and refund policy",
    "rollback": "How payments are turned off again",
}
"""What each item of the checklist is about."""


def _said(instant: Instant | None) -> str | None:
    return None if instant is None else format_instant(instant)


def problem_sentence(problem: str | None) -> str | None:
    """Why the last try to tell the shop failed."""
    if problem is None:
        return None
    kind, _, number = problem.partition("_")
    if kind == "status" and number.isdigit():
        return f"The shop answered with status {number}."
    return f"The last try failed: {problem.replace('_', ' ')}."


def notification_row(entry: Any) -> dict[str, Any]:
    """A notification with what its state means."""
    return {
        "number": entry.seq,
        "order": entry.order,
        "outcome": entry.outcome,
        "state": entry.state,
        "sentence": problem_sentence(entry.problem) or NOTIFICATIONS[entry.state],
        "tries": entry.tries,
        "published_at": format_instant(entry.published_at),
        "due_at": _said(entry.due_at),
        "delivered_at": _said(entry.delivered_at),
        "problem": entry.problem,
    }


async def notifications_document(view: View) -> Document:
    """GET /notifications?state=&order=&before="""
    chosen, order, before = view.choice("state", STATES), view.word("order"), view.number("before")
    state = next((each for each in STATES if each == chosen), None)
    found = await list_notifications(
        view.context, state=state, order=order, before=before, limit=ROWS
    )
    return {
        "filters": {"state": state, "order": order},
        "before": before,
        "states": list(STATES),
        "notifications": [notification_row(each) for each in found],
        "next": found[-1].seq if len(found) == ROWS else None,
    }


async def audit_document(view: View) -> Document:
    """GET /audit?who=&action=&subject=&before="""
    who, subject = view.word("who"), view.word("subject")
    action, before = view.choice("action", tuple(MAY)), view.number("before")
    found = await trail(
        view.context,
        who=who,
        action=action,
        subject=subject,
        before=before or AFTER_ALL,
        limit=ROWS,
    )
    return {
        "filters": {"who": who, "action": action, "subject": subject},
        "before": before,
        "actions": list(MAY),
        "entries": [
            {
                "number": each.number,
                "at": format_instant(each.at),
                "who": each.who,
                "role": each.role,
                "action": each.action,
                "did": next(
                    (word for name, word in ACTIONS.items() if name == each.action),
                    each.action.replace("_", " "),
                ),
                "subject": each.subject,
                "reason": each.reason,
                "facts": [
                    f"{name.replace('_', ' ')}: {value}" for name, value in each.facts.items()
                ],
            }
            for each in found
        ],
        "next": found[-1].number if len(found) == ROWS else None,
    }


async def log_document(view: View) -> Document:
    """GET /log"""
    sealed, unsealed = (await overview(view.context)).sealed
    known = await known_log(view.context)
    try:
        newest = await newest_checkpoint(view.context)
    except NotFoundError:
        newest = None
    return {
        "leaves": sealed,
        "waiting": unsealed,
        "origin": None if known is None else known.origin,
        "signing_keys": []
        if known is None
        else [
            {"key": public, "fingerprint": fingerprint_of(public), "in_force": place == 0}
            for place, public in enumerate(reversed(known.keys))
        ],
        "checkpoint": None
        if newest is None
        else {"size": newest.size, "at": format_instant(newest.at), "note": newest.note},
        **await witness_document(view.context, view.console.watched.witnesses),
    }


async def people_document(view: View) -> Document:
    """GET /people"""
    return {
        "people": [
            {
                "name": each.operator.name,
                "role": each.operator.role,
                "created_at": format_instant(each.operator.created_at),
                "disabled_at": _said(each.operator.disabled_at),
                "can_sign_in": each.can_sign_in,
                "password": each.password,
                "invited": each.invited,
                "sessions": each.sessions,
                "used_at": _said(each.used_at),
            }
            for each in await sign_in_states(view.context)
        ]
    }


async def tokens_document(view: View) -> Document:
    """GET /tokens"""
    now = view.context.clock.now()
    return {
        "tokens": [
            {
                "name": each.name,
                "operator": each.operator,
                "scopes": list(each.scopes),
                "in_force": each.in_force(now),
                "until": _said(each.until),
                "created_at": format_instant(each.created_at),
                "revoked_at": _said(each.revoked_at),
            }
            for each in await known_tokens(view.context)
        ]
    }


def last_checks(view: View) -> Checked | None:
    """What the checks of this console have last found; None where none were, or they still run."""
    job = view.console.jobs.newest("checks")
    return None if job is None else job.result


async def golive_document(view: View) -> Document:
    """GET /golive: the checklist, and what the checks of this console have last found."""
    job, found = view.console.jobs.newest("checks"), last_checks(view)
    items = await last_checklist(view.context, None if found is None else found.checklist)
    may_be_signed = ITEMS if found is not None else SIGNED
    return {
        "environment": view.console.environment,
        "left": sum(each.state != "passed" for each in items),
        "checks": job_document(job),
        "doctor": [] if found is None else found.doctor,
        "checklist": [
            each.document()
            | {
                "title": ITEM_TITLES[each.item],
                "signable": each.item in may_be_signed and each.state == "to_sign",
            }
            for each in sorted(items, key=lambda each: ITEMS.index(each.item))
        ],
    }
