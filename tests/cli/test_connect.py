"""`tallyhook connect`: writes the source, prints what to register, and waits for what comes."""

import io
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.cli import main
from app.config.load import load_settings
from app.context.configured import accounts
from app.core.errors import ConfigurationError
from app.golive.examine import problems_of_sources
from app.orders.first_delivery import FirstDelivery, wait_for_delivery
from app.providers.doctor import Diagnosis
from app.receiving.delivery_log_store import LogEntry
from tests.api.driving import driving, environ, event, signed
from tests.cli.test_commands import Run, filled, run
from tests.reconcile.build import T
from tests.rows import for_each

__all__ = ["filled", "run"]

SECRET = "whsec_test_9f8e7d6c5b4a3f2e1d0c"
Output = pytest.CaptureFixture[str]
Connect = Callable[..., tuple[int, str]]


@pytest.fixture
def connect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output) -> Connect:
    """Run the command in an empty folder, with a text as standard input; return its code and all
    that it wrote."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TALLYHOOK_CONFIG", raising=False)

    def connecting(*words: str, given: str = "") -> tuple[int, str]:
        file = SimpleNamespace(buffer=io.BytesIO(given.encode()), isatty=lambda: False)
        monkeypatch.setattr("sys.stdin", file)
        code = main.run(["connect", *words])
        written = capsys.readouterr()
        assert SECRET not in written.out + written.err
        return code, written.out + written.err

    return connecting


def settings_in(folder: Path, name: str = "tallyhook.env") -> dict[str, str]:
    lines = (folder / name).read_text(encoding="utf-8").splitlines()
    return {key: value.strip("'") for key, _, value in (line.partition("=") for line in lines)}


def test_a_source_is_written_and_shown(connect: Connect, tmp_path: Path) -> None:
    """The secret from standard input; the address, the exact events and the order's field."""
    code, output = connect(
        "stripe", "--secret-file", "-", "--public-url", "https://pay.shop.example", given=SECRET
    )
    assert code == 0, output
    assert settings_in(tmp_path) == {
        "TALLYHOOK_ENVIRONMENT": "sandbox",
        "TALLYHOOK_PUBLIC_URL": "https://pay.shop.example",
        "TALLYHOOK_SOURCES__STRIPE__PROFILE": "stripe",
        "TALLYHOOK_SOURCES__STRIPE__SECRETS": SECRET,
    }
    assert (tmp_path / "tallyhook.env").stat().st_mode & 0o777 == 0o600
    for words in (
        "https://pay.shop.example/webhooks/stripe",
        "payment_intent.succeeded",
        "metadata.order_id of the PaymentIntent",
        "Subscribe to refund.created",
    ):
        assert words in output
    loaded = load_settings({"TALLYHOOK_CONFIG": str(tmp_path / "tallyhook.env")}, serving=True)
    assert loaded.sources["stripe"].profile == "stripe"


def test_it_can_be_said_again_and_never_writes_over(connect: Connect, tmp_path: Path) -> None:
    """The same words change nothing; another secret, profile or environment is only reported."""
    connect("stripe", "--secret-file", "-", given=SECRET)
    before = (tmp_path / "tallyhook.env").read_text()
    code, output = connect("stripe", "--secret-file", "-", given=SECRET)
    assert (code, "has all of these settings already" in output) == (0, True)
    assert connect("stripe")[0] == 0  # its secret is known: nobody is asked
    for words, variable in (
        (("stripe", "--secret-file", "-"), "STRIPE__SECRETS"),
        (("paystack", "--name", "stripe"), "STRIPE__PROFILE"),
        (("stripe", "--environment", "live"), "ENVIRONMENT"),
    ):
        code, output = connect(*words, given="another secret of twenty-four")
        assert code == 3
        assert f"{variable}: tallyhook.env has another value" in output
        assert "nothing was written" in output
    assert (tmp_path / "tallyhook.env").read_text() == before


def test_a_second_provider_is_added(connect: Connect, tmp_path: Path) -> None:
    """Beside the first. A key that both would verify with is refused, and nothing is written."""
    connect("stripe", "--secret-file", "-", given=SECRET)
    before = (tmp_path / "tallyhook.env").read_text()
    code, output = connect("paystack", "--secret-file", "-", given=SECRET)
    assert (code, "holds the same secret" in output) == (3, True), output
    assert (tmp_path / "tallyhook.env").read_text() == before
    assert connect("paystack", "--secret-file", "-", given="sk_test_" + "4f" * 20)[0] == 0
    assert (tmp_path / "tallyhook.env").read_text().startswith(before)


