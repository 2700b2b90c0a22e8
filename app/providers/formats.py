"""How signatures are laid out in a header value. One entry for each layout."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Layout:
    """The words a layout needs; None where the profile gives none."""

    label: bytes | None
    prefix: bytes | None
    separator: bytes | None


@dataclass(frozen=True, slots=True)
class Format:
    """One layout.

    needs    the keys of `Layout` it cannot do without
    entries  (layout, header value) → the encoded signatures that carry our label
    write    (layout, encoded signature) → header value
    """

    needs: frozenset[str]
    entries: Callable[[Layout, bytes], list[bytes]]
    write: Callable[[Layout, bytes], bytes]


def _plain(_layout: Layout, value: bytes) -> list[bytes]:
    return [value.strip()]


def _prefixed(layout: Layout, value: bytes) -> list[bytes]:
    prefix, value = layout.prefix or b"", value.strip()
    return [value[len(prefix) :]] if value.startswith(prefix) else []


def _maybe_prefixed(layout: Layout, value: bytes) -> list[bytes]:
    return [value.strip().removeprefix(layout.prefix or b"")]


def _scheme(layout: Layout, value: bytes) -> list[bytes]:
    word, _, text = value.strip().partition(b" ")
    return [text.strip()] if word.lower() == (layout.prefix or b"").lower() else []


def _key_values(layout: Layout, value: bytes) -> list[bytes]:
    pairs = (entry.strip().partition(b"=") for entry in value.split(layout.separator))
    return [text.lstrip() for key, _, text in pairs if key.rstrip() == layout.label]


def _listed(layout: Layout, value: bytes) -> list[bytes]:
    pairs = [entry.partition(b",") for entry in value.split()]
    return [text for label, _, text in pairs if label == layout.label]


def _maybe_listed(layout: Layout, value: bytes) -> list[bytes]:
    pairs = [entry.rpartition(b",") for entry in value.split()]
    return [text for label, _, text in pairs if label in (b"", layout.label)]


FORMATS: Final[Mapping[str, Format]] = {
    # <signature>
    "plain": Format(frozenset(), _plain, lambda layout, text: text),
    # sha256=<signature>; a value without the prefix is no signature
    "prefix": Format(
        frozenset({"prefix"}), _prefixed, lambda layout, text: (layout.prefix or b"") + text
    ),
    # the same; a value without the prefix is a signature too
    "optional_prefix": Format(
        frozenset({"prefix"}), _maybe_prefixed, lambda layout, text: (layout.prefix or b"") + text
    ),
    # Basic <signature>; the word in any case (RFC 9110, section 11.1)
    "scheme": Format(
        frozenset({"prefix"}), _scheme, lambda layout, text: (layout.prefix or b"") + b" " + text
    ),
    # t=1614265330,v1=<signature>,v1=<signature>
    "kv": Format(
        frozenset({"label", "separator"}),
        _key_values,
        lambda layout, text: (layout.label or b"") + b"=" + text,
    ),
    # v1,<signature> v1,<signature>
    "list": Format(
        frozenset({"label"}), _listed, lambda layout, text: (layout.label or b"") + b"," + text
    ),
    # the same; an entry without a label is ours too
    "optional_list": Format(
        frozenset({"label"}),
        _maybe_listed,
        lambda layout, text: (layout.label or b"") + b"," + text,
    ),
}
