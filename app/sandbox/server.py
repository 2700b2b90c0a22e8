"""Simulated provider as a web application, and its server.

The comments in `open_session` number the steps of a request:

(1) token  (2) idempotency key  (3) media type  (4) size  (5) JSON
(6) fields  (7) the key's history  (8) open, answer, play
"""

import asyncio
import hmac
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from html import escape
from socket import socket
from typing import Final

import anyio
import httpx2
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.core.clock import Clock, SystemClock
from app.core.errors import PortTaken
from app.sandbox import sessions, webhook_sender
from app.sandbox.provider import Provider
from app.sandbox.settings import DEFAULT_PORT, SandboxSettings, is_live_token
from reconcile.instants import format_instant

HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}

_PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Simulated checkout {reference}</title></head>
<body>
<h1>Simulated checkout</h1>
<p>Order <strong>{order}</strong>: {money}. No money moves here.</p>
<p>Scenario {ending}, {name}: {story}</p>
<p>The session ends at {expires_at}.</p>
<p><a href="{success}">Back to the shop, paid</a> · <a href="{cancel}">Back, not paid</a></p>
</body>
</html>
"""


def checkout_page(session: sessions.CheckoutSession) -> str:
    """Return a session's HTML page, without the phone number."""
    asked, scenario = session.asked, session.scenario
    texts = {
        "reference": session.reference,
        "order": asked.order,
        "money": str(asked.money),
        "ending": scenario.ending,
        "name": scenario.name,
        "story": scenario.story,
        "expires_at": format_instant(session.expires_at),
        # Without an address the customer stays on the page.
        "success": asked.success_url or "#",
        "cancel": asked.cancel_url or "#",
    }
    return _PAGE.format_map({name: escape(text) for name, text in texts.items()})


EXTENSION: Final = "tallyhook.sandbox.drop"


class DroppingProtocol(HttpToolsProtocol):
    """Uvicorn protocol that gives each request a function for closing its connection."""

    def on_message_begin(self) -> None:
        """Begin a request, and store the function that closes its connection."""
        super().on_message_begin()
        self.scope["extensions"] = {EXTENSION: {"close": self.transport.close}}


class DroppedConnection(Response):
    """Response that closes the connection without an answer."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        extension = (scope.get("extensions") or {}).get(EXTENSION)
        if extension is None:
            raise ConnectionAbortedError("the simulated connection was dropped")
        extension["close"]()
        # The server would still answer until the loop has closed the transport.
        while (await receive())["type"] != "http.disconnect":
            continue


MAX_BODY_BYTES: Final = 64 * 1024
"""Maximum size of a request's body in bytes."""

GRACEFUL_SHUTDOWN_S: Final = 2


def build_sandbox(
    settings: SandboxSettings,
    *,
    signer: webhook_sender.WebhookSigner,
    clock: Clock | None = None,
    sleep: webhook_sender.Sleep = anyio.sleep,
    transport: httpx2.AsyncBaseTransport | None = None,
) -> Starlette:
    """Return the simulated provider's web application.

    `clock` and `sleep` must share one time.
    """
    clock = clock or SystemClock()
    client = webhook_sender.webhook_client(settings, transport)
    sender = webhook_sender.WebhookSender(
        settings, client=client, signer=signer, clock=clock, sleep=sleep
    )
    provider = Provider(settings, sender=sender, clock=clock, sleep=sleep)
    endpoints = _Endpoints(settings, provider)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with client, anyio.create_task_group() as tasks:
            await provider.run(tasks)
            yield
            tasks.cancel_scope.cancel()
        await provider.settle_truth()

    return Starlette(
        routes=[
            Route("/api/v1/checkout/sessions", endpoints.open_session, methods=["POST"]),
            Route("/checkout/{reference}", endpoints.checkout, methods=["GET"]),
            Route("/sandbox/truth", endpoints.truth, methods=["GET"]),
            Route("/sandbox/state", endpoints.state, methods=["GET"]),
            Route("/livez", endpoints.livez, methods=["GET"]),
        ],
        exception_handlers={
            sessions.RefusalError: sessions.answer_refusal,
            HTTPException: sessions.answer_http_error,
            Exception: sessions.answer_fault,
        },
        lifespan=lifespan,
    )


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket] | None = None) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        await super().startup(sockets=sockets)