def test_what_is_unsigned_has_credentials_and_an_address_to_keep(
    connect: Connect, tmp_path: Path
) -> None:
    """M-Pesa has no secret: its address is one that nobody can guess, and stays the same."""
    credentials = tmp_path / "c.json"
    values = {"consumer": "k:s", "shortcode": "174379", "timestamp": "20261120100000"}
    credentials.write_text(json.dumps(values))
    code, output = connect("mpesa_stk", "--credentials-file", str(credentials))
    assert (code, "lacks password" in output) == (2, True)
    credentials.write_text(json.dumps(values | {"password": "cGFzcw=="}))
    code, output = connect("mpesa_stk", "--credentials-file", str(credentials), "--format", "json")
    assert code == 0, output
    document = json.loads(output.partition("\nSet ")[0].partition("\nDoes another")[0])
    end = document["address"].rpartition("/")[2]
    assert (document["source"], len(end) > 40) == ("mpesa_stk", True)
    assert "cGFzcw==" not in output
    assert document["address"] in connect("mpesa_stk", "--format", "json")[1]
    code, output = connect("mpesa_stk", "--secret-file", "-", given="x")
    assert (code, "uses no secret" in output) == (2, True)


def test_an_account_that_others_use_needs_what_tells_their_payments_apart(
    connect: Connect, tmp_path: Path
) -> None:
    """A yes alone is refused, with what the profile offers first; nothing is written."""
    words = ("stripe", "--secret-file", "-")
    code, output = connect(*words, "--shared", given=SECRET)
    assert (code, "Set ACCOUNT, ONLY or LINK_BY" in output) == (2, True)
    assert "Set ONLY or LINK_BY" in connect("paystack", "--shared", given=SECRET)[1]
    assert not (tmp_path / "tallyhook.env").exists()
    only = '{"metadata.shop": ["main"]}'
    assert connect(*words, "--shared", "--only", only, given=SECRET)[0] == 0
    own = "TALLYHOOK_SOURCES__STRIPE__"
    written = settings_in(tmp_path)
    assert (written[own + "SHARED"], written[own + "ONLY"]) == ("yes", only)
    environ = {**written, own + "ONLY": "{}"}
    with pytest.raises(ConfigurationError, match="another shop uses the account"):
        load_settings(environ, serving=True, also=problems_of_sources)


def test_another_address_leaves_the_old_one_valid_for_thirteen_months(
    connect: Connect, tmp_path: Path
) -> None:
    """Unless it is to be retired at once. Only this setting is changed in the file."""
    credentials = tmp_path / "c.json"
    credentials.write_text(json.dumps(dict.fromkeys(
        ("consumer", "shortcode", "timestamp", "password"), "k:s"
    )))  # fmt: skip
    connect("mpesa_stk", "--credentials-file", str(credentials))
    before, variable = settings_in(tmp_path), "TALLYHOOK_SOURCES__MPESA_STK__ADDRESS"
    code, output = connect("mpesa_stk", "--rotate-address")
    assert (code, "is accepted until" in output, "CallBackURL" in output) == (0, True, True)
    after = settings_in(tmp_path)
    newest, old = json.loads(after[variable])
    assert old.startswith(f"{before[variable]} until ")
    assert f"/webhooks/{newest}" in output
    assert before[variable] not in output
    assert {**after, variable: ""} == {**before, variable: ""}
    code, output = connect("mpesa_stk", "--rotate-address", "--retire-now")
    assert (code, "is accepted until" in output) == (0, False)
    assert newest not in settings_in(tmp_path)[variable]
    assert connect("mpesa_stk", "--retire-now")[0] == 2
    assert connect("stripe", "--rotate-address", "--secret-file", "-", given=SECRET)[0] == 2


