"""The forms of the letter: HTML, and PDF by typst with the exhibits as pages behind it.

Typst is an extra (`pdf`), and imported only here. All text goes in as JSON, so that none can be
markup. A file that typst cannot lay out is listed, and said to be sent by itself.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
import tempfile
from pathlib import Path
from typing import Any, Final, Literal

from app.access.operators import note_in_trail, who_may
from app.core import pages
from app.core.errors import UsageError
from app.evidence.dispute_case import CaseRequest, Merchant
from app.evidence.dispute_letter import Exhibit, Letter, letter_of
from app.evidence.gather_evidence import Providers
from app.evidence.seal import CheckpointSigner, seal_all
from app.orders.holds import hold_if_due
from app.receiving.caught_up import must_have_read
from app.receiving.context import AppContext

LetterForm = Literal["pdf", "html"]

MOST_PAGES: Final = 20
"""Pages of one exhibit behind the letter: what is longer is listed, and sent by itself."""

MOST_TEXT: Final = 20_000
"""Characters of a text that stand behind the letter: some eight pages."""

_ENDINGS: Final = {"application/pdf": "pdf", "image/png": "png", "image/jpeg": "jpg"}


def form_of(path: Path) -> LetterForm:
    """Which form a file's name asks for. Raises UsageError."""
    forms: dict[str, LetterForm] = {".pdf": "pdf", ".html": "html", ".htm": "html"}
    found = forms.get(path.suffix.lower())
    if found is None:
        raise UsageError(f"{path}: name a file that ends in .pdf or .html")
    return found


async def take_letter(
    context: AppContext,
    asked: CaseRequest,
    form: LetterForm | None,
    *,
    providers: Providers,
    signer: CheckpointSigner,
    merchant: Merchant,
) -> tuple[Letter, bytes]:
    """The letter, and its bytes in a form; who takes them away is in the trail before they have
    them. Without a form it is only looked at.

    Raises UsageError for who may not and for a PDF where typst is not installed, NotFoundError for
    an order of which nothing was known.
    """
    who = await who_may(context, by=asked.by, action="letter_taken")
    await must_have_read(context)
    await hold_if_due(context, [asked.order])
    await seal_all(context, signer)
    letter = await letter_of(context, asked, providers=providers, merchant=merchant)
    if form is None:
        return letter, b""
    content = await asyncio.to_thread(letter_in, letter, form)
    async with context.store.writing() as connection:
        facts = {"sha256": hashlib.sha256(content).hexdigest(), "form": form}
        await note_in_trail(
            connection, who, action="letter_taken", subject=asked.order,
            at=context.clock.now(), facts=facts,
        )  # fmt: skip
    return letter, content


_SUM: Final = re.compile(r"\b([A-Z]{3}) (?=\d)")


def _unbroken(document: dict[str, Any]) -> dict[str, Any]:
    """With amounts in sentences that no line breaks."""
    facts = [each | {"fact": _SUM.sub("\\1\u00a0", each["fact"])} for each in document["facts"]]
    answer = [_SUM.sub("\\1\u00a0", each) for each in document["answer"]]
    return {**document, "facts": facts, "answer": answer}


def letter_in(letter: Letter, form: LetterForm) -> bytes:
    """The bytes of one form. Raises UsageError for a PDF where typst is not installed."""
    return html(letter) if form == "html" else pdf(letter)


def html(letter: Letter) -> bytes:
    """One page that needs nothing beside it; pictures and texts are in it, PDFs listed."""
    values = _unbroken(letter.document)
    values["behind"] = [_in_html(each, letter) for each in letter.exhibits]
    return pages.page("dispute.html", values).encode("utf-8", "backslashreplace")


def _in_html(exhibit: Exhibit, letter: Letter) -> dict[str, Any]:
    told: dict[str, Any] = letter.document["exhibits"][exhibit.number - 1]
    picture = exhibit.media.startswith("image/")
    encoded = base64.b64encode(exhibit.content).decode() if picture else ""
    return {
        **told,
        "picture": f"data:{exhibit.media};base64,{encoded}" if picture else "",
        "text": _text(exhibit),
    }


def _text(exhibit: Exhibit) -> str:
    if exhibit.media != "text/plain":
        return ""
    text = exhibit.content.decode("utf-8", "replace").removeprefix("\ufeff")
    rest = "\n[…] The rest is in the file." if len(text) > MOST_TEXT else ""
    return text[:MOST_TEXT] + rest


def pdf(letter: Letter) -> bytes:
    """The letter, and behind it each exhibit that can be laid out."""
    try:
        import typst
    except ImportError:
        raise UsageError(
            "a PDF takes typst, which is not installed here: pip install 'tallyhook[pdf]', or name "
            "a file that ends in .html"
        ) from None
    with tempfile.TemporaryDirectory(prefix="tallyhook-letter-") as folder:
        root = Path(folder)
        (root / "dispute.typ").write_bytes((pages.TEMPLATES / "dispute.typ").read_bytes())
        behind = [_behind(root, each) for each in letter.exhibits]
        values = {**_unbroken(letter.document), "behind": behind}
        written: bytes = typst.compile(
            root / "dispute.typ",
            root=root,
            ignore_system_fonts=True,
            sys_inputs={"letter": json.dumps(values)},
        )
    return written


def _behind(root: Path, exhibit: Exhibit) -> dict[str, Any]:
    """How an exhibit is laid out: its file and how many of its pages, or its text."""
    ending = _ENDINGS.get(exhibit.media)
    if ending is None:
        return {"number": exhibit.number, "file": "", "pages": 0, "text": _text(exhibit)}
    name = f"exhibit-{exhibit.number}.{ending}"
    (root / name).write_bytes(exhibit.content)
    pages_there = _pages(root, name) if ending == "pdf" else int(_can_show(root, name, 1))
    shown = 0 if pages_there > MOST_PAGES else pages_there
    return {"number": exhibit.number, "file": name, "pages": shown, "text": ""}


def _pages(root: Path, name: str) -> int:
    """How many pages a PDF has, MOST_PAGES + 1 where it has more, 0 where it cannot be shown."""
    low, high = 0, MOST_PAGES + 1
    while low < high:
        middle = (low + high + 1) // 2
        if _can_show(root, name, middle):
            low = middle
        else:
            high = middle - 1
    return low


def _can_show(root: Path, name: str, page: int) -> bool:
    """Whether typst lays out this page of a file: it has it, and can read it."""
    import typst

    probe = root / "probe.typ"
    probe.write_text(
        f'#set page(width: 1cm, height: 1cm)\n#image("{name}", page: {page}, width: 1cm)'
    )
    try:
        typst.compile(probe, root=root, ignore_system_fonts=True)
    except typst.TypstError:
        return False
    return True
