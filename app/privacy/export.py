"""Exports a copy of a person's data, for the person: a ZIP that opens without network.

    1 find    rows of their orders, and every row in which their number or address stands, by the
              marks on the columns (`app/database/marks.py`): a new column needs no code here
    2 mask    what such a row says of other people, and who works here (`export_masking`)
    3 note    in the trail who took the copy, how the person's identity was checked, and a pseudonym
    4 pack    one file a table, the files that were attached, and two indexes of both

Data that an erasure has to keep are in it, too: the right to see them does not end with it. An
operator with a session or token of their own proposes it. Once another operator has approved, only
the proposer takes the copy, and types the number again, since no proposal holds one. The machine's
owner takes it at once.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from app.access import proposals
from app.access.operator_store import operators
from app.access.operators import note_in_trail, permitted, who_may
from app.access.proposal import Proposal
from app.context.context import AppContext
from app.core.errors import UsageError
from app.core.jobs import silent
from app.core.text import counted
from app.evidence.verify import pack
from app.orders.customers import checked_reason
from app.privacy.export_files import files_of
from app.privacy.export_finding import Found, find_person
from app.privacy.whose import is_of, masked, person_of, pseudonym
from app.receiving.caught_up import must_have_read
from reconcile.instants import DAY, HOUR, Duration, Instant, format_instant

OPEN_FOR: Final[Duration] = DAY
"""Time after the approval in which the proposer may take the copy: one day's work."""

NAME: Final = "export"

NOT_ALONE: Final = "a copy of everything about a person takes two operators"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRequest:
    """Request for a copy of what is kept about one phone number, email address, or order's
    customer.

    identity     how the person's identity was checked: kept in the trail
    attachments  whether attached PDFs and pictures are in it, though nothing in them is masked
    """

    phone: str | None = field(default=None, repr=False)
    email: str | None = field(default=None, repr=False)
    order: str | None = None
    attachments: bool = False
    identity: str
    by: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """A finished copy. `archive` is the ZIP; `counts` are of its rows, its orders, and the attached
    files in it unmasked."""

    archive: bytes = field(repr=False)
    sha256: str
    as_of: Instant
    counts: Mapping[str, int]

    def document(self) -> dict[str, Any]:
        """Return its JSON document."""
        return {
            "sha256": self.sha256,
            "bytes": len(self.archive),
            "as_of": format_instant(self.as_of),
            **self.counts,
        }


async def export(
    context: AppContext,
    asked: ExportRequest,
    *,
    approved: Proposal | None = None,
    progress: Callable[[int], None] = silent,
) -> Exported:
    """Return a copy for the person, and record it in the trail.

    approved  the approved proposal, for an operator with a session or token of their own; its
              reason says how the person's identity was checked

    Raise UsageError for a person who may not, for unsuitable arguments and for too much data;
    NotFoundError if nothing is stored.
    """
    await must_have_read(context)  # the inbox may hold data of the person
    person, now = person_of(context, phone=asked.phone, email=asked.email), context.clock.now()
    async with context.database.reading(settled=True) as connection:
        who = await permitted(connection, by=asked.by, action="data_exported")
        if approved is not None:
            proposals.must_be_open(export_kind(context), approved, who=who, now=now)
            _must_be_of(context, approved, asked, person=person)
        elif proposals.proved(who):
            raise UsageError(proposals.PROPOSE.format(NOT_ALONE))
        found = await find_person(
            context, connection, person=person, order=asked.order, progress=progress
        )
        words = asked.identity if approved is None else approved.reason
        identity = _checked_identity(context, words, found)
        staff = {each.name for each in await operators(connection)}
        members, counts = await files_of(
            context, connection, found, staff, now, attachments=asked.attachments
        )
    archive = pack(members)
    sha256 = hashlib.sha256(archive).hexdigest()
    facts: dict[str, str | int] = counts | {"sha256": sha256}
    if person is not None:
        facts["pseudonym"] = pseudonym(context, person)
    if approved is not None and approved.decided is not None:
        facts |= {"proposal": approved.id, "second": approved.decided.who}
    async with context.database.writing() as connection:
        who = await permitted(connection, by=asked.by, action="data_exported")
        await note_in_trail(
            connection,
            who,
            action="data_exported",
            subject=masked(person) if person is not None else asked.order or "",
            at=context.clock.now(),
            reason=identity,
            facts=facts,
        )
    return Exported(archive=archive, sha256=sha256, as_of=now, counts=counts)


