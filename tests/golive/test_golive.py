"""The go-live checklist: what is checked, what is stated, and when it is complete."""

from collections.abc import AsyncIterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.cli.golive import page_of
from app.config.load import load_settings
from app.context.context import AppContext
from app.core.errors import UsageError
from app.core.reading import TRIED
from app.finance.match_rules import save_rules
from app.golive.examine import check_now
from app.golive.golive import (
    ELSEWHERE,
    ITEMS,
    STATED,
    ChecklistItem,
    Trial,
    checklist,
    keys_item,
    last_checklist,
    limits_item,
    open_items,
    separation_item,
    sharing_item,
    sign,
    try_endpoint,
    unfinished,
    webhook_item,
    what_a_signature_is_worth,
)
from app.golive.rehearse import SIGNER
from app.golive.signoff_store import Judged, Signoff, add_signoff
from app.providers.profile import load_profile
from app.providers.source import Source
from tests.api.driving import SECRET, Driver, driving, environ
from tests.contexts import with_sources
from tests.reconcile.build import T
from tests.rows import for_each

pytestmark = pytest.mark.disk

GOOD = Trial(source="shop", tried=("unsigned", "tampered", "stale", "good"))
CHECKED = [
    keys_item([]),
    webhook_item([GOOD], public_url="https://hooks.example"),
    separation_item("live", unmarked=[]),
    sharing_item(unknown=[], apart=[]),
    limits_item(currencies=["KES"]),
]


@pytest.fixture
async def driver(tmp_path: Path) -> AsyncIterator[Driver]:
    """Run a service of the sandbox."""
    async with driving(tmp_path, looking=True) as driver:
        yield driver


@pytest.fixture
async def live(tmp_path: Path) -> AsyncIterator[Driver]:
    """Run a service of the live environment."""
    folder = tmp_path / "live"
    folder.mkdir(0o700)
    async with driving(folder, ENVIRONMENT="live", looking=True) as driver:
        yield driver


async def rehearsed(context: AppContext, item: str, state: Judged) -> None:
    """Store the result of a rehearsal."""
    signoff = Signoff(item=item, state=state, at=T, signer=SIGNER, note="as found")
    async with context.database.writing() as connection:
        await add_signoff(connection, signoff)


async def states(context: AppContext, checked: list[ChecklistItem]) -> dict[str, str]:
    """Return the state of each item."""
    return {each.item: each.state for each in await checklist(context, checked)}


async def test_it_is_complete_when_all_is_checked_and_stated(live: Driver) -> None:
    """Readiness of a live instance names what is open until the last item is signed."""
    context = live.context
    assert (await live.client.get("/readyz")).json()["golive"]
    assert "never been run" in (await unfinished(context) or "")
    found = await states(context, CHECKED)
    assert list(found) == list(ITEMS)
    assert [name for name, state in found.items() if state == "passed"] == list(ITEMS[:5])
    for item in ITEMS[5:]:
        assert await unfinished(context) is not None
        await sign(context, item, by="Ann", note="minutes of 20 November")
        last = await checklist(context, CHECKED)
    assert open_items(last) == []
    assert {each.by for each in last[5:]} == {"Ann"}
    assert await unfinished(context) is None
    assert "golive" not in (await live.client.get("/readyz")).json()


async def test_a_person_states_of_each_account_whether_others_use_it(live: Driver) -> None:
    """A source that is added later is asked about anew."""
    asked = sharing_item(unknown=["shop"], apart=["till"])
    checked = [*CHECKED[:3], asked, CHECKED[4]]
    assert (await states(live.context, checked))["account_sharing"] == "to_sign"
    assert "account of shop" in asked.sentence
    await sign(live.context, "account_sharing", by="Ann", note="it is ours alone")
    assert (await states(live.context, checked))["account_sharing"] == "passed"
    known = sharing_item(unknown=[], apart=["till"])
    assert (known.state, "separate the payments of till" in known.sentence) == ("passed", True)


async def test_without_a_limit_of_one_person_it_fails(driver: Driver) -> None:
    async def state() -> str:
        return {each.item: each.state for each in await check_now(driver.context)}["acting_alone"]

    assert await state() == "failed"
    await save_rules(driver.context, '[accept_alone_max]\nKES = "100.00"\n', by="Ann")
    assert await state() == "passed"