async def serve_sandbox(
    app: Starlette,
    *,
    host: str = "127.0.0.1",
    port: int = DEFAULT_PORT,
    listener: socket | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT. Raise PortTaken for a used port."""
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        http=DroppingProtocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GRACEFUL_SHUTDOWN_S,
    )
    try:
        await _Server(config).serve(sockets=None if listener is None else [listener])
    except SystemExit as failed:  # Uvicorn could not bind
        raise PortTaken(host, port) from failed


class _Endpoints:
    def __init__(self, settings: SandboxSettings, provider: Provider) -> None:
        self._token = settings.token.encode()
        self._provider = provider

    async def open_session(self, request: Request) -> Response:
        self._check_token(request.headers.get("authorization", ""))  # (1)
        key = sessions.check_key(request.headers.get("idempotency-key"))  # (2)
        media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media_type != "application/json" or "content-encoding" in request.headers:  # (3)
            raise sessions.RefusalError(
                415, "unsupported_media_type", detail="Send plain, uncompressed application/json."
            )
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_BODY_BYTES:  # (4); Starlette's own limit answers in plain text
                detail = f"Send at most {MAX_BODY_BYTES} bytes."
                raise sessions.RefusalError(413, "body_too_large", detail=detail)
        try:
            document = sessions.read_json(bytes(body))  # (5)
        except ValueError as error:
            raise sessions.RefusalError(400, "not_json", detail=str(error)) from None
        asked = sessions.check_request(document)  # (6)
        if not isinstance(asked, sessions.SessionRequest):
            # They are in the detail too, because many clients show only that.
            detail = " ".join(f"{name}: {sentence}" for name, sentence in asked)
            raise sessions.RefusalError(422, "invalid_fields", detail=detail, problems=asked)
        digest = sessions.request_digest(document)
        answer = await self._provider.open(asked, key=key, digest=digest)  # (7) (8)
        if answer.dropped:
            return DroppedConnection()
        headers = {"Idempotent-Replayed": "true"} if answer.replayed else None
        return Response(answer.body, 201, headers, "application/json")

    def _check_token(self, authorization: str) -> None:
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() == "bearer" and is_live_token(token):
            raise sessions.RefusalError(
                403, "live_token", detail="This is a sandbox; a live token opens nothing here."
            )
        given = token.encode("latin-1", "replace")
        if scheme.lower() != "bearer" or not hmac.compare_digest(given, self._token):
            raise sessions.RefusalError(
                401,
                "unauthenticated",
                detail="Send Authorization: Bearer and the sandbox's token.",
                headers={"WWW-Authenticate": "Bearer"},
            )

    async def checkout(self, request: Request) -> Response:
        session = self._provider.sessions.get(request.path_params["reference"])
        if session is None:
            raise sessions.RefusalError(404, "session_unknown", detail="There is no such session.")
        return HTMLResponse(checkout_page(session), headers=HEADERS)

    async def truth(self, _: Request) -> Response:
        return Response(self._provider.truth.to_json(), media_type="application/json")

    async def state(self, _: Request) -> Response:
        counts = self._provider.counts
        document = {
            "sessions": len(self._provider.sessions),
            "pending_events": counts.pending,
            "undelivered": counts.undelivered,
        }
        # When this answer says that everything is done, the file is complete.
        await self._provider.settle_truth()
        self._provider.check()
        return JSONResponse(document)

    async def livez(self, _: Request) -> Response:
        self._provider.check()
        return JSONResponse({"status": "ok"})
