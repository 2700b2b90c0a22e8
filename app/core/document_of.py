"""Convert objects to JSON documents of a given type. `reconcile.documents` declares the types of
documents."""

from collections.abc import Callable, Hashable, Mapping
from functools import cache
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints, is_typeddict

from reconcile.documents import INSTANT, MoneyDocument, parts_of
from reconcile.instants import format_known
from reconcile.money import to_json

Document = TypeVar("Document")


def document_of(kind: type[Document], value: object, **given: object) -> Document:
    """Convert an object to a JSON document of the type `kind`.

    Instants and money become JSON values, and other objects become documents.

    given  values of members that replace the object's attributes
    """
    forms = _forms(cast(Hashable, kind))
    return cast(
        Document,
        {
            name: given[name] if name in given else form(getattr(value, name))
            for name, form in forms.items()
        },
    )


@cache
def _forms(kind: Any) -> Mapping[str, Callable[[Any], Any]]:
    hints = get_type_hints(kind, include_extras=True)
    return {name: _form(each) for name, each in hints.items()}


def _form(kind: Any) -> Callable[[Any], Any]:
    inner, *notes = parts_of(kind)
    if INSTANT in notes:
        return format_known
    if inner is MoneyDocument:
        return lambda money: None if money is None else to_json(money)
    if is_typeddict(inner):
        return lambda value: None if value is None else document_of(inner, value)
    if get_origin(inner) is list:
        each = _form(get_args(inner)[0])
        return lambda values: [each(value) for value in values]
    return lambda value: value
