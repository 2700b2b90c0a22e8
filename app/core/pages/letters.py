"""Letters as blocks of content, and their two output formats: HTML and PDF.

All text is passed as data, so that none becomes markup. Each format has one template for all
letters.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from app.core.pages import TEMPLATES, css_text, page, paper

TYPST: Final = TEMPLATES / "letter.typ"

HTML: Final = ("base.html", "letter.html", "stamp.html", "style.css", "timeline.html")

PhraseLook = Literal["", "strong", "quiet", "code"]


class Phrase(NamedTuple):
    """Words in one style. With `line`, the words begin on a new line."""

    text: str
    look: PhraseLook = ""
    line: bool = False


Phrases = str | Sequence[Phrase]


@dataclass(frozen=True, slots=True)
class Heading:
    text: str
    level: Literal[1, 2] = 2
    kind: str = field(default="heading", init=False)


@dataclass(frozen=True, slots=True)
class Paragraph:
    text: Phrases
    look: PhraseLook = ""
    kind: str = field(default="paragraph", init=False)


@dataclass(frozen=True, slots=True)
class Listing:
    items: Sequence[Phrases]
    ordered: bool = False
    kind: str = field(default="listing", init=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterTable:
    """Table in a letter. In a row with one cell, the cell spans all columns except the first."""

    rows: Sequence[Sequence[Phrases]]
    widths: Sequence[float]
    """Each column's share of the width; 0 for as wide as its text."""
    head: Sequence[str] = ()
    """Headings of the columns."""
    numbers: Sequence[int] = ()
    """Positions of the columns with amounts."""
    labels: bool = False
    """True if each row's first cell is its label."""
    kind: str = field(default="table", init=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterColumn:
    """Moment on a letter's timeline."""

    x: int
    time: str
    day: str
    """Date; empty unless the moment is the first of its day."""
    gap: str
    """Time since the moment before."""
    gap_x: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnEvent:
    """Event on a letter's timeline, with a mark for when it happened and one for its arrival."""

    number: int
    happened_x: int
    reached_x: int
    set_off: int
    """Distance by which the event's number is raised, so that numbers do not overlap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """Timeline in a letter, in CSS pixels, with a row of events and a row of arrivals.

    left               left edge of the first column
    happened, reached  vertical positions of the two rows
    """

    columns: tuple[LetterColumn, ...]
    marks: tuple[DrawnEvent, ...]
    width: int
    left: int
    happened: int = 66
    reached: int = 134
    kind: str = field(default="timeline", init=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownExhibit:
    """File or text that is attached to the letter and shown on separate pages."""

    title: str
    text: str = ""
    file: str = ""
    """Name of the attached file, in the letter's folder; "" for a text."""
    pages: int = 0
    """Number of the file's pages that are shown."""
    kind: str = field(default="exhibit", init=False)


Block = Heading | Paragraph | Listing | LetterTable | Drawing | ShownExhibit


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterDocument:
    """Letter as a sequence of blocks, for output as HTML or PDF."""

    title: str
    author: str = ""
    sheet: Sequence[str] = ()
    """Text on each sheet of paper."""
    stamp: str = ""
    """Word across each sheet; "" for none."""
    blocks: Sequence[Block] = ()


def html_of(letter: LetterDocument, pictures: Mapping[str, tuple[str, bytes]] | None = None) -> str:
    """Return a letter as one self-contained HTML page.

    pictures  media type and bytes of each exhibit, by the exhibit's file name
    """
    urls = {
        name: f"data:{media};base64,{base64.b64encode(content).decode()}"
        for name, (media, content) in (pictures or {}).items()
    }
    sheet = css_text(" · ".join(filter(None, letter.sheet)))
    return page("letter.html", {"letter": letter, "on_each_sheet": sheet, "pictures": urls})


def pdf_of(letter: LetterDocument, template: Path) -> bytes:
    """Return a letter as a PDF file.

    template  copy of the letter template `TYPST`, in the folder of the exhibits' files

    Raises ImportError without Typst, and Typst's own error for a file that cannot be typeset.
    """
    root, values = template.parent, pdf_values(letter)
    return paper.typeset(template, root=root, given="letter", values=values)


def pdf_values(letter: LetterDocument) -> dict[str, Any]:
    return asdict(letter)
