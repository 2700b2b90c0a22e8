"""Exchanges with Tallyhook, written once for all HTTP libraries."""

import http.client
import json
from collections.abc import Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import urlsplit

MAX_ANSWER_BYTES: Final = 8 * 1024 * 1024
"""Maximum size of an answer in bytes."""

BUSY_S: Final = 5
"""Number of seconds to wait if a busy service does not say how long."""

LONGEST_S: Final = 30 * 86_400
"""Maximum seconds to wait before asking again."""

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request to Tallyhook. `path` includes the query; `body` is JSON or None."""

    method: str
    path: str
    body: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Answer to one request. `headers` have lower-case names."""

    status: int
    body: bytes = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """Parse the body as a JSON object. Raises NotUnderstood for any other body."""
        try:
            found = json.loads(self.body)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise NotUnderstood(f"the answer ({self.status}) is not a JSON object")
        return found

    def retry_after_s(self) -> int:
        """Return the seconds after which to repeat the request."""
        asked = self.headers.get("retry-after", "")
        usable = asked.isascii() and asked.isdigit() and len(asked) < 20
        return min(int(asked), LONGEST_S) if usable else BUSY_S


class AskingFailed(Exception):
    """Error of an exchange with Tallyhook that a program can act on. The message is one
    sentence."""


class TokenRefused(AskingFailed):
    """Error for the status 401 or 403: the token is wrong, has expired, or lacks the scope."""


class Unavailable(AskingFailed):
    """Error for a service that gave no decision. Repeat the request after `again_s` seconds."""

    def __init__(self, sentence: str, *, again_s: int = BUSY_S) -> None:
        super().__init__(sentence)
        self.again_s = again_s


class NotConfigured(AskingFailed):
    """Error for the status 501: a setting that the request needs is missing. The message names
    it."""


class NotUnderstood(AskingFailed):
    """Error for an answer that this version of the client does not understand."""


Steps = Generator[Ask, Answer, Result]


def ask(steps: Steps[Result], send: Callable[[Ask], Answer]) -> Result:
    """Run an exchange, and return its result. Raises the errors of `send`."""
    try:
        wanted = next(steps)
        while True:
            wanted = steps.send(send(wanted))
    except StopIteration as ended:
        return ended.value  # type: ignore[no-any-return]  # the generator's own result


async def ask_async(steps: Steps[Result], send: Callable[[Ask], Awaitable[Answer]]) -> Result:
    """Run an exchange, and return its result. Raises the errors of `send`."""
    try:
        wanted = next(steps)
        while True:
            wanted = steps.send(await send(wanted))
    except StopIteration as ended:
        return ended.value  # type: ignore[no-any-return]  # the generator's own result


def checked(answer: Answer) -> Answer:
    """Return the answer if it contains a decision. Raises TokenRefused, NotConfigured or
    Unavailable otherwise."""
    if answer.status in (401, 403):
        raise TokenRefused(f"the token was refused ({answer.status}): {sentence_of(answer)}")
    if answer.status == 501:
        raise NotConfigured(
            f"the service is not configured for this request: {sentence_of(answer)}"
        )
    if answer.status in (408, 425, 429) or answer.status >= 500:
        raise Unavailable(
            f"the service is busy ({answer.status}): {sentence_of(answer)}",
            again_s=answer.retry_after_s(),
        )
    return answer


def sentence_of(answer: Answer) -> str:
    """Return the sentence of the answer's problem details (RFC 9457)."""
    try:
        found = answer.document()
    except NotUnderstood:
        return f"it answered {answer.status}"
    detail = found.get("detail") or found.get("title")
    return detail if isinstance(detail, str) else f"it answered {answer.status}"


# --- two senders that need no further library -----------------------------------------------------


class HttpSender:
    """Sender of requests that uses the standard library.

    url        scheme and host of the service, such as https://payments.shop.example
    token      token from `tallyhook tokens add`
    timeout_s  seconds of silence after which a request fails; more than the feed's `wait_s`
    """

    def __init__(self, url: str, token: str, *, timeout_s: float = 75.0) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(
                "url must consist of scheme and host, such as https://payments.shop.example"
            )
        self._connect = (
            http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        )
        self._host, self._port = parts.hostname, parts.port
        self._base = parts.path.rstrip("/")
        self._timeout_s = timeout_s
        self._headers = {"authorization": f"Bearer {token.strip()}", "accept": "application/json"}

    def __call__(self, wanted: Ask) -> Answer:
        """Send a request, and return its answer.

        Raises Unavailable without a complete answer, and NotUnderstood for a large one.
        """
        connection = self._connect(self._host, self._port, timeout=self._timeout_s)
        headers = dict(self._headers)
        if wanted.body is not None:
            headers["content-type"] = "application/json"
        try:
            connection.request(wanted.method, self._base + wanted.path, wanted.body, headers)
            answer = connection.getresponse()
            body = answer.read(MAX_ANSWER_BYTES + 1)
            if len(body) > MAX_ANSWER_BYTES:
                raise NotUnderstood("the answer is too large to come from Tallyhook")
            if answer.length:  # a read with a limit does not raise this itself
                raise http.client.IncompleteRead(body, answer.length)
            named = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(status=answer.status, body=body, headers=named)
        except (OSError, http.client.HTTPException) as error:
            raise Unavailable(f"no answer came ({type(error).__name__})") from error
        finally:
            connection.close()


class AsyncClient(Protocol):
    """Interface of an asynchronous HTTP client, such as that of httpx or httpx2."""

    def stream(
        self, method: str, url: str, *, content: bytes | None, headers: Mapping[str, str]
    ) -> Any:
        """Return a context manager of an answer with `status_code`, `headers` and `aiter_bytes`."""
        ...


class AsyncSender:
    """Sender of requests that uses an asynchronous HTTP client.

    client    HTTP client with the service's base URL
    token     token from `tallyhook tokens add`
    failures  the client's errors for a missing answer, such as `(httpx.HTTPError,)`
    """

    def __init__(
        self, client: AsyncClient, token: str, *, failures: tuple[type[Exception], ...]
    ) -> None:
        self._client = client
        self._headers = {"authorization": f"Bearer {token.strip()}", "accept": "application/json"}
        self._failures = failures

    async def __call__(self, wanted: Ask) -> Answer:
        """Send a request, and return its answer.

        Raises Unavailable without a complete answer, and NotUnderstood for a large one.
        """
        headers, body = dict(self._headers), bytearray()
        if wanted.body is not None:
            headers["content-type"] = "application/json"
        try:
            async with self._client.stream(
                wanted.method, wanted.path, content=wanted.body, headers=headers
            ) as answer:
                async for part in answer.aiter_bytes():
                    body += part
                    if len(body) > MAX_ANSWER_BYTES:
                        raise NotUnderstood("the answer is too large to come from Tallyhook")
        except self._failures as error:
            raise Unavailable(f"no answer came ({type(error).__name__})") from error
        named = {str(name).lower(): str(value) for name, value in answer.headers.items()}
        return Answer(status=answer.status_code, body=bytes(body), headers=named)
