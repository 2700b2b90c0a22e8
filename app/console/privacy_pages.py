"""Page of past erasures, proposed erasures, and copies of a person's data.

Proposals and addresses never contain a phone number.
"""

import hashlib
import hmac
from itertools import islice
from typing import Final

from starlette.responses import Response

from app.access.operators import AFTER_ALL, trail
from app.console.pages import download
from app.console.proposals_pages import proposal_shown, proposed
from app.console.service_pages import fact_words
from app.console.view import Act, ActionResult, Document, Field, Form, View
from app.console.words import address, spoken
from app.core.errors import NotFoundError, UsageError
from app.core.text import capital, counted
from app.privacy import erase, erase_finding, export, fit_journal
from app.privacy.places import WAITS
from app.privacy.whose import typed_as
from reconcile.instants import HOUR, format_known

KEPT_SHOWN: Final = 20
"""Maximum number of kept items that the preview of an erasure lists."""


async def privacy_document(view: View) -> Document:
    journal = await fit_journal.journal_state(view.context)
    found = await trail(view.context, action="erased", before=AFTER_ALL, limit=view.rows)
    return {
        "journal": {
            "begun": journal.begun,
            "problem": journal.problem,
            "pending": journal.pending,
            "waits": list(journal.waits),
            "torn": journal.torn,
            "restricted": journal.restricted,
            "next_end": format_known(journal.next_end),
        },
        "erasures": [{**each.document(), "facts": fact_words(each.facts)} for each in found],
    }


def _asked(view: View, subject: str, *, reason: str = "") -> erase.ErasureRequest:
    what = view.given.get("what", view.word("what") or "phone")
    return erase.ErasureRequest(
        phone=subject if what not in ("order", "email") else None,
        email=subject if what == "email" else None,
        order=subject if what == "order" else None,
        reason=reason,
        by=view.person.name,
    )


