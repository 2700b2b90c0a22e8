"""Pieces of the schemas of finance that are written by hand."""

from collections.abc import Mapping
from typing import Any, Final

Schema = dict[str, Any]


def ref(name: str) -> Schema:
    """Return a reference to this component's schema."""
    return {"$ref": f"#/components/schemas/{name}"}


def maybe(schema: Schema) -> Schema:
    """Return the schema, or null."""
    return {"anyOf": [schema, {"type": "null"}]}


def listed(schema: Schema, **limits: int) -> Schema:
    """Return a list of this schema."""
    return {"type": "array", "items": schema, **limits}


def described(schema: Schema, description: str) -> Schema:
    """Return the schema with a description of its use here."""
    return {**schema, "description": description}


def members(
    properties: Mapping[str, Schema], *, optional: tuple[str, ...] = (), description: str = ""
) -> Schema:
    """Return an object of these members, all required but the optional ones."""
    return {
        "type": "object",
        "required": [name for name in properties if name not in optional],
        "properties": dict(properties),
        **({"description": description} if description else {}),
    }


def word(*examples: str) -> Schema:
    return {"type": "string", "examples": list(examples)} if examples else {"type": "string"}


def page(name: str, item: str, following: Schema) -> Schema:
    """Return a page of a list, and the cursor of the next: null at the end."""
    nothing = "What to ask the next page with; null where there is none."
    return members({name: listed(ref(item)), "next": described(following, nothing)})


WORD: Final = word()
COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
FLAG: Final[Schema] = {"type": "boolean"}
INSTANT: Final[Schema] = {
    "type": "string",
    "format": "date-time",
    "pattern": "^(19[7-9]|[2-9][0-9]{2})",
    "examples": ["2026-10-05T14:30:00Z"],
}
"""Of the years from 1970 to 9999."""

MAYBE_WORD: Final[Schema] = {"type": ["string", "null"]}
MAYBE_COUNT: Final[Schema] = {"type": ["integer", "null"], "minimum": 0}
MAYBE_INSTANT: Final = maybe(INSTANT)
MONEY: Final = ref("Money")
MAYBE_MONEY: Final = maybe(MONEY)
TEXTS: Final = listed(WORD)
CITES: Final = described(TEXTS, "Ids of the events, deliveries and records that it rests on.")
FACTS: Final[Schema] = {
    "type": "object",
    "description": "What the sentence was made of, by name; a name that stands several times has "
    "a list. Money is an object, an instant a text.",
    "additionalProperties": {
        "anyOf": [
            {"type": ["string", "integer", "boolean", "null"]},
            ref("Money"),
            listed({"anyOf": [{"type": ["string", "integer", "boolean", "null"]}, ref("Money")]}),
        ]
    },
}
