"""Play scripts of events, and compare the resulting ledgers."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit, urlunsplit

import httpx2

from app.core.clock import Clock
from app.core.errors import ConfigurationError, UnreachableError, UsageError
from app.evidence.tell_scenario import FORMAT, Piece, dated
from app.providers.profile import read_profile
from app.providers.source import Source
from app.sandbox.webhook_sender import USER_AGENT, Sleep
from reconcile.instants import SECOND, Duration, Instant, format_instant, parse_instant
from reconcile.ledger.records import Record
from reconcile.money import major_text, to_json
from reconcile.transparency.evidence import record_of

MAX_FILE_BYTES: Final = 64 * 1024 * 1024
"""Maximum size of a script in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptStep:
    """Step of a script: a provider's event or an API record."""

    at: Instant
    source: str = ""
    event_id: str = ""
    verdict: str = ""
    pieces: tuple[Piece, ...] = ()
    record: Record | None = None

    def body(self, moved: Callable[[Instant], Instant]) -> bytes:
        """Return the event's body."""
        return "".join(
            each
            if isinstance(each, str)
            else dated(moved(parse_instant(str(each["at"]))), str(each["as"]))
            for each in self.pieces
        ).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """Events, records and signers for one order."""

    order: str
    steps: tuple[ScriptStep, ...]
    signers: Mapping[str, Source]
    policy: Mapping[str, int | None]
    expected: Mapping[str, Any]
    ends_at: Instant


