"""Pieces that several named verifiers need: single headers, form fields, strict encodings."""

from __future__ import annotations

from urllib.parse import parse_qsl

from app.providers.encodings import ENCODINGS
from app.providers.headers import Headers, header_values
from app.providers.refusal import Refusal

from_base64 = ENCODINGS["base64"].decode
to_base64 = ENCODINGS["base64"].encode
from_hex = ENCODINGS["hex"].decode

MAX_FORM_FIELDS = 1000
"""No provider's form has a tenth of them; more is work for nothing."""


class Header:
    """A header that must come exactly once, with the refusals for when it does not."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._values = header_values(name)
        self._missing = Refusal("signature_missing", f"There is no header {name}.")
        self._repeated = Refusal(
            "signature_mismatch",
            f"The header {name} came more than once, so what was signed is ambiguous.",
        )

    def value(self, headers: Headers) -> bytes | Refusal:
        """Its one value, without blanks around it."""
        found = self._values(headers)
        if len(found) != 1:
            return self._repeated if found else self._missing
        return found[0].strip() or self._missing


def form_fields(body: bytes) -> list[tuple[str, str]]:
    """The fields of a form as sent, bytes that are not UTF-8 kept. ValueError for too many."""
    return parse_qsl(
        body.decode("utf-8", "surrogateescape"),
        keep_blank_values=True,
        errors="surrogateescape",
        max_num_fields=MAX_FORM_FIELDS,
    )


def ascii_text(value: bytes) -> str | None:
    """The text of a header value; None where it is not plain ASCII."""
    return value.decode("ascii") if value.isascii() else None