def test_at_a_terminal_what_is_missing_is_asked_for_unseen(
    connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Secret and credentials, each with what it is; what is typed is never shown."""
    asked: list[str] = []

    def prompt(name: str, *, hide_input: bool, err: bool) -> str:
        assert (hide_input, err) == (True, True)
        asked.append(name)
        return "a secret hash of its own 123" if name == "secret" else "FLWSECK_TEST-1"

    monkeypatch.setattr("typer.prompt", prompt)
    monkeypatch.setattr("app.cli.connect.sits_at_a_terminal", lambda: True)
    monkeypatch.setattr("typer.confirm", lambda *_, **__: False)
    code, output = connect("flutterwave_v3")
    assert (code, asked) == (0, ["secret", "secret_key"])
    assert 'The secret is the "secret hash" that you type in yourself' in output
    assert "secret_key: the API secret key" in output
    assert "123" not in output
    assert settings_in(tmp_path)["TALLYHOOK_SOURCES__FLUTTERWAVE_V3__CREDENTIALS"] == (
        '{"secret_key": "FLWSECK_TEST-1"}'
    )


@pytest.mark.parametrize("profile", ["woovi", "paypal", "plaid", "rfc9421"])
def test_a_key_of_several_lines_is_not_asked_for_in_one(
    connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, profile: str
) -> None:
    """A prompt would take the first line of what is pasted, and the shell the others."""
    monkeypatch.setattr("typer.prompt", lambda *words, **more: pytest.fail("was asked"))
    monkeypatch.setattr("app.cli.connect.sits_at_a_terminal", lambda: True)
    monkeypatch.setattr("typer.confirm", lambda *_, **__: False)
    code, output = connect(profile)
    assert (code, "give --secret-file FILE" in output) == (2, True), output
    assert not (tmp_path / "tallyhook.env").exists()


@for_each(
    ("words", "given", "code", "said"),
    [
        (("nobody",), "", 3, "there is no profile 'nobody'"),
        (("stripe",), "", 2, "no terminal at which to ask: give --secret-file FILE"),
        (("stripe",), "", 2, "The secret is the endpoint's signing secret (whsec_…"),
        (("gocardless", "--secret-file", "-"), SECRET, 2, "access_token: an access token with"),
        (("gocardless", "--secret-file", "-"), SECRET, 2, 'FILE with {"access_token": "<value>"}'),
        (("stripe", "--secret-file", "-"), "short", 3, "STRIPE__SECRETS"),
        (("stripe", "--secret-file", "-"), " \n", 2, "the given text or file contains no secret"),
        (("stripe", "--secret-file", "gone"), "", 2, "gone cannot be read"),
        (("stripe", "--name", "a b", "--secret-file", "-"), SECRET, 2, "--name must have 1 to 40"),
        (("woovi", "--secret-file", "-"), "x", 3, "WOOVI__"),
        (("twilio", "--secret-file", "-"), '{"a": 1}', 2, "a JSON object of texts"),
        (("stripe", "--secret-file", "-"), "x" * 70_000, 2, "more than 65,536 bytes"),
        (("square", "--secret-file", "-"), SECRET, 3, "TALLYHOOK_PUBLIC_URL"),
    ],
)
def test_what_cannot_be_connected_is_reported(
    connect: Connect, tmp_path: Path, words: tuple[str, ...], given: str, code: int, said: str
) -> None:
    """One sentence each, and no file."""
    ended, output = connect(*words, given=given)
    assert ended == code, output
    assert said in output
    assert not (tmp_path / "tallyhook.env").exists()


def test_waiting_ends_with_what_came_or_with_what_silence_means(
    filled: dict[str, str], run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Exit code 0 for what was taken; 1 for nothing, for what names no order, and for what was
    refused, with the mistake."""
    words = ("connect", "checkout", "--name", "shop", "--config", str(tmp_path / "t.env"))
    ended = run(*words, "--wait", "0.1")
    assert (ended.code, "Nothing arrived." in ended.out) == (1, True)
    arrivals: list[FirstDelivery] = []

    async def arrived(*given: Any, **words: Any) -> FirstDelivery:
        return arrivals.pop()

    monkeypatch.setattr("app.orders.first_delivery.wait_for_delivery", arrived)
    entry = LogEntry(delivery_id="dlv_1", received_at=T, source="shop", verdict="stored",
                     digest="", size=1, problem=None, headers="", event_id="e1",
                     pruned_at=None)  # fmt: skip
    arrivals.append(FirstDelivery(entry=entry, refused=False, unknown=False, diagnoses=[]))
    ended = run(*words, "--wait", "1")
    assert (ended.code, "accepted: dlv_1, stored" in ended.out) == (0, True)
    nameless = "Accepted, but it names no order: put the reference into order.reference."
    arrivals.append(
        FirstDelivery(entry=entry, refused=False, unknown=False, diagnoses=[], no_order=nameless)
    )
    ended = run(*words, "--wait", "1")
    assert (ended.code, nameless in ended.out) == (1, True)
    mistake = Diagnosis(mistake="other_secret", sentence="Another secret fits.")
    refused = replace(entry, verdict="signature_mismatch")
    arrivals.append(FirstDelivery(entry=refused, refused=True, unknown=False, diagnoses=[mistake]))
    ended = run(*words, "--wait", "1")
    assert (ended.code, "Another secret fits." in ended.out) == (1, True)


async def test_the_first_delivery_is_awaited_and_examined(tmp_path: Path) -> None:
    """One that is taken, one that is refused with what to change, one for a name that no source
    has, and none; what came before does not count."""
    known = accounts(load_settings(environ(tmp_path)))
    async with driving(tmp_path, with_worker=False) as driver:
        await driver.send(event("before"))

        async def output(*, send: Callable[[], Awaitable[Any]] | None) -> Any:
            sends = iter([send])

            async def sleep(seconds: float) -> None:
                if now := next(sends, None):
                    await now()

            return await wait_for_delivery(
                driver.context, "shop", accounts=known, seconds=1, sleep=sleep
            )

        assert await output(send=None) is None
        taken = await output(send=lambda: driver.send(event("e2")))
        assert (taken.refused, taken.entry.verdict, taken.no_order) == (False, "stored", None)
        nameless = await output(
            send=lambda: driver.send(
                event("e5", order=None, session=None, payment={"reference": "p5"})
            )
        )
        assert nameless.no_order == (
            "Accepted, but it names no order: put the reference into order.reference of the "
            "checkout session."
        )
        body = json.dumps(event("e3")).encode()
        wrong = await output(
            send=lambda: driver.send(body.replace(b" ", b""), signed(body, at=driver.clock.now()))
        )
        assert (wrong.refused, wrong.unknown) == (True, False)
        assert wrong.diagnoses
        stranger = await output(send=lambda: driver.send(event("e4"), source="stripes"))
        assert (stranger.unknown, stranger.entry.verdict) == (True, "source_unknown")
        assert "No source is named stripes" in stranger.diagnoses[0].sentence
