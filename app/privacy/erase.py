"""Erase a customer's personal data, and keep the evidence of the money.

1 find    data about a phone number, an email address or an order
2 judge   each order and delivery, which can be erased or must stay
3 note    the ids in the journal, and the request in the audit trail
4 erase   one line of the journal after another, in short transactions
5 report  the remaining data with its legal ground

The sealed log still verifies. After a crash past step 3, the erasure is completed later.
"""

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Final

from app.access import proposals
from app.access.operators import Proven, note_in_trail, permitted, who_may
from app.access.proposal import Proposal
from app.context.context import AppContext
from app.core.errors import ConfigurationError, NotFoundError, UsageError
from app.core.jobs import silent
from app.core.masking import EMAIL_KIND
from app.core.text import counted
from app.database.engine import Connection
from app.database.statements import run
from app.evidence.seal import seal_unsealed
from app.orders.customers import checked_reason
from app.privacy.copies import TakenCopy, earlier_copies
from app.privacy.erase_finding import Erasure, ErasureFinder, rows_of
from app.privacy.erase_store import files_with, first_arrival, rows_that_hold
from app.privacy.erasure_journal import ErasureJournal
from app.privacy.fit_journal import fitting_journal, is_pending, note_lines, take_up
from app.privacy.replay_erasures import ErasureReplay, emptied_by, restricted_by
from app.privacy.whose import is_of, masked, person_of, pseudonym, typed_as
from app.receiving import due_store
from app.receiving.caught_up import must_have_read
from reconcile.instants import EARLIEST


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureRequest:
    """Request to erase the data of a person or order.

    With `files_of_others`, other orders' files are erased, too.
    """

    phone: str | None = None
    email: str | None = None
    order: str | None = None
    files_of_others: bool = False
    reason: str
    by: str | None


async def erase(
    context: AppContext,
    asked: ErasureRequest,
    *,
    dry_run: bool,
    progress: Callable[[int], None] = silent,
    agree: proposals.Agree | None = None,
) -> Erasure:
    """Erase the data about the request's subject. With `dry_run`, only report.

    Raise ConfigurationError for an unusable journal, NotFoundError without data, and UsageError for
    a refused request.
    """
    journal = await fitting_journal(context)
    asking = await who_may(context, by=asked.by, action="erased")
    if agree is None and not dry_run and proposals.proved(asking):
        raise UsageError(proposals.PROPOSE.format(NOT_ALONE))
    await must_have_read(context)  # the inbox may hold data of the subject
    person = person_of(context, phone=asked.phone, email=asked.email)
    try:
        finding = ErasureFinder(context, progress)
        async with context.database.reading(settled=True) as connection:  # 1, 2
            if person is None:
                erasure = await finding.of_order(connection, asked.order or "")
            else:
                erasure = await finding.of_identifier(connection, person)
            erasure.copies = await _copies(context, connection, erasure, person)
    except NotFoundError:
        if not dry_run:
            await _carry_out_begun(context, journal, progress=progress)
        raise
    erasure.dry_run = dry_run
    if dry_run:
        return erasure
    reason = checked_reason(context, asked.reason, phones=erasure.identifiers)
    if asked.order is not None and not asked.files_of_others and erasure.of_others():
        raise UsageError(
            f"{files_of_others(erasure)} would be deleted too: --dry-run lists these files. To "
            "erase them too, use --files-of-others"
        )
    async with context.database.writing() as connection:  # 3
        agreed = None if agree is None else await agree(connection)
        who = await permitted(connection, by=asked.by, action="erased")
        marks = [each.mark for each in erasure.orders]
        standing = {each.order for each in await run(connection, due_store.unchanged, marks)}
        stayed = erasure.keep({each.order for each in marks} - standing)
        for table, keys in (await rows_of(connection, stayed, erasure.identifiers)).items():
            erasure.waiting[table] = erasure.waiting.get(table, set()) | keys
            erasure.going[table] = erasure.going.get(table, set()) - keys
        now = context.clock.now()
        emptied, named = emptied_by(erasure, journal.key)
        restricted, those = restricted_by(erasure, journal.key)
        named.add(those)
        lines = journal.append(restricted | emptied, at=max(now, erasure.latest))
        await note_lines(connection, journal, since=now)
        await note_in_trail(
            connection, who, action="erased", subject=erasure.subject, at=now, reason=reason,
            facts=erasure.counts() | ({} if agreed is None else agreed.facts),
        )  # fmt: skip
    erasing = ErasureReplay(
        context, progress=progress, who=who, reason=reason, subject=erasure.subject
    )
    done = await erasing.carry_out(lines, named)  # 4
    erasure.requests = done.counts["session_requests"]
    # The trail and the restrictions of this erasure name orders, too: of one whose reference holds
    # the number all is searched again.
    in_reference = any(erasure.is_written_in(each.what) for each in erasure.kept)
    async with context.database.reading(settled=True) as connection:  # 5
        among = None if in_reference else erasure.holding
        erasure.found_after(await rows_that_hold(connection, erasure.identifiers, among=among))
    erasure.tidied = await erasing.tidy()
    await _carry_out_begun(context, journal, progress=progress)
    return erasure