async def test_what_a_program_finds_wrong_cannot_be_signed_away(live: Driver) -> None:
    context = live.context
    for item in ITEMS:
        await sign(context, item, by="Ann", note="it will be fine")
    wrong = [keys_item(["X: is missing"]), *CHECKED[1:]]
    assert (await states(context, wrong))["api_keys"] == "failed"
    await rehearsed(context, "rehearsal", "failed")
    assert (await states(context, CHECKED))["rehearsal"] == "failed"
    assert await unfinished(context) is not None
    await rehearsed(context, "rehearsal", "passed")
    assert set((await states(context, CHECKED)).values()) == {"passed"}


async def test_a_statement_is_added_and_never_changed(live: Driver) -> None:
    for by in ("Ann", "Ben"):
        await sign(live.context, "rollback", by=by, note="tried")
    found = {each.item: each for each in await checklist(live.context, CHECKED)}
    assert found["rollback"].by == "Ben"
    assert live.rows("SELECT signer FROM signoffs WHERE item='rollback'") == [("Ann",), ("Ben",)]


async def test_a_signature_does_not_cover_sources_that_were_added_after_it(live: Driver) -> None:
    context = live.context

    async def state(*names: str) -> tuple[str, str]:
        trials = [Trial(source=name, wrong=None) for name in names]
        checked = [
            CHECKED[0],
            webhook_item(trials, public_url="https://hooks.example"),
            separation_item("live", unmarked=names),
        ]
        found = {each.item: each for each in await checklist(context, checked)}
        assert found["webhook_verification"].state == found["environment_separation"].state
        return found["webhook_verification"].state, found["webhook_verification"].sentence

    assert (await state("mpesa"))[0] == "to_sign"
    for item in ("webhook_verification", "environment_separation"):
        await sign(context, item, by="Ann", note="seen")
    assert (await state("mpesa"))[0] == "passed"
    now, sentence = await state("mpesa", "adyen")
    assert now == "to_sign"
    assert sentence.startswith("Ann signed before adyen was added as a source. No trial can make")
    for item in ("webhook_verification", "environment_separation"):
        await sign(context, item, by="Ann", note="seen both")
    assert (await state("mpesa", "adyen"))[0] == "passed"
    assert (await state("adyen"))[0] == "passed"


async def test_a_signature_of_before_anybody_was_asked_is_for_the_sources_of_the_next_run(
    live: Driver,
) -> None:
    context = live.context
    await sign(context, "environment_separation", by="Ann", note="seen")
    one = [*CHECKED[:2], separation_item("live", unmarked=["mpesa"])]
    two = [*CHECKED[:2], separation_item("live", unmarked=["mpesa", "adyen"])]
    assert (await states(context, one))["environment_separation"] == "passed"
    assert (await states(context, two))["environment_separation"] == "to_sign"


@for_each(
    ("item", "by", "note"),
    [
        ("lunch", "Ann", "tried"),
        ("rollback", " ", "tried"),
        ("rollback", "tallyhook golive", "tried"),
        ("rollback", "A\nB", "tried"),
        ("rollback", "Ann", " "),
        ("rollback", "Ann", "x" * 2001),
    ],
)
async def test_a_statement_needs_item_name_and_note(
    driver: Driver, item: str, by: str, note: str
) -> None:
    with pytest.raises(UsageError):
        await sign(driver.context, item, by=by, note=note)


async def test_the_sandbox_wants_a_rehearsal(driver: Driver) -> None:
    """There a rehearsal is possible, so that nobody's word replaces it."""
    await sign(driver.context, "rehearsal", by="Ann", note="it will be fine")
    assert (await states(driver.context, CHECKED))["rehearsal"] == "not_run_yet"
    assert "golive" not in (await driver.client.get("/readyz")).json()


async def test_what_a_rehearsal_left_out_is_named(driver: Driver) -> None:
    async def sentences() -> dict[str, str]:
        return {each.item: each.sentence for each in await checklist(driver.context, CHECKED)}

    await sentences()
    assert (await sentences())["duplicates"].startswith("Run `tallyhook rehearse`")
    await rehearsed(driver.context, "rehearsal", "passed")
    found = await sentences()
    assert "needs the scenario 'success'" in found["idempotency"]
    assert "needs the scenario 'duplicate webhook'" in found["duplicates"]


