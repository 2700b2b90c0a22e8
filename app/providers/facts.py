"""What the locations of one event look at: its document, and what came around it."""

from __future__ import annotations

from typing import Any

from app.providers.forms import Pairs, parse_pairs
from app.providers.request import Headers


class Facts:
    """One event of a verified delivery.

    document  the event's own JSON; the body's where the profile names no items
    root      the whole body's JSON
    digest    SHA-256 of the event's own bytes, 64 hex digits
    """

    __slots__ = ("_form", "_query", "body", "digest", "document", "headers", "root", "url")

    def __init__(
        self, document: Any, *, root: Any, headers: Headers, body: bytes, url: str, digest: str
    ) -> None:
        self.document = document
        self.root = root
        self.headers = headers
        self.body = body
        self.url = url
        self.digest = digest
        self._form: Pairs | None = None
        self._query: Pairs | None = None

    @property
    def form(self) -> Pairs:
        """The body's fields, decoded."""
        if self._form is None:
            self._form = parse_pairs(self.body)
        return self._form

    @property
    def query(self) -> Pairs:
        """The query's fields, decoded."""
        if self._query is None:
            text = self.url.partition("#")[0].partition("?")[2]
            self._query = parse_pairs(text.encode("latin-1", "replace"))
        return self._query

    def whole(self) -> Facts:
        """The same, with the whole body as its document."""
        return self.of(self.root, digest=self.digest)

    def of(self, document: Any, *, digest: str) -> Facts:
        """The same delivery, of one of its events."""
        return Facts(
            document,
            root=self.root,
            headers=self.headers,
            body=self.body,
            url=self.url,
            digest=digest,
        )
