"""Schemas derived from the types of documents."""

from typing import Annotated, Any, Literal, NotRequired, TypedDict

import pytest

from app.api.openapi import Schemas
from app.api.request_body import texts
from app.core.problems import ApiProblem
from reconcile.documents import Count, Keywords


def schemas_of(*documents: type) -> dict[str, Any]:
    schemas = Schemas()
    for each in documents:
        schemas.of(each)
    return schemas.components


class InnerDocument(TypedDict):
    """An inner one."""

    kind: Literal["a", "b"]


class OuterDocument(TypedDict):
    inner: Annotated[InnerDocument | None, "Null: none."]
    words: list[str]
    note: NotRequired[Annotated[str, Keywords(pattern="^x"), "Of x."]]
    facts: dict[str, Any]


def test_a_document_is_a_component_and_so_is_each_document_inside_it() -> None:
    assert schemas_of(OuterDocument) == {
        "Outer": {
            "type": "object",
            "required": ["inner", "words", "facts"],
            "properties": {
                "inner": {
                    "anyOf": [{"$ref": "#/components/schemas/Inner"}, {"type": "null"}],
                    "description": "Null: none.",
                },
                "words": {"type": "array", "items": {"type": "string"}},
                "note": {"type": "string", "pattern": "^x", "description": "Of x."},
                "facts": {"type": "object", "additionalProperties": True},
            },
        },
        "Inner": {
            "type": "object",
            "description": "An inner one.",
            "required": ["kind"],
            "properties": {"kind": {"enum": ["a", "b"]}},
        },
    }


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        (Count | None, {"type": ["integer", "null"], "minimum": 0}),
        (str | int | None, {"type": ["string", "integer", "null"]}),
        (Literal["a"], {"const": "a"}),
        (Literal["a"] | None, {"anyOf": [{"const": "a"}, {"type": "null"}]}),
        (Annotated[str | None, Keywords(enum=("a",))], {"enum": ("a",)}),
    ],
)
def test_a_type_has_its_schema(kind: Any, schema: dict[str, Any]) -> None:
    assert Schemas().of(kind) == schema


def test_two_documents_of_one_name_are_refused() -> None:
    def other() -> type:
        class InnerDocument(TypedDict):
            more: int

        return InnerDocument

    with pytest.raises(AssertionError, match="two documents are named Inner"):
        schemas_of(OuterDocument, other())


def test_a_request_takes_no_members_but_its_own() -> None:
    schemas = Schemas()
    schemas.of(OuterDocument, closed=True)
    assert all(each["additionalProperties"] is False for each in schemas.components.values())


class StatedDocument(TypedDict):
    kind: Literal["a", "b"]
    reason: Annotated[str, Keywords(minLength=1, maxLength=5)]
    more: NotRequired[str]


def test_a_body_of_texts_is_read_by_its_type_and_each_mistake_is_named() -> None:
    body = b'{"kind": "b", "reason": "so"}'
    assert texts(body, StatedDocument) == {"kind": "b", "reason": "so"}
    for given, faults in (
        ('{"kind": "c", "x": 1}', "'x' is not known; kind must be one of a, b; reason is missing"),
        ('{"kind": "a", "reason": " "}', "reason must have 1 to 5 characters"),
        ('{"kind": "a", "reason": "longer"}', "reason must have 1 to 5 characters"),
        ('{"kind": "a", "reason": "so", "more": null}', "more is not a text"),
    ):
        with pytest.raises(ApiProblem) as refused:
            texts(given.encode(), StatedDocument)
        assert refused.value.status == 422
        assert (
            str(refused.value)
            == f"The body is wrong: {faults}; the known members are kind, reason, more."
        )