async def test_who_signs_is_informed_what_it_is_worth(live: Driver) -> None:
    context = live.context
    worth = dict[str, str | None]()
    await rehearsed(context, "rehearsal", "failed")
    await rehearsed(context, "duplicates", "passed")
    for item in ITEMS:
        await sign(context, item, by="Ann", note="it will be fine")
        worth[item] = await what_a_signature_is_worth(context, item)
    assert [item for item, why in worth.items() if why is None] == ["idempotency", *STATED]
    assert "This signature does not count here. as found." in str(worth["rehearsal"])
    assert "This signature is not needed" in str(worth["duplicates"])
    assert "if `tallyhook golive` lists the item as to be signed" in str(worth["api_keys"])


# --- the public endpoint -------------------------------------------------------------------------


async def tried(driver: Driver, *, secret: str = SECRET, arrives: bool = True) -> Trial:
    """Try the endpoint of a service with this secret. arrives: whether the delivery comes here."""
    source = Source(name="shop", profile=load_profile("checkout"), secrets=[secret], strict=False)

    async def arrived(digest: str) -> bool:
        return arrives

    return await try_endpoint(
        driver.client,
        source,
        url="http://service/webhooks/shop",
        now=driver.clock.now(),
        arrived=arrived,
    )


async def test_an_endpoint_that_verifies(driver: Driver) -> None:
    """Three requests are refused and the good one is taken, and no order comes of it."""
    assert await tried(driver) == GOOD
    verdicts = driver.rows("SELECT verdict FROM rejections ORDER BY verdict")
    assert verdicts == [("signature_mismatch",), ("signature_missing",), ("timestamp_too_old",)]
    assert driver.rows("SELECT verdict FROM deliveries") == [("unreadable",)]
    assert driver.rows("SELECT count(*) FROM order_due") == [(0,)]


async def test_a_trial_raises_no_alarm(driver: Driver) -> None:
    await tried(driver)
    await driver.service.watchdog.look()
    assert "unreadable" not in (await driver.client.get("/readyz")).json()
    assert driver.rows("SELECT problem FROM deliveries") == [(TRIED,)]


OTHERS: dict[str, str] = {
    "adyen": bytes(range(32)).hex(),
    "braintree": '{"k1": "Bf6Hj1Qx7Lm2Vt9Kp4Rz8Nw3"}',
    "mercadopago": "Qx7Lm2Vt9Kp4Rz8Nw3Bf6Hj1",
    "moov": "Rz8Nw3Bf6Hj1Qx7Lm2Vt9Kp4",
    "peach_oppwa": bytes(range(1, 33)).hex(),
}


async def test_endpoints_whose_providers_do_not_sign_a_whole_body(tmp_path: Path) -> None:
    """What such a signature lets through is no fault of the endpoint."""
    settings: dict[str, Any] = {}
    for name, secret in OTHERS.items():
        settings[f"SOURCES__{name.upper()}__PROFILE"] = name
        settings[f"SOURCES__{name.upper()}__{'KEYS' if secret[0] == '{' else 'SECRETS'}"] = secret
    settings["SOURCES__MERCADOPAGO__CREDENTIALS"] = '{"access_token": "APP_USR-7265"}'

    async def arrived(digest: str) -> bool:
        return True

    async with driving(tmp_path, looking=True, **settings) as driver:
        found = {
            name: await try_endpoint(
                driver.client,
                driver.service.sources[name],
                url=f"http://service/webhooks/{name}",
                now=driver.clock.now(),
                arrived=arrived,
            )
            for name in OTHERS
        }
        await driver.service.watchdog.look()
        assert "unreadable" not in (await driver.client.get("/readyz")).json()
        assert set(driver.rows("SELECT problem FROM deliveries")) == {(TRIED,)}
    assert {name: trial.wrong for name, trial in found.items()} == {
        **dict.fromkeys(OTHERS, ()), "adyen": None
    }  # fmt: skip
    assert {trial.tried for trial in found.values()} == {
        (), ("unsigned", "good"), ("unsigned", "stale", "good")
    }  # fmt: skip


async def test_an_endpoint_with_another_secret(driver: Driver) -> None:
    found = await tried(driver, secret="whsec_" + "b3RoZXIgb3RoZXIgb3RoZXIgb3RoZXI=")
    assert found.wrong == ("the good request was answered with status 401",)
    assert webhook_item([found], public_url="https://x").state == "failed"