async def _copies(
    context: AppContext, connection: Connection, erasure: Erasure, person: str | None
) -> list[TakenCopy]:
    orders = erasure.brought | erasure.staying
    deliveries = {*erasure.deliveries, *chain.from_iterable(orders.values())}
    since = None
    if not (erasure.book_lines or erasure.bank_lines or erasure.rejections):  # these may be older
        since = await first_arrival(connection, deliveries)
    return await earlier_copies(
        context,
        connection,
        subjects=deliveries | orders.keys(),
        person=person,
        since=EARLIEST if since is None else since,
    )


def files_of_others(erasure: Erasure) -> str:
    """Return a phrase on the files of other orders that the erasure includes."""
    files = erasure.of_others()
    orders = ", ".join(sorted({each.order for each in files}))
    return f"{counted(len(files), 'file')} of other orders ({orders}) with the customer's number"


async def _carry_out_begun(
    context: AppContext, journal: ErasureJournal, *, progress: Callable[[int], None]
) -> None:
    lines = await take_up(context, journal)
    await ErasureReplay(context, progress=progress).replay(lines, journal.key)


UNFINISHED: Final = (
    "It was started but not completed: the journal of erasures has it, but this database does "
    "not. If nobody is completing it now, the machine's owner does it by: {}"
)

NOT_ALONE: Final = "an erasure cannot be undone, and needs two operators"


async def propose_erasure(
    context: AppContext,
    asked: ErasureRequest,
    *,
    progress: Callable[[int], None] = silent,
) -> Proposal | None:
    """Propose an erasure. Return None for the machine's owner."""
    if not proposals.proved(await who_may(context, by=asked.by, action="erased")):
        return None
    found = await erase(context, asked, dry_run=True, progress=progress)
    reason = checked_reason(context, asked.reason, phones=found.identifiers)
    counts, person = found.counts(), person_of(context, phone=asked.phone, email=asked.email)
    others = f", {files_of_others(found)}" if asked.order and found.of_others() else ""
    whose, subject, given = f"the order {asked.order}", asked.order or "", dict[str, str]()
    if person is not None:
        given = {"pseudonym": pseudonym(context, person)}
        whose = subject = f"{masked(person)} ({given['pseudonym']})"
    async with context.database.writing() as connection:
        return await proposals.propose(
            connection,
            erasure_kinds(context)["erase" if person is None else "erase_person"],
            who=await permitted(connection, by=asked.by, action="erased"),
            now=context.clock.now(),
            because=NOT_ALONE,
            subject=subject,
            sentence=f"Erase the personal data of {whose}: bodies and headers of "
            f"{counted(counts['deliveries'], 'delivery', 'deliveries')} of "
            f"{counted(counts['orders'], 'order')}, phone numbers, session "
            f"requests{others} and files. This cannot be undone.",
            given=given,
            reason=reason,
        )


def erasure_kinds(context: AppContext) -> Mapping[str, proposals.ProposalKind]:
    """Return the kinds of erasure proposals, for orders and persons."""

    async def unfinished(proposal: Proposal) -> str | None:
        order = proposal.subject if proposal.kind == "erase" else None
        try:
            pending = await is_pending(context, order=order)
        except ConfigurationError as error:
            return f"Whether it was completed is unknown: {'; '.join(error.problems)}."
        command = "tallyhook erase --phone NUMBER --reason WHY"
        if order is not None:
            command = f"tallyhook erase --order {shlex.quote(order)} --reason WHY"
        return UNFINISHED.format(command) if pending else None

    async def perform(proposal: Proposal, agree: proposals.Agree) -> None:
        await seal_unsealed(context)  # deleted data must have been sealed before
        order = {"order": proposal.subject}
        asked = ErasureRequest(
            **(order if proposal.kind == "erase" else typed_as(agree.typed)),
            files_of_others=True,  # the sentence that was approved names them
            reason=proposal.reason,
            by=Proven(proposal.who),
        )
        await erase(context, asked, dry_run=False, agree=agree, progress=lambda _: None)

    def must_fit(proposal: Proposal, typed: str) -> None:
        if not typed.strip():
            raise UsageError(
                "the proposal does not contain the number or address to erase: give it with "
                "--typed, as the customer's request states it"
            )
        person = person_of(context, **typed_as(typed))
        if person is None or not is_of(context, person, proposal.given["pseudonym"]):
            raise UsageError(
                f"what you typed is not what {proposal.who} proposed to erase; nothing was "
                "erased: check the customer's own request"
            )

    of_order = proposals.ProposalKind(
        name="erase",
        title="Erase personal data",
        action="erased",
        subject_state=proposals.always_same,  # newer data is judged at the erasure
        perform=perform,
        takes_long=True,
        for_good=True,
        where=proposals.shown_in("orders"),
        unfinished=unfinished,
    )
    of_person = replace(
        of_order,
        name="erase_person",
        title="Erase a person's data",
        where=None,
        typed="The number or address, as the customer's request states it",
        must_fit=must_fit,
    )
    return {each.name: each for each in (of_order, of_person)}


def traces_left(path: Path, erasure: Erasure) -> list[Path]:
    """Return the SQLite files that still contain an erased number.

    Call this function in a process without the open database.
    """
    if erasure.kept or erasure.holding or not erasure.identifiers:
        return []
    return files_with(
        path, [each.removeprefix(EMAIL_KIND).encode() for each in erasure.identifiers]
    )