def _mark(view: View, subject: str) -> str:
    content = "\0".join((view.person.name, view.given.get("what", ""), subject.strip()))
    key = view.console.mark_key.encode()
    return hmac.new(key, content.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


async def ask_erase(view: View) -> Form:
    """Return the form that asks whose data to erase, and then its preview."""
    try:
        if "mark" in view.given:
            again = view.given.get("again", "")
            if not hmac.compare_digest(_mark(view, again), view.given["mark"]):
                raise UsageError(
                    "the number or address differs from the one that you typed before: nothing "
                    "was erased. Start again"
                )
            return await _look(view, again, looks=False)
        if subject := view.given.get("subject", ""):
            return await _look(view, subject, looks=True)
    except UsageError as error:
        return _first_asked(spoken(str(error)))
    return _first_asked()


def _first_asked(*problem: str) -> Form:
    return Form(
        "A customer's personal data",
        "/privacy",
        *problem,
        "First you see what would be erased, and what must stay for now and why. Nothing is "
        "erased yet.",
        "A number or an email address finds everything that names it as the customer's. An "
        "order's reference finds that order alone.",
        reason=False,
        preview=True,
        button="Show what would be erased",
        fields=_whose("Erase by"),
    )


def _whose(label: str) -> tuple[Field, ...]:
    choices = ("phone", "phone number"), ("email", "email address"), ("order", "order")
    return (
        Field("what", label, choices=choices, value="phone"),
        Field(
            "subject",
            "Number with its country, email address, or the order's reference",
            echo=False,
            hint="Such as +254 700 000 001",
        ),
    )


async def _look(view: View, subject: str, *, looks: bool) -> Form:
    try:
        found = await erase.erase(
            view.context,
            _asked(view, subject),
            dry_run=True,
        )
    except NotFoundError as error:
        return Form(
            "Nothing to erase", "/privacy", f"{capital(str(error))}.", ready=False, preview=True
        )
    return Form(
        found.subject,
        "/privacy",
        *_totals(found),
        "You propose the erasure. It is carried out when another admin approves it and types the "
        "number or address once more, because no proposal stores it.",
        "Erased data is deleted from the database and its write-ahead log, and cannot be "
        "restored: after a restore from a backup, Tallyhook erases it again. Ledgers, amounts, "
        "dates and references stay.",
        why="Why, without a number",
        fields=(
            Field("mark", "Mark", kind="hidden", value=_mark(view, subject)),
            Field("what", "Erase by", kind="hidden", value=view.given.get("what", "phone")),
            Field("again", "Type it once more", echo=False),
        ),
        preview=looks,
    )


def _totals(found: erase_finding.Erasure) -> tuple[str, ...]:
    counts = found.counts()
    lines = [
        f"Bodies and headers of {counted(counts['deliveries'], 'delivery', 'deliveries')} of "
        f"{counted(counts['orders'], 'order')}, "
        f"{counted(counts['rejections'], 'refused delivery', 'refused deliveries')}, "
        f"{counted(counts['session_requests'], 'session request')}, "
        f"{counted(counts['attachments'], 'attached file')} and "
        f"{counted(counts['book_lines'], 'number')} in order books would be erased."
    ]
    lines += [
        f"{each.where}: {counted(each.stays, 'row stays', 'rows stay')}: {each.why}."
        for each in found.places()
        if each.stays and each.why != WAITS
    ]
    if found.of_others():
        lines.append(f"This would also erase {erase.files_of_others(found)}.")
    restricted = found.restricted()
    others = [each for each in found.kept if each.kind is None]
    if staying := [*restricted, *others]:
        stay = counted(len(staying), "thing stays", "things stay")
        lines.append(f"{stay} for now, for finance and claims:")
        words = [f"{each.sentence}; {each.restricted_words}" for each in restricted]
        words += [each.sentence for each in others]
        both = zip(staying, words, strict=True)
        lines += [f"{each.what}: {word}." for each, word in islice(both, KEPT_SHOWN)]
        if len(staying) > KEPT_SHOWN:
            lines.append(f"And {len(staying) - KEPT_SHOWN} more.")
    if found.copies:
        lines.append(
            f"{counted(len(found.copies), 'earlier copy', 'earlier copies')} would not be erased:"
        )
        lines += [f"{each.name}: {each.sentence}." for each in found.copies[-KEPT_SHOWN:]]
    return tuple(lines)


async def do_erase(view: View, reason: str) -> ActionResult:
    asked = _asked(view, view.given.get("again", ""), reason=reason)
    proposal = await erase.propose_erasure(view.context, asked)
    assert proposal is not None, "an operator who is signed in has proved who they are"
    return proposed(proposal)


# --- a copy of a person's data --------------------------------------------------------------------

_HOURS: Final = export.OPEN_FOR // HOUR


async def ask_copy(view: View) -> Form:
    return Form(
        "A person's data",
        "/privacy",
        "You propose to take a copy of all data about a person, to give it to them. When another "
        f"admin approves, you alone can take it, for {_HOURS} hours.",
        "The audit trail records that you took the copy, and how you checked the person's "
        "identity. It does not store the number.",
        fields=(
            *_whose("Found by"),
            Field(
                "attachments",
                "Attached PDFs and pictures (not masked)",
                choices=(("no", "listed, but not included"), ("yes", "included unchanged")),
                value="no",
            ),
        ),
        why="How you checked the person's identity, without a number",
    )


async def do_copy(view: View, reason: str) -> ActionResult:
    subject, what = view.given.get("subject", ""), view.given.get("what", "phone")
    asked = export.ExportRequest(
        phone=subject if what not in ("order", "email") else None,
        email=subject if what == "email" else None,
        order=subject if what == "order" else None,
        attachments=view.given.get("attachments") == "yes",
        identity=reason,
        by=view.person.name,
    )
    try:
        proposal = await export.propose_export(view.context, asked)
    except NotFoundError as error:  # a mistyped order: the form is shown again
        raise UsageError(str(error)) from None
    assert proposal is not None, "an operator who is signed in has proved who they are"
    return proposed(proposal)


async def ask_take_copy(view: View) -> Form:
    found = await proposal_shown(view, view.needed("proposal"))
    lines, why = (found.sentence, f"You wrote: “{found.reason}”"), ""
    try:
        await export.check_open(view.context, found, by=view.person.name)
    except UsageError as error:
        why = f"{capital(str(error))}."
    pictures = (
        ", and check attached PDFs and pictures for other people."
        if "attachments" in found.given
        else ". It does not contain attached PDFs and pictures."
    )
    again = Field(
        "again", "Type the number or address once more, because no proposal stores it", echo=False
    )
    return Form(
        found.subject,
        address("proposals", found.id),
        *lines,
        why
        or "You get a ZIP: open index.html in it first. Before you hand the ZIP over, check its "
        f"files for names of other people in free texts{pictures}",
        ready=not why,
        reason=False,
        fields=() if "order" in found.given else (again,),
    )


async def do_take_copy(view: View, reason: str) -> Response:
    """Return the copy of a person's data as a download."""
    found = await proposal_shown(view, view.needed("proposal"))
    order = found.given.get("order") or None
    named = {} if order else typed_as(view.given.get("again", ""))
    asked = export.ExportRequest(
        phone=named.get("phone"),
        email=named.get("email"),
        order=order or named.get("order"),
        attachments="attachments" in found.given,
        identity="",
        by=view.person.name,
    )
    made = await view.console.makes(export.export, asked, approved=found)
    return download(made.archive, f"copy-{found.id}.zip", "application/zip")


ACTS: Final = (
    Act("Erase personal data", "erased", ask_erase, do_erase, button="Propose it", kept=False),
    Act(
        "A copy of a person's data",
        "data_exported",
        ask_copy,
        do_copy,
        button="Propose it",
        kept=False,
    ),
    Act(
        "Take the copy",
        "data_exported",
        ask_take_copy,
        do_take_copy,
        button="Download it",
        download=True,
        kept=False,
    ),
)
