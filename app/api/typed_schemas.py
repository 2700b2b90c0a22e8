"""JSON Schemas derived from the types of the API's documents."""

import typing
from collections.abc import Mapping, Sequence
from types import NoneType, UnionType

from reconcile.documents import Keywords

Schema = dict[str, typing.Any]

_WHOLE: typing.Final = frozenset(("$ref", "anyOf", "enum"))

_NAMES: typing.Final = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    NoneType: "null",
}


class Schemas:
    """Collection of the schemas of all requested documents."""

    def __init__(self) -> None:
        self.components: dict[str, Schema] = {}
        self._kinds: dict[str, type] = {}

    def of(self, kind: typing.Any, *, closed: bool = False) -> Schema:
        """Return the schema of a type. A closed schema forbids undeclared members."""
        origin, args = typing.get_origin(kind), typing.get_args(kind)
        if typing.is_typeddict(kind):
            return self._reference(kind, closed=closed)
        if origin is typing.Annotated:
            schema = self.of(args[0], closed=closed)
            for note in args[1:]:
                more = note.keywords if isinstance(note, Keywords) else {"description": note}
                schema = {**({} if more.keys() & _WHOLE else schema), **more}
            return schema
        if origin is typing.NotRequired:
            return self.of(args[0], closed=closed)
        if origin is typing.Literal:
            return {"const": args[0]} if len(args) == 1 else {"enum": list(args)}
        if origin in (typing.Union, UnionType):
            return _one_of([self.of(each, closed=closed) for each in args])
        if origin in (list, Sequence):
            return {"type": "array", "items": self.of(args[0], closed=closed)}
        if origin in (dict, Mapping):
            each = self.of(args[1], closed=closed)
            return {"type": "object", "additionalProperties": each or True}
        return {} if kind in (typing.Any, object) else {"type": _NAMES[kind]}

    def _reference(self, kind: type, *, closed: bool) -> Schema:
        name = kind.__name__.removesuffix("Document")
        assert self._kinds.setdefault(name, kind) is kind, f"two documents are named {name}"
        if name not in self.components:
            schema: Schema = {"type": "object"}
            self.components[name] = schema
            typed: typing.Any = kind
            hints = typing.get_type_hints(kind, include_extras=True)
            if kind.__doc__:
                schema["description"] = " ".join(kind.__doc__.split())
            required = [
                member
                for member, each in hints.items()
                if member in typed.__required_keys__ and not _may_lack(each)
            ]
            schema |= {"required": required} if required else {}
            schema["properties"] = {
                member: self.of(each, closed=closed) for member, each in hints.items()
            }
            if closed or not hints:  # without members it is one that no type describes
                schema["additionalProperties"] = not closed
        return {"$ref": f"#/components/schemas/{name}"}


def _may_lack(kind: typing.Any) -> bool:
    inner = typing.get_args(kind)[0] if typing.get_origin(kind) is typing.Annotated else kind
    return typing.get_origin(inner) is typing.NotRequired


def _one_of(schemas: Sequence[Schema]) -> Schema:
    plain = [each for each in schemas if each.keys() <= {"type", "minimum"} and "type" in each]
    others = [each for each in schemas if each not in plain]
    if len(plain) > 1:
        types = [each["type"] for each in plain]
        plain = [{**{k: v for each in plain for k, v in each.items()}, "type": types}]
    return plain[0] if not others else {"anyOf": [*others, *plain]}


def example_of(schema: Schema, schemas: Mapping[str, Schema]) -> typing.Any:
    """Return an example value that the schema allows."""
    if "examples" in schema:
        return schema["examples"][0]
    if "$ref" in schema:
        return example_of(schemas[schema["$ref"].rpartition("/")[2]], schemas)
    if "enum" in schema or "const" in schema:
        return schema["enum"][0] if "enum" in schema else schema["const"]
    if "anyOf" in schema:
        return example_of(schema["anyOf"][0], schemas)
    kinds = schema["type"]
    kind = kinds if isinstance(kinds, str) else kinds[0]
    if kind == "object":
        inner = schema.get("properties", {})
        return {name: example_of(each, schemas) for name, each in inner.items()}
    if kind == "array":
        return [example_of(schema["items"], schemas)]
    return {"string": "…", "integer": schema.get("minimum", 0), "boolean": False}[kind]
