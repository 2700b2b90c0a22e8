"""`trigger`, `listen` and `deliveries replay`, against a service in this process."""

import asyncio
import gzip
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from app.core.errors import UsageError
from app.core.http import Exchange
from app.core.recorded import MAX_BODY_BYTES, Recorded, line_of, requests_in, target_of
from app.sandbox.listening import build_listener
from tests.api.driving import driving, environ, event, signed
from tests.cli.test_commands import Run, filled, run
from tests.reconcile.build import T
from tests.rows import for_each

__all__ = ["filled", "run"]

SECRET = "whsec_test_9f8e7d6c5b4a3f2e1d0c"
HERE = "http://127.0.0.1:9000/hook"


class Target:
    """An address that takes everything, or answers as it is set to; it keeps what came."""

    def __init__(self) -> None:
        self.came: list[Request] = []
        self.bodies: list[bytes] = []
        self.status = 200
        self.gone = False
        routes = [Route("/{path:path}", self._take, methods=["GET", "POST", "PUT"])]
        self.transport = httpx2.ASGITransport(app=Starlette(routes=routes))

    async def _take(self, request: Request) -> Response:
        self.came.append(request)
        self.bodies.append(await request.body())
        return JSONResponse({"took": len(self.came)}, status_code=self.status)

    @asynccontextmanager
    async def sending(self) -> AsyncIterator[httpx2.AsyncClient]:
        async def refused(request: httpx2.Request) -> httpx2.Response:
            raise httpx2.ConnectError("refused")

        transport = httpx2.MockTransport(refused) if self.gone else self.transport
        async with httpx2.AsyncClient(transport=transport) as client:
            yield client


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> Target:
    made = Target()
    monkeypatch.setattr("app.cli.local.sending", made.sending)
    monkeypatch.setattr("app.cli.deliveries.sending", made.sending)
    return made


