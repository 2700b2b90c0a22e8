"""An XML document as JSON, so that a profile reads its fields like those of any other provider.

Rule: how Braintree types its elements (braintree_python, `util/xml_util.py`). An element with
children is an object, one without a text; `type="array"` makes a list of its children, also of
none or one; `nil="true"` is null; a name that comes again makes a list; names have `_` for `-`.
Texts stay texts.
"""

from __future__ import annotations

import json
from typing import Any
from xml.etree import ElementTree

from app.core.reading_result import Unreadable
from app.core.strict_json import MAX_DEPTH


def xml_to_json(document: bytes) -> bytes:
    """`{"<root>": …}` as JSON bytes. Raises Unreadable with a sentence that quotes nothing."""
    try:
        text = document.decode("utf-8")
    except UnicodeDecodeError:
        raise Unreadable("the XML is not UTF-8") from None
    if "<!DOCTYPE" in text:
        # Entities are declared there; without them a document cannot grow while it is read.
        raise Unreadable("the XML has a document type, which no event needs")
    try:
        root = ElementTree.fromstring(text)  # noqa: S314
    except (ElementTree.ParseError, ValueError):
        raise Unreadable("the document is not well-formed XML") from None
    return json.dumps({_name(root): _value(root, MAX_DEPTH)}).encode()


def _value(element: ElementTree.Element, depth: int) -> Any:
    if depth == 0:
        raise Unreadable(f"the XML is nested deeper than {MAX_DEPTH} levels")
    if element.get("nil") == "true":
        return None
    values = [(_name(child), _value(child, depth - 1)) for child in element]
    if element.get("type") == "array":
        return [value for _, value in values]
    if not values:
        return element.text or ""
    return _object(values)


def _object(values: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, value in values:
        result.setdefault(name, []).append(value)
    return {name: found if len(found) > 1 else found[0] for name, found in result.items()}


def _name(element: ElementTree.Element) -> str:
    return element.tag.replace("-", "_")
