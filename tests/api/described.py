"""The API's description compared with its real answers."""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import httpx2
from openapi_schema_validator import OAS31Validator, oas31_format_checker

from app.api.openapi import api_document

API_DOCUMENT = api_document()
SCHEMAS: Mapping[str, Any] = API_DOCUMENT["components"]["schemas"]
METHODS = ("get", "put", "post", "delete", "patch")


def closed(schema: Any) -> Any:
    """Return the schema such that it allows no member that it does not describe."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {name: closed(each) for name, each in schema.items()}
    # A property of that name is a schema, and no list of members.
    if isinstance(schema.get("properties"), dict) and "additionalProperties" not in schema:
        inner["additionalProperties"] = False
    return inner


@cache
def _closed_components() -> Any:
    return closed(dict(SCHEMAS))


def faults(schema: Mapping[str, Any], value: Any) -> list[str]:
    """Return how a value violates its schema, including members that are not described."""
    whole = {**closed(dict(schema)), "components": {"schemas": _closed_components()}}
    checker = OAS31Validator(whole, format_checker=oas31_format_checker)
    return [f"{each.json_path}: {each.message[:200]}" for each in checker.iter_errors(value)]


def operations() -> dict[tuple[str, str], dict[str, Any]]:
    """Return every operation by method and path."""
    return {
        (method.upper(), path): described
        for path, methods in API_DOCUMENT["paths"].items()
        for method, described in methods.items()
        if method in METHODS
    }


def operation_of(method: str, path: str) -> dict[str, Any]:
    """Return the operation for an address as it was requested."""
    found = []
    for (asked, template), described in operations().items():
        inner = "[^/]+" if template.count("/") > 4 or "{reference}" not in template else ".+"
        if asked == method and re.fullmatch(re.sub(r"\{\w+\}", inner, template), path):
            found.append((template.count("{"), described))
    return min(found, key=lambda each: each[0])[1]


def not_as_described(answer: httpx2.Response) -> list[str]:
    """Return how an answer differs from its operation's description in status, media type, own
    headers and members."""
    operation = operation_of(answer.request.method, answer.request.url.path)
    described = operation["responses"].get(str(answer.status_code))
    if described is None:
        return [f"{operation['operationId']}: no {answer.status_code}"]
    ours = {"etag", "retry-after", "tallyhook-behind", "www-authenticate"} & set(answer.headers)
    named = {name.lower() for name in described.get("headers", {})}
    wrong = [f"header {name}" for name in sorted(ours - named)]
    kind = str(answer.headers.get("content-type"))
    if "content" not in described:
        return wrong + (["a body"] if answer.content else [])
    if kind not in described["content"]:
        return [*wrong, f"kind {kind}"]
    if "json" not in kind:
        return wrong
    return wrong + faults(described["content"][kind]["schema"], answer.json())