@pytest.fixture
def stripe(run: Run, target: Target, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("TALLYHOOK_SOURCES__STRIPE__PROFILE", "stripe")
    monkeypatch.setenv("TALLYHOOK_SOURCES__STRIPE__SECRETS", SECRET)
    return run


def test_an_event_is_sent_signed(stripe: Run, target: Target) -> None:
    """To where `serve` listens, about the order and the money that are asked for."""
    ended = stripe("trigger", "stripe", "payment_intent.succeeded", "--order", "ORD-7",
                   "--amount", "25", "--currency", "KES")  # fmt: skip
    assert (ended.code, ended.out) == (0, '200 {"took":1}\n')
    assert "of ORD-7 to http://127.0.0.1:8080/webhooks/stripe" in ended.err
    body = json.loads(target.bodies[0])["data"]["object"]
    assert (body["metadata"]["order_id"], body["amount"]) == ("ORD-7", 2500)
    assert target.came[0].headers["stripe-signature"].startswith("t=")
    assert str(target.came[0].url) == "http://127.0.0.1:8080/webhooks/stripe"
    assert stripe("trigger", "stripe", "payment_intent.succeeded").code == 0
    assert json.loads(target.bodies[1])["data"]["object"]["metadata"]["order_id"][:5] == "TEST-"


def test_an_event_is_sent_again_in_the_same_bytes_where_its_moment_is_said(
    stripe: Run, target: Target
) -> None:
    """As a provider does, so that it counts as a duplicate; else it is dated anew."""
    words = ("trigger", "stripe", "payment_intent.succeeded", "--order", "ORD-7")
    for more in (("--at", "2026-11-20T10:00:00Z"), ("--at", "2026-11-20T10:00:00Z"), ()):
        assert stripe(*words, *more).code == 0
    first, second, third = target.bodies
    assert first == second
    assert json.loads(first)["id"] == json.loads(third)["id"]
    assert json.loads(third)["created"] > json.loads(first)["created"] == 1795168800
    assert "--at: write a date" in stripe(*words, "--at", "soon").err


async def test_the_service_takes_what_is_triggered(tmp_path: Path) -> None:
    """Shaped, signed, received, read and folded: the order is paid."""
    from app.config.load import load_settings
    from app.context.configured import compile_sources
    from app.providers.examples import WantedEvent, find_example, shape_event

    more: dict[str, Any] = {
        "SOURCES__STRIPE__PROFILE": "stripe",
        "SOURCES__STRIPE__SECRETS": SECRET,
    }
    source = compile_sources(load_settings(environ(tmp_path, **more)))["stripe"]
    async with driving(tmp_path, **more) as driver:
        for word in ("payment_intent.created", "payment_intent.succeeded"):
            request = shape_event(
                source,
                find_example("stripe", word),
                WantedEvent(order="ORD-7"),
                now=driver.clock.now(),
                url="",
            )
            headers = [(name.encode(), value.encode()) for name, value in request.headers]
            answer = await driver.send(request.body, headers, source="stripe")
            assert answer.json()["verdict"] == "stored"
        outcome = (await driver.api("GET", "/orders/ORD-7")).json()
    assert (outcome["outcome"], [each["code"] for each in outcome["findings"]]) == (
        "succeeded",
        ["order_unknown"],
    )


def test_of_several_sources_those_of_the_provider_are_named(
    stripe: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--source` takes one of them: those of other providers do not sign its events."""
    monkeypatch.setenv("TALLYHOOK_SOURCES__SECOND__PROFILE", "stripe")
    monkeypatch.setenv("TALLYHOOK_SOURCES__SECOND__SECRETS", f"{SECRET}2")
    monkeypatch.setenv("TALLYHOOK_SOURCES__OTHER__PROFILE", "paystack")
    monkeypatch.setenv("TALLYHOOK_SOURCES__OTHER__SECRETS", f"{SECRET}3")
    ended = stripe("trigger", "stripe", "payment_intent.succeeded")
    assert ended.code == 2
    (named,) = [each for each in ended.err.splitlines() if "give --source with one of" in each]
    assert ("second" in named, "other" in named) == (True, False)


def test_events_that_there_are_are_listed(run: Run) -> None:
    rows = run("trigger", "paystack", "--format", "json").document
    assert "charge.success" in [row["event"] for row in rows]
    assert all(row["source"] for row in rows)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("stripe", "payment_intent"), 5, "there is no example of 'payment_intent'"),
        (("nobody", "x"), 3, "there is no profile"),
        (("paystack", "charge.success"), 2, "`tallyhook connect paystack` to add it"),
        (
            ("stripe", "payment_intent.succeeded", "--source", "no"),
            2,
            "this source is not configured",
        ),
        (("stripe", "payment_intent.succeeded", "--amount", "5"), 2, "--amount and --currency"),
        (("stripe", "payment_intent.succeeded", "--amount", "x", "--currency", "KES"), 2, "--amou"),
        (("stripe", "payment_intent.succeeded", "--to", "ftp://x"), 2, "the address must be like"),
        (
            ("stripe", "payment_intent.succeeded", "--to", "http://a b/"),
            2,
            "the address must be like",
        ),
    ],
)
def test_what_cannot_be_triggered_is_reported(
    stripe: Run, target: Target, words: tuple[str, ...], code: int, said: str
) -> None:
    ended = stripe("trigger", *words)
    assert ended.code == code, ended.err
    assert said in ended.err
    assert not target.came


def test_nothing_is_made_up_in_live(
    stripe: Run, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A live installation refuses, before anything is signed."""
    monkeypatch.setenv("TALLYHOOK_ENVIRONMENT", "live")
    monkeypatch.setenv("TALLYHOOK_SOURCES__STRIPE__SECRETS", "whsec_9f8e7d6c5b4a3f2e1d0c9b")
    ended = stripe("trigger", "stripe", "payment_intent.succeeded")
    assert (ended.code, "are allowed only in a sandbox" in ended.err) == (2, True), ended.err
    assert not target.came


def test_a_secret_that_is_sent_itself_stays_here(
    run: Run, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flutterwave v3 sends the secret: beyond this machine only where that is said."""
    own = "TALLYHOOK_SOURCES__FLW__"
    monkeypatch.setenv(own + "PROFILE", "flutterwave_v3")
    monkeypatch.setenv(own + "SECRETS", "a secret hash of its own 123")
    monkeypatch.setenv(own + "CREDENTIALS", '{"secret_key": "FLWSECK_TEST-1"}')
    words = ("trigger", "flutterwave_v3", "charge.completed:successful", "--order", "O-1", "--to")
    ended = run(*words, "https://elsewhere.example/hook")
    assert (ended.code, "add --yes" in ended.err) == (2, True)
    assert not target.came
    ended = run(*words, HERE)
    assert (ended.code, "The order stays pending" in ended.err) == (0, True)
    assert run(*words, "https://elsewhere.example/hook", "--yes").code == 0


def test_a_refusal_and_no_answer_have_their_own_codes(stripe: Run, target: Target) -> None:
    target.status = 401
    words = ("trigger", "stripe", "payment_intent.succeeded", "--to", HERE)
    ended = stripe(*words)
    assert (ended.code, ended.out.startswith("401")) == (1, True)
    target.gone = True
    ended = stripe(*words)
    assert (ended.code, "does not answer" in ended.err) == (4, True)
    assert "certificate" not in ended.err
    ended = stripe(*words[:-1], "https://127.0.0.1:9443/webhooks/stripe")
    assert (ended.code, "trusts its certificate" in ended.err) == (4, True)


# --- deliveries replay ----------------------------------------------------------------------------


def test_a_delivery_is_sent_on_as_it_came(run: Run, target: Target, tmp_path: Path) -> None:
    """Byte for byte, with the headers of the request, and it stands in the trail."""
    body = b'{"id": "e9",  "type":"payment.pending", "odd": "\xc3\xa9"}'

    async def fill() -> str:
        async with driving(tmp_path, with_worker=False) as driver:
            headers = [*signed(body), (b"x-odd", b"caf\xe9"), (b"authorization", b"Bearer x")]
            return str((await driver.send(body, headers)).json()["delivery"])

    delivery = asyncio.run(fill())
    ended = run("deliveries", "replay", delivery, "--to", HERE + "?a=1")
    assert ended.code == 0, ended.err
    assert target.bodies == [body]
    sent = dict(target.came[0].headers.raw)
    assert sent[b"x-odd"] == b"caf\xe9"
    assert sent[b"webhook-signature"] == dict(signed(body))[b"webhook-signature"]
    assert b"authorization" not in sent
    assert "Some parts are not stored, and were not sent: authorization" in ended.err
    assert str(target.came[0].url) == HERE + "?a=1"
    trail = run("audit", "list", "--action", "unmasked", "--format", "json").document
    assert [(each["subject"], each["reason"]) for each in trail] == [
        (delivery, f"sent on to {HERE}?a=1")
    ]


def test_a_refused_one_is_sent_on_too(run: Run, target: Target, filled: dict[str, str]) -> None:
    ended = run("deliveries", "replay", filled["live"], "--to", HERE)
    assert (ended.code, len(target.came)) == (0, 1)
    assert b'"environment": "live"' in target.bodies[0]


def test_what_cannot_be_sent_on_is_reported(
    run: Run, target: Target, filled: dict[str, str], tmp_path: Path
) -> None:
    """One that is not there, a repeat, a body that is gone, and an address beyond this machine."""
    assert run("deliveries", "replay", "dlv_none", "--to", HERE).code == 5
    ended = run("deliveries", "replay", filled["again"], "--to", HERE)
    assert (ended.code, "is a redelivery" in ended.err) == (2, True)
    ended = run("deliveries", "replay", filled["paid"], "--to", "https://elsewhere.example/")
    assert (ended.code, "a customer's data would be sent there: add --yes" in ended.err) == (
        2,
        True,
    )
    import sqlite3

    with sqlite3.connect(tmp_path / "t.db") as database:
        database.execute("UPDATE deliveries SET body = NULL, pruned_at = ? WHERE id = ?",
                         (T, filled["paid"]))  # fmt: skip
    ended = run("deliveries", "replay", filled["paid"], "--to", HERE)
    assert (ended.code, "was deleted (pruned or erased)" in ended.err) == (2, True)
    assert not target.came


# --- listen ---------------------------------------------------------------------------------------


async def test_what_comes_is_handed_on_and_answered(target: Target) -> None:
    """Method, path, query, headers and bytes; the answer's status and body go back."""
    exchanges: list[tuple[Recorded, Exchange]] = []
    async with target.sending() as client:
        app = build_listener(
            "http://127.0.0.1:9000",
            client=client,
            on_exchange=lambda r, e: exchanges.append((r, e)),
        )
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://tunnel") as sender:
            answer = await sender.put(
                "/webhooks/a%20b?x=%31&x=2",
                content=b"\x00\xff",
                headers=[("x-a", "1"), ("x-a", "2")],
            )
            assert (answer.status_code, answer.json()) == (200, {"took": 1})
            target.status = 503
            assert (await sender.post("/x", content=b"1")).status_code == 503
            target.gone = True
            large = await sender.post("/x", content=b"1" * (MAX_BODY_BYTES + 1))
            assert large.status_code == 413
    assert target.bodies == [b"\x00\xff", b"1"]
    assert target.came[0].scope["raw_path"] == b"/webhooks/a%20b"
    assert target.came[0].scope["query_string"] == b"x=%31&x=2"
    assert target.came[0].headers.getlist("x-a") == ["1", "2"]
    assert target.came[0].headers["host"] == "127.0.0.1:9000"
    assert [each.url for each, _ in exchanges] == ["/webhooks/a%20b?x=%31&x=2", "/x"]


def test_what_is_listened_for_is_shown_and_recorded(
    run: Run, target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line for each request, and the file that `--from` takes, for its owner alone."""

    async def serve(app: Any, *, port: int) -> None:
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://tunnel") as sender:
            await sender.post("/webhooks/shop?key=1", content=b'{"a": 1}')

    monkeypatch.setattr("app.sandbox.server.serve_sandbox", serve)
    file = tmp_path / "came.jsonl"
    words = ("listen", "--forward", "http://127.0.0.1:9000", "--port", "9001")
    for _ in range(2):
        ended = run(*words, "--record", str(file))
        assert (ended.code, ended.out) == (0, "POST /webhooks/shop 200\n")
        assert "Listening on http://127.0.0.1:9001" in ended.err
    assert file.stat().st_mode & 0o777 == 0o600
    assert run(*words[:3], "--from", str(file)).code == 0
    assert target.bodies == [b'{"a": 1}'] * 4
    assert run(*words, "--from", str(file), "--record", str(file)).code == 2


async def test_an_address_that_does_not_answer_is_502() -> None:
    target = Target()
    target.gone = True
    async with target.sending() as client:
        app = build_listener("http://127.0.0.1:9", client=client, on_exchange=lambda r, e: None)
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://tunnel") as sender:
            assert (await sender.post("/x", content=b"1")).status_code == 502


async def test_an_answer_comes_back_as_it_is_read() -> None:
    """Whoever sends may take a gzip; what is handed on asks for none, since none is read."""

    async def packed(request: Request) -> Response:
        if "gzip" not in request.headers["accept-encoding"]:
            return Response(b"plain")
        return Response(gzip.compress(b"plain"), headers={"content-encoding": "gzip"})

    packing = Starlette(routes=[Route("/x", packed, methods=["POST"])])
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=packing)) as client:
        app = build_listener("http://127.0.0.1:9", client=client, on_exchange=lambda r, e: None)
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://tunnel") as sender:
            answer = await sender.post("/x", headers={"accept-encoding": "gzip"})
    assert (answer.status_code, answer.content) == (200, b"plain")


def test_a_file_is_sent(run: Run, target: Target, tmp_path: Path) -> None:
    """Every line in its order; 1 where one was not taken; a line that is none is named."""
    bodies = [b'{"a": 1}', b"\x00\xff", b""]
    requests = [Recorded(url="/w?x=1", headers=[("x-a", "é")], body=each) for each in bodies]
    file = tmp_path / "came.jsonl"
    file.write_text("\n\n".join(map(line_of, requests)))
    with file.open("rb") as opened:
        assert list(requests_in(opened, "f")) == requests
    ended = run("listen", "--forward", HERE, "--from", str(file))
    assert (ended.code, target.bodies) == (0, bodies)
    assert str(target.came[0].url) == HERE + "?x=1"
    target.status = 401
    ended = run("listen", "--forward", HERE, "--from", str(file))
    assert (ended.code, "Sent 3 requests: 3 not accepted." in ended.err) == (1, True)
    file.write_text(line_of(requests[0]) + '\n{"url": 1}\n')
    ended = run("listen", "--forward", HERE, "--from", str(file))
    assert (ended.code, f"{file}:2: is not a recorded request" in ended.err) == (2, True)
    assert run("listen", "--forward", HERE, "--from", str(tmp_path / "none")).code == 2
    assert run("listen", "--forward", "http://elsewhere.example").code == 2


@for_each(
    "wrong",
    [
        {"url": "@evil.example/x"},
        {"url": ".evil.example/x"},
        {"url": ":1/x"},
        {"url": "http://evil.example/x"},
        {"url": "/a\x01"},
        {"url": "/a\n"},
        {"url": "/" + "a" * 70_000},
        {"method": "G T"},
        {"method": ""},
        {"headers": [["x", "€"]]},
        {"headers": [["x", "a\r\ny: b"]]},
        {"headers": [["x y", "a"]]},
        {"headers": [["", "a"]]},
    ],
)
def test_what_could_not_be_sent_is_reported_with_its_line(wrong: dict[str, Any]) -> None:
    """Above all what would go to another host than --forward names."""
    good = {"method": "POST", "url": "?x=1", "headers": [["x", "é\ta"]], "body": ""}
    lines = "\n".join([json.dumps(good), json.dumps(good | wrong)])
    found = requests_in(io.BytesIO(lines.encode()), "f")
    assert next(found).url == "?x=1"
    with pytest.raises(UsageError, match="f:2: is not a recorded request"):
        next(found)


@for_each("url", ["@evil.example/x", ".evil.example/x", ":1/x", "1/x"])
def test_no_request_goes_to_another_host(url: str) -> None:
    """Whatever it was read from."""
    with pytest.raises(UsageError, match="another host"):
        target_of("http://127.0.0.1:8080", url)


@for_each(
    ("to", "url", "target"),
    [
        ("http://h:1/hook", "/webhooks/a?x=1", "http://h:1/hook?x=1"),
        ("http://h:1/hook?k=1", "/a?x=1", "http://h:1/hook?k=1&x=1"),
        ("http://h:1", "/a/b", "http://h:1/a/b"),
        ("http://h:1/", "/a/b?x=%20", "http://h:1/a/b?x=%20"),
        ("http://h:1", "", "http://h:1/"),
        ("http://h:1", "//evil.example/x", "http://h:1//evil.example/x"),
        ("http://h:1/hook", "@evil.example/x?a=1", "http://h:1/hook?a=1"),
        ("http://h:1", "?a=@evil.example", "http://h:1/?a=@evil.example"),
    ],
)
def test_where_a_request_goes(to: str, url: str, target: str) -> None:
    assert target_of(to, url) == target


def test_events_of_the_default_profile_are_those_of_its_own_document() -> None:
    """What `trigger checkout` sends is what the simulated provider's tests send by hand."""
    from app.providers.examples import find_example

    shape = find_example("checkout", "payment.succeeded").body
    mine = event("e1")
    assert shape.keys() == mine.keys()
    assert shape["data"].keys() == mine["data"].keys()


def test_each_start_of_a_sandbox_has_a_seed_of_its_own_unless_one_is_given(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its second run draws the ids of the first, and its events are taken for duplicates."""
    seeds: list[int] = []
    monkeypatch.setattr(
        "app.cli.serving._run_sandbox", lambda settings, **_: seeds.append(settings.seed)
    )
    for arguments in ((), (), ("--seed", "7")):
        assert run("sandbox", *arguments).code == 0
    assert len(set(seeds)) == 3
    assert seeds[-1] == 7


def test_a_sandbox_on_an_address_of_ip_version_6(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own address is one, with brackets; it was refused as none."""
    served: list[str] = []
    monkeypatch.setattr(
        "app.cli.serving._run_sandbox", lambda settings, **_: served.append(settings.public_url)
    )
    assert run("sandbox", "--host", "::1").code == 0
    assert served == ["http://[::1]:8090"]
