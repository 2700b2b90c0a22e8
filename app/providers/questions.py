"""Questions to a provider about one of its events.

Only references are taken from an event, never an address. Addresses contain no credentials, because
addresses are stored.
"""

import base64
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, quote_plus

from app.core.errors import ConfigurationError
from app.providers.fields import order_at_provider
from app.providers.sections import FetchBackRule
from reconcile.ledger.events import Event

REFERENCES: Final = ("id", "order", "session", "payment", "capture", "movement")

_REFERENCE: Final = re.compile(rf"\{{({'|'.join(REFERENCES)}|credential:[a-z0-9_]{{1,40}})\}}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One request to the provider. Its text `shown` contains no credential, so it can be displayed
    and stored."""

    method: str
    url: str
    headers: dict[str, str] = field(repr=False)
    body: bytes | None = field(repr=False)

    @property
    def shown(self) -> str:
        """Method and address of the request, without credentials."""
        return f"{self.method} {self.url}"


class Questions:
    """The questions of a source, compiled once.

    Raises ConfigurationError for a missing or unusable credential.
    """

    def __init__(
        self, source: str, rule: FetchBackRule, *, environment: str, credentials: Mapping[str, str]
    ) -> None:
        self._source = source
        self._rule = rule
        self._credentials = credentials
        sandbox = environment == "sandbox"
        self._urls = rule.sandbox_url if sandbox and rule.sandbox_url else rule.url
        self._token_url = (
            rule.sandbox_token_url if sandbox and rule.sandbox_token_url else rule.token_url
        )
        unusable = []
        for name in sorted(credentials_of(rule)):
            credential = credentials.get(name, "")
            if not (credential.strip() and credential.isascii() and credential.isprintable()):
                unusable.append(name)
        if unusable:
            variable = f"TALLYHOOK_SOURCES__{source.upper()}__CREDENTIALS"
            raise ConfigurationError(
                [
                    f"{variable}: give {name!r}, in printable ASCII; the provider is asked with it"
                    for name in unusable
                ]
            )

    @property
    def needs_token(self) -> bool:
        """Return whether an access token must be requested before a question."""
        return self._rule.auth == "oauth"

    def about(self, event: Event, *, access_token: str = "") -> Question | None:
        """Build the question about this event.

        Return None if a needed reference is missing or unsafe.
        """
        rule = self._rule
        for template in self._urls:  # the first address whose references this event has all
            try:
                url = self._filled(template, event, _percent)
                break
            except LookupError:
                continue
        else:
            return None
        try:
            body = None if rule.body is None else self._filled(rule.body, event, _in_json).encode()
        except LookupError:
            return None
        headers = self._authorization(access_token) | self._headers()
        if body is not None:
            headers["content-type"] = "application/json"
        return Question(method=rule.method, url=url, headers=headers, body=body)

    def token(self) -> Question:
        """Build the request for an access token by client credentials (RFC 6749, section 4.4)."""
        rule = self._rule
        assert self._token_url is not None
        headers = self._headers()
        if rule.credential is not None:
            headers["authorization"] = _basic(self._credentials[rule.credential])
        body = None
        if rule.token_method == "POST":  # noqa: S105  # an HTTP method
            form = not rule.token_body.startswith("{")
            body = self._filled(rule.token_body, None, quote_plus if form else _in_json).encode()
            headers["content-type"] = (
                "application/x-www-form-urlencoded" if form else "application/json"
            )
        return Question(method=rule.token_method, url=self._token_url, headers=headers, body=body)

    def _authorization(self, access_token: str) -> dict[str, str]:
        rule = self._rule
        if rule.auth == "oauth":
            return {"authorization": f"Bearer {access_token}"}
        if rule.auth == "none" or rule.credential is None:
            return {}
        credential = self._credentials[rule.credential]
        if rule.auth == "bearer":
            return {"authorization": f"Bearer {credential}"}
        if rule.auth == "basic":
            return {"authorization": _basic(credential)}
        return {rule.auth.partition(":")[2]: credential}

    def _headers(self) -> dict[str, str]:
        return {name: self._filled(str(text), None, str) for name, text in self._rule.headers}

    def _filled(self, template: str, event: Event | None, write: Callable[[str], str]) -> str:
        def value_of(match: re.Match[str]) -> str:
            name = match[1]
            if name.startswith("credential:"):
                return write(self._credentials[name.partition(":")[2]])
            assert event is not None
            value = event.event_id if name == "id" else getattr(event, name)
            if value is None:
                raise LookupError(name)
            return write(order_at_provider(value, self._source) if name == "order" else str(value))

        return _REFERENCE.sub(value_of, template)


def credentials_of(rule: FetchBackRule) -> set[str]:
    """Return the names of all credentials that are needed to ask the provider."""
    keys = ("credential", "body", "token_body", "headers")
    return credentials_named({key: getattr(rule, key) for key in keys})


def credentials_named(rule: Mapping[str, Any]) -> set[str]:
    """Return the names of all credentials that a section [fetch_back] mentions."""
    texts = [rule["body"] or "", rule["token_body"], *(str(text) for _, text in rule["headers"])]
    found = {name for text in texts for name in _REFERENCE.findall(text)}
    named = {name.partition(":")[2] for name in found if name.startswith("credential:")}
    return named | ({rule["credential"]} if rule["credential"] is not None else set())


def _percent(value: str) -> str:
    if value in (".", ".."):  # a step up in the path, encoded or not (RFC 3986, section 5.2.4)
        raise LookupError(value)
    return quote(value, safe="")


def _in_json(value: str) -> str:
    return json.dumps(value)[1:-1]


def _basic(credential: str) -> str:
    return f"Basic {base64.b64encode(credential.encode()).decode()}"
