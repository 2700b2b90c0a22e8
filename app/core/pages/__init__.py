"""HTML pages: a template and its values make one file that needs nothing beside it.

Everything is escaped by default and a name that is missing is an error. No scripts, no fonts, no
links to elsewhere: a page reads the same from a disk, in an archive and on paper.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

TEMPLATES = Path(__file__).with_name("templates")


@cache
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(TEMPLATES, encoding="utf-8"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def page(template: str, values: Mapping[str, Any]) -> str:
    """The page `templates/<template>` with its values. The same values give the same text."""
    return _environment().get_template(template).render(values)


def css_text(text: str) -> Markup:
    """A text as a string of a stylesheet, in which every character but a letter is escaped."""
    encodable = text.encode("utf-8", "replace").decode()
    characters = [
        each if each.isascii() and each.isalnum() else f"\\{ord(each):06x}" for each in encodable
    ]
    return Markup('"' + "".join(characters) + '"')  # noqa: S704  # letters and escapes, nothing else
