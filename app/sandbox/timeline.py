"""A session's scenario laid out in time: what happens, and what is delivered when."""

from __future__ import annotations

from dataclasses import dataclass

from app.sandbox.bodies import event_body
from app.sandbox.scenarios import Step
from app.sandbox.sessions import Session
from app.sandbox.truth import Happening
from app.sandbox.webhook_sender import Parcel
from reconcile.instants import Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One act of the provider: money moves (`happening`), or an event leaves (`parcels`)."""

    at: Instant
    happening: Happening | None = None
    parcels: tuple[Parcel, ...] = ()


def moments_of(session: Session) -> list[Moment]:
    """Everything that will happen in the session, in the order of time.

    What happens at one instant happens before anything of it is sent. A step that would move
    nothing (the rest of a refund that was already whole) is left out.
    """
    steps = [
        (step, event_id)
        for step, event_id in zip(session.scenario.steps, session.events, strict=True)
        if session.amount(step.amount).minor > 0
    ]
    moments = [Moment(at=session.happens_at(s), happening=_happening(session, s)) for s, _ in steps]
    moments += [
        Moment(at=session.sent_at(step), parcels=_parcels(session, step, event_id))
        for step, event_id in steps
    ]
    return sorted(moments, key=lambda moment: moment.at)


def _happening(session: Session, step: Step) -> Happening:
    return Happening(
        at=session.happens_at(step),
        kind=step.kind,
        payment=session.payments[step.attempt],
        money=session.amount(step.amount),
        movement=step.movement and session.movements[step.movement],
        contradicted="other_amount" in step.copies,
    )


def _parcels(session: Session, step: Step, event_id: str) -> tuple[Parcel, ...]:
    true = event_body(session, step, event_id=event_id)
    other = event_body(session, step, event_id=event_id, copy="other_amount")
    made = {
        "true": Parcel(event_id=event_id, signed=true, sent=true),
        "other_amount": Parcel(event_id=event_id, signed=other, sent=other),
        "tampered": Parcel(event_id=event_id, signed=true, sent=other),
    }
    return tuple(made[copy] for copy in step.copies)
