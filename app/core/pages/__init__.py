"""HTML pages from templates. Each page is one self-contained file.

Values are escaped by default, and a missing value is an error. A page uses no scripts, fonts or
links, so it prints as it looks.
"""

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
    """Return the page that a template makes of these values. Equal values give an equal page."""
    return _environment().get_template(template).render(values)


def css_text(text: str) -> Markup:
    """Return a text as a CSS string. All characters except ASCII letters and digits are escaped."""
    encodable = text.encode("utf-8", "replace").decode()
    characters = [
        each if each.isascii() and each.isalnum() else f"\\{ord(each):06x}" for each in encodable
    ]
    return Markup('"' + "".join(characters) + '"')  # noqa: S704  # letters and escapes, nothing else