def _checked_identity(context: AppContext, identity: str, found: Found) -> str:
    """Return the statement on how the person's identity was checked, in a form that the trail may
    keep."""
    if not identity.strip():
        raise UsageError("--identity says how you checked that it is the person who asks")
    return checked_reason(context, identity, phones=found.identifiers)


async def propose_export(
    context: AppContext, asked: ExportRequest, *, progress: Callable[[int], None] = silent
) -> Proposal | None:
    """Propose a copy, for an operator who proved who they are. Return None for the machine's owner,
    who takes the copy at once. Raise as `export` does."""
    if not proposals.proved(await who_may(context, by=asked.by, action="data_exported")):
        return None
    await must_have_read(context)
    person = person_of(context, phone=asked.phone, email=asked.email)
    async with context.database.reading(settled=True) as connection:
        found = await find_person(
            context, connection, person=person, order=asked.order, progress=progress
        )
    given = {"order": asked.order or ""}
    attachments = {"attachments": "yes"} if asked.attachments else {}
    unmasked = ", with attached PDFs and pictures as they are" if asked.attachments else ""
    subject = f"the customer of the order {asked.order}"
    if person is not None:
        given = {"pseudonym": pseudonym(context, person)}
        subject = f"{masked(person)} ({given['pseudonym']})"
    async with context.database.writing() as connection:
        who = await permitted(connection, by=asked.by, action="data_exported")
        return await proposals.propose(
            connection,
            export_kind(context),
            who=who,
            now=context.clock.now(),
            because=NOT_ALONE,
            subject=subject,
            sentence=f"Give {who.name} a copy of all personal data of {subject}, with "
            f"{counted(len(found.orders), 'order')}{unmasked}, for {OPEN_FOR // HOUR} hours from "
            "the approval on, to hand to the person.",
            given=given | attachments,
            reason=_checked_identity(context, asked.identity, found),
        )


async def check_open(context: AppContext, approved: Proposal, *, by: str | None) -> None:
    """Raise UsageError, with what to do, if this person may not take the copy now."""
    who = await who_may(context, by=by, action="data_exported")
    proposals.must_be_open(export_kind(context), approved, who=who, now=context.clock.now())


def export_kind(context: AppContext) -> proposals.ProposalKind:
    """Return the kind of proposals to take a copy of a person's data.

    Approving makes no copy. It lets the proposer take the copy; each time adds an entry to the
    trail.
    """

    return proposals.ProposalKind(
        name=NAME,
        title="Take a copy of a person's data",
        action="data_exported",
        subject_state=proposals.always_same,
        perform=proposals.only_agreed(context),
        open_for=OPEN_FOR,
    )


def _must_be_of(
    context: AppContext, approved: Proposal, asked: ExportRequest, *, person: str | None
) -> None:
    """Raise UsageError if the approved copy is about somebody else, or excludes the files asked
    for."""
    if asked.attachments and "attachments" not in approved.given:
        raise UsageError("the copy that was approved is without attached PDFs and pictures")
    known = approved.given.get("pseudonym")
    if person is None or known is None:
        same = person is None and known is None and approved.given.get("order") == asked.order
    else:
        same = is_of(context, person, known)
    if not same:
        raise UsageError(
            f"the copy that was approved is of {approved.subject}, and of nobody else: name them "
            "as they were named then"
        )
