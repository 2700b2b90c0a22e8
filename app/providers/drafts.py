"""A request while it is being made, so that it can be signed."""

from __future__ import annotations

from typing import Any

from app.core.errors import ConfigurationError
from app.core.reading_result import Unreadable
from app.core.strict_json import parse_written
from app.providers.forms import parse_pairs, write_pairs
from app.providers.json_text import compact
from app.providers.named.contract import Signed
from app.providers.paths import Path, compile_path
from app.providers.places import compile_place
from app.providers.request import Request


class Draft:
    """Headers, body and address, to which values are put at the places a profile names."""

    def __init__(self, body: bytes, *, method: str, url: str) -> None:
        self.headers: list[tuple[str, str]] = []
        self.body = body
        self.method = method
        self.url = url

    def put_if_absent(self, place: str, value: bytes) -> None:
        """Where nothing stands there yet."""
        if not compile_place(place).values(self.request()):
            self.put(place, value)

    def put(self, place: str, value: bytes) -> None:
        """In place of what stood there. Raises ConfigurationError where it cannot stand there."""
        kind, _, name = place.partition(":")
        if kind == "header":
            name = name.partition(",")[0]
            self.headers.append((name, value.decode("latin-1")))
        elif kind == "query":
            path, _, query = self.url.partition("?")
            self.url = f"{path}?{_with_field(query.encode('ascii'), name, value).decode('ascii')}"
        elif kind == "form":
            self.body = _with_field(self.body, name, value)
        else:
            document = self.document()
            insert(document, compile_path(name), value)
            self.body = compact(document).encode("utf-8")

    def document(self) -> Any:
        """The body's JSON, numbers as written. Raises ConfigurationError where it is none."""
        try:
            return parse_written(self.body)
        except Unreadable as error:
            raise ConfigurationError([f"this cannot be signed: {error}"]) from None

    def request(self) -> Request:
        """As its signature would see it."""
        headers = [(name.encode(), value.encode("latin-1")) for name, value in self.headers]
        return Request(headers, self.body, method=self.method, url=self.url)

    def signed(self) -> Signed:
        """What is to be sent."""
        return Signed(headers=self.headers, body=self.body, url=self.url)


def _with_field(pairs: bytes, name: str, value: bytes) -> bytes:
    wanted = name.encode("utf-8")
    kept = [pair for pair in parse_pairs(pairs) if pair[0] != wanted]
    # Untouched where nothing is taken away: the spelling of the rest may be signed.
    rest = pairs if len(kept) == len(parse_pairs(pairs)) else write_pairs(kept)
    return (rest + b"&" if rest else b"") + write_pairs([(wanted, value)])


def insert(document: Any, path: Path, value: bytes) -> None:
    """Put a text at a path of names, making the objects on the way."""
    *parents, last = path
    for step in parents:
        document = document.setdefault(step, {}) if type(document) is dict else None
    if type(document) is not dict:
        raise ConfigurationError(["this cannot be signed: the body has no place for it"])
    document[last] = value.decode("utf-8")
