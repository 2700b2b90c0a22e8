"""Document model of letters, and the two output formats: HTML and PDF.

A letter is a sequence of blocks: headings, paragraphs, lists, tables, timelines and exhibits. All
text is passed as data, so that it cannot become markup. Each format has one template for all
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
    """Words in one style. They begin on a new line if `line` is set."""

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
    """Table in a letter, as rows of cells. A row with one cell spans all columns but the first.

    widths   share of the width for each column. A column with 0 is as wide as its text, which is
             not wrapped
    numbers  positions of the columns with amounts
    labels   whether the first cell of each row is its label
    """

    rows: Sequence[Sequence[Phrases]]
    widths: Sequence[float]
    head: Sequence[str] = ()
    numbers: Sequence[int] = ()
    labels: bool = False
    kind: str = field(default="table", init=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterColumn:
    """Moment of a timeline.

    day  the date; empty unless this is the first moment of its day
    gap  time since the moment before
    """

    x: int
    time: str
    day: str
    gap: str
    gap_x: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnEvent:
    """Event of a timeline, with its horizontal position in each of the two lanes.

    set_off  distance by which the event's number is moved aside
    """

    number: int
    happened_x: int
    reached_x: int
    set_off: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """Timeline with two lanes, in CSS pixels.

    left               edge of the first column, right of the lanes' names
    happened, reached  vertical positions of the lanes
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
    """A file attached to the letter, shown on separate pages.

    file   name of the attached file, in the letter's folder; "" for a text
    pages  number of the file's pages that are shown
    """

    title: str
    text: str = ""
    file: str = ""
    pages: int = 0
    kind: str = field(default="exhibit", init=False)


Block = Heading | Paragraph | Listing | LetterTable | Drawing | ShownExhibit


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterDocument:
    """A letter, as blocks to be rendered as HTML or PDF.

    sheet  text that is printed on each sheet of paper
    stamp  a word that is printed across each sheet; "" for none
    """

    title: str
    author: str = ""
    sheet: Sequence[str] = ()
    stamp: str = ""
    blocks: Sequence[Block] = ()


def html_of(letter: LetterDocument, pictures: Mapping[str, tuple[str, bytes]] | None = None) -> str:
    """Render the letter as one self-contained page.

    pictures  media type and bytes of each exhibit, by file
    """
    urls = {
        name: f"data:{media};base64,{base64.b64encode(content).decode()}"
        for name, (media, content) in (pictures or {}).items()
    }
    sheet = css_text(" · ".join(filter(None, letter.sheet)))
    return page("letter.html", {"letter": letter, "on_each_sheet": sheet, "pictures": urls})


def pdf_of(letter: LetterDocument, template: Path) -> bytes:
    """Typeset the letter. Raises ImportError if Typst is not installed, and Typst's error for a
    file that it cannot typeset.

    template  copy of `TYPST`, in the folder of the exhibits' files
    """
    root, values = template.parent, pdf_values(letter)
    return paper.typeset(template, root=root, given="letter", values=values)


def pdf_values(letter: LetterDocument) -> dict[str, Any]:
    return asdict(letter)