def read_script(path: Path, *, secret: str) -> Script:
    """Read a script from a file.

    The secret signs the events. Raise UsageError for an invalid script, and ConfigurationError if a
    source cannot be signed for.
    """
    try:
        with path.open("rb") as file:
            text = file.read(MAX_FILE_BYTES + 1)
        if len(text) > MAX_FILE_BYTES:
            raise UsageError(f"{path} is larger than {MAX_FILE_BYTES:,} bytes")
        document = json.loads(text)
        if document["format"] != FORMAT:
            raise ValueError("another format")
        steps = tuple(map(_step, document["steps"]))
        signers = {each["source"]: _signer(each, secret) for each in document["sources"]}
        if not steps or any(step.record is None and step.source not in signers for step in steps):
            raise ValueError("the scenario has no steps, or a source without a profile")
        expected = document["expected"]
        return Script(
            order=str(document["order"]),
            steps=tuple(sorted(steps, key=lambda step: step.at)),
            signers=signers,
            policy=dict(document["policy"]),
            expected={name: expected[name] for name in EXPECTED},
            ends_at=parse_instant(expected["at"]),
        )
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except (AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not a Tallyhook scenario: {type(error).__name__}") from None


EXPECTED: Final = ("outcome", "fulfillable", "findings", "explanation")


def _step(step: Mapping[str, Any]) -> ScriptStep:
    at = parse_instant(step["at"])
    if "record" in step:
        return ScriptStep(at=at, record=record_of(step["record"]))
    found = ScriptStep(
        at=at,
        source=str(step["source"]),
        event_id=str(step["event_id"]),
        verdict=str(step["verdict"]),
        pieces=tuple(step["body"]),
    )
    found.body(lambda moment: moment)  # raises if it cannot be written
    return found


def _signer(each: Mapping[str, Any], secret: str) -> Source:
    profile = read_profile(Path(f"{each['profile']}.toml"), str(each["text"]))
    try:
        return Source(name=str(each["source"]), profile=profile, secrets=[secret], strict=False)
    except ConfigurationError:
        raise ConfigurationError(
            [f"profile {profile.name} signs with keys of another kind than the sandbox's secret"]
        ) from None


_PASSING: Final = (
    re.compile(r"\brec_[0-9a-z]+"),
    re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z"),
    re.compile(r"\b\d+ (?:d|h|min|s|ms)\b"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Receiver to which a script is played. Without a token, the shop's records are left out."""

    client: httpx2.AsyncClient
    webhook_url: str
    clock: Clock
    sleep: Sleep
    speed: float = 1.0
    token: str | None = field(default=None, repr=False)

    def target(self, source: str, *, several: bool) -> str:
        """Return the address for a source's events."""
        base = self.webhook_url.rpartition("/")[0]
        return f"{base}/{quote(source)}" if several else self.webhook_url

    def order(self, reference: str) -> str:
        """Return the API address of an order."""
        split = urlsplit(self.webhook_url)
        path = f"/api/v1/orders/{quote(reference, safe='')}"
        return urlunsplit((split.scheme, split.netloc, path, "", ""))


async def play_script(script: Script, stage: Stage, say: Callable[[str], None]) -> list[str]:
    """Play a script to its end. Return the differences from the expected ledgers.

    Raise UnreachableError without a receiver, and UsageError for a wrong token.
    """
    begin, first = stage.clock.now(), script.steps[0].at

    def moved(moment: Instant) -> Instant:
        return begin + Duration(round((moment - first) / stage.speed))

    async def until(moment: Instant) -> None:
        wait = moment - stage.clock.now()
        if wait > 0:
            await stage.sleep(wait / SECOND)

    player = _Player(script, stage, moved)
    for number, step in enumerate(script.steps, 1):
        await until(moved(step.at))
        done = await (player.tell(step) if step.record is not None else player.send(step))
        say(f"{number}/{len(script.steps)} {done}")
    if stage.token is None:
        say("No --token was given: the outcome is not compared, and the shop's calls are left out.")
    else:
        await until(moved(script.ends_at))
        await player.compare()
    return player.differences


class _Player:
    def __init__(self, script: Script, stage: Stage, moved: Callable[[Instant], Instant]) -> None:
        self._script, self._stage, self._moved = script, stage, moved
        self._price: dict[str, Any] = {}
        self.differences: list[str] = []

    async def send(self, step: ScriptStep) -> str:
        url = self._stage.target(step.source, several=len(self._script.signers) > 1)
        signed = self._script.signers[step.source].signed(
            step.body(self._moved), event_id=step.event_id, now=self._stage.clock.now(), url=url
        )
        headers = [("content-type", "application/json"), ("user-agent", USER_AGENT)]
        answer = await self._ask(
            "POST", signed.url or url, content=signed.body, headers=headers + signed.headers
        )
        # An accepted event is read later, and a profile may have another answer for its provider.
        taken = step.verdict if 200 <= answer.status_code < 300 else f"status {answer.status_code}"
        stated = _json(answer).get("verdict", "accepted")
        verdict = taken if stated == "accepted" else stated
        if verdict != step.verdict:
            self.differences.append(
                f"{step.event_id}: the verdict is {verdict}, but it was "
                f"{step.verdict} in the recording"
            )
        return f"event {step.event_id}: {verdict}"

    async def tell(self, step: ScriptStep) -> str:
        record, token = step.record, self._stage.token
        assert record is not None
        word = record.kind.removeprefix("order_")
        stated: dict[str, Any] = {f"{word}_at": format_instant(self._moved(record.at))}
        if record.money is not None:
            self._price = {**to_json(record.money), **({"free": True} if record.free else {})}
            tenders = [(each.kind, major_text(each.money)) for each in record.tenders]
            stated = stated if record.dated else {}
            stated["tenders"] = [{"kind": kind, "amount": amount} for kind, amount in tenders]
        elif word.startswith("not_"):
            stated = {f"{word.removeprefix('not_')}_at": None}
        if token is None or not self._price:
            return f"the shop: {word}, left out"
        answer = await self._ask(
            "PUT",
            self._stage.order(self._script.order),
            json={**self._price, **stated},
            headers=[("authorization", f"Bearer {token}")],
        )
        if answer.status_code != 200:
            raise UsageError(f"the API refused the shop's call with status {answer.status_code}")
        return f"the shop: {word}"

    async def compare(self) -> None:
        headers = [("authorization", f"Bearer {self._stage.token}")]
        answer = await self._ask("GET", self._stage.order(self._script.order), headers=headers)
        document = _json(answer)
        found = {name: document.get(name) for name in EXPECTED}
        found["findings"] = [each["code"] for each in document.get("findings", ())]
        for name, wanted in self._script.expected.items():
            if comparable(found[name]) != comparable(wanted):
                self.differences.append(f"{name}: {found[name]}, but it was {wanted} then")

    async def _ask(self, method: str, url: str, **words: Any) -> httpx2.Response:
        try:
            return await self._stage.client.request(method, url, **words)
        except httpx2.HTTPError as error:
            where = urlsplit(url).netloc
            raise UnreachableError(f"{where} does not answer: {type(error).__name__}") from None


def comparable(value: Any) -> Any:
    """Return a value without its record ids, moments and durations, which differ between runs."""
    if isinstance(value, str):
        for pattern in _PASSING:
            value = pattern.sub("…", value)
        return value
    return [comparable(each) for each in value] if isinstance(value, list) else value


def _json(answer: httpx2.Response) -> dict[str, Any]:
    try:
        document = answer.json()
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