async def test_an_address_that_receives_no_webhooks_is_told_once_with_what_to_look_at(
    driver: Driver,
) -> None:
    """As for a proxy that adds a slash, or a service that does not know the source yet."""
    source = Source(name="till", profile=load_profile("checkout"), secrets=[SECRET], strict=False)
    for path in ("//webhooks/till", "/webhooks/till"):
        url = f"http://service{path}"
        now = driver.clock.now()
        found = await try_endpoint(driver.client, source, url=url, now=now, arrived=never)
        item = webhook_item([found], public_url="http://service")
        assert item.state == "failed"
        assert item.sentence.startswith(f"till: {url} answered with status 404")
        assert item.sentence.endswith("after the source was configured.")
        assert item.sentence.count("404") == 1


async def never(digest: str) -> bool:
    return False


async def test_an_endpoint_of_another_installation(driver: Driver) -> None:
    """It has the same secret and takes the good request."""
    found = await tried(driver, arrives=False)
    assert found.wrong == (ELSEWHERE,)
    assert webhook_item([found], public_url="https://x").state == "failed"


async def test_an_endpoint_that_takes_everything(driver: Driver) -> None:
    async def body() -> AsyncIterator[bytes]:
        yield b""

    transport = httpx2.MockTransport(lambda request: httpx2.Response(200, content=body()))
    async with httpx2.AsyncClient(transport=transport) as client:
        found = await tried(replace(driver, client=client))
    assert found.wrong is not None
    assert [word.split()[1] for word in found.wrong] == ["unsigned", "tampered", "stale"]


async def test_an_endpoint_that_nobody_reaches_is_reported_once(driver: Driver) -> None:
    asked: list[httpx2.Request] = []

    def away(request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        raise httpx2.ConnectError("refused")

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(away)) as client:
        found = await tried(replace(driver, client=client))
    item = webhook_item([found], public_url="http://service")
    assert (item.state, len(asked)) == ("failed", 1)
    assert item.sentence.startswith(
        "shop: no answer came from http://service/webhooks/shop (connection failed). Check"
    )


async def test_a_shop_that_starts_its_payments_itself_can_complete_the_list(live: Driver) -> None:
    item = keys_item([], starts_payments=False)
    assert item.state == "to_sign"
    assert "tallyhook golive sign api_keys --by" in item.sentence
    await sign(live.context, "api_keys", by="Ann", note="the shop asks Stripe itself")
    assert (await states(live.context, [item, *CHECKED[1:]]))["api_keys"] == "passed"
    assert keys_item(["X: is missing"], starts_payments=False).state == "failed"
    assert keys_item(["X: is missing"], sources=False).state == "failed"


async def test_without_a_source_there_are_no_secrets_that_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environ(tmp_path).items():
        if "SOURCES" not in name:
            monkeypatch.setenv(name, value)
    async with driving(tmp_path, looking=True) as driver:
        found = (
            await check_now(replace(with_sources(driver.context, {}), settings=load_settings()))
        )[0]
    assert (found.item, found.state) == ("api_keys", "not_run_yet")
    assert "run `tallyhook connect`" in found.sentence


def test_what_nobody_here_can_sign_is_left_to_a_person() -> None:
    item = webhook_item([GOOD, Trial(source="other", wrong=None)], public_url="https://x")
    assert (item.state, "other" in item.sentence) == ("to_sign", True)
    for untried in (webhook_item([GOOD], public_url=""), webhook_item([], public_url="https://x")):
        assert untried.state == "not_run_yet"
        assert "the checks" in untried.sentence
    assert separation_item("live", unmarked=["other"]).state == "to_sign"


def test_the_page_is_whole_and_harmless() -> None:
    said = '<script>alert("x")</script> & more'
    row: dict[str, Any] = {**CHECKED[0].document(), "by": said, "at": "2026", "note": said}
    page = page_of([row], environment="live", at=T)
    parser = _Tags()
    parser.feed(page)
    assert "script" not in parser.tags
    assert "Complete." in page
    assert set(STATED) <= set(ITEMS)


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)


async def test_what_could_not_be_checked_is_remembered_as_that(driver: Driver) -> None:
    none = webhook_item([GOOD], public_url="")
    await checklist(driver.context, [keys_item(["X: is missing"]), none, CHECKED[2]])
    last = {each.item: each for each in await last_checklist(driver.context)}
    assert [last[each.item].state for each in CHECKED] == [
        *("failed", "not_run_yet", "passed", "passed", "passed"),
    ]
    assert "could not be checked" in last["webhook_verification"].sentence
