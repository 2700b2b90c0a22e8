"""Plays a script: each act at its time, events signed afresh, then compares what was concluded.

Times keep their distances, divided by `speed`; dates within events move along. What a script states
of the shop goes to the API, which takes a token; without one only the events are played.
"""

from __future__ import annotations

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
from reconcile.money import Money, to_json
from reconcile.transparency.evidence import record_of

MAX_FILE_BYTES: Final = 64 * 1024 * 1024
"""Of a scenario: a thousand bodies of 64 KiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One step: an event that arrives, or (`record`) the shop's word by its API."""

    at: Instant
    source: str = ""
    event_id: str = ""
    verdict: str = ""
    pieces: tuple[Piece, ...] = ()
    record: Record | None = None

    def body(self, moved: Callable[[Instant], Instant]) -> bytes:
        """The event's bytes. `moved`: from a moment then to its moment now."""
        return "".join(
            each
            if isinstance(each, str)
            else dated(moved(parse_instant(str(each["at"]))), str(each["as"]))
            for each in self.pieces
        ).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """Acts in the order of time, how each source signs, and what is concluded by `ends_at`."""

    order: str
    acts: tuple[Act, ...]
    signers: Mapping[str, Source]
    policy: Mapping[str, int | None]
    expected: Mapping[str, Any]
    ends_at: Instant


def read_script(path: Path, *, secret: str) -> Script:
    """Raises UsageError for a file that is no scenario, ConfigurationError where a source's
    profile signs with what the sandbox does not have."""
    try:
        with path.open("rb") as file:
            text = file.read(MAX_FILE_BYTES + 1)
        if len(text) > MAX_FILE_BYTES:
            raise UsageError(f"{path} is larger than {MAX_FILE_BYTES:,} bytes")
        return _script(json.loads(text), secret)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except (AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"{path} is no scenario of Tallyhook's: {type(error).__name__}") from None


def _script(document: Mapping[str, Any], secret: str) -> Script:
    if document["format"] != FORMAT:
        raise ValueError("another format")
    acts = tuple(_act(each) for each in document["steps"])
    signers = {each["source"]: _signer(each, secret) for each in document["sources"]}
    if not acts or any(act.record is None and act.source not in signers for act in acts):
        raise ValueError("no steps, or a source without a profile")
    expected = document["expected"]
    return Script(
        order=str(document["order"]),
        acts=tuple(sorted(acts, key=lambda act: act.at)),
        signers=signers,
        policy=dict(document["policy"]),
        expected={name: expected[name] for name in EXPECTED},
        ends_at=parse_instant(expected["at"]),
    )


EXPECTED: Final = ("outcome", "fulfillable", "findings", "explanation")
"""What of the ledger a replay must come to."""


def _act(step: Mapping[str, Any]) -> Act:
    at = parse_instant(step["at"])
    if "record" in step:
        return Act(at=at, record=record_of(step["record"]))
    act = Act(
        at=at,
        source=str(step["source"]),
        event_id=str(step["event_id"]),
        verdict=str(step["verdict"]),
        pieces=tuple(step["body"]),
    )
    act.body(lambda moment: moment)  # whether it can be written
    return act


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
"""What differs from one life of an order to another: ids of records, moments, lengths of time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Where a script is played. `token`: of the API; None: nobody speaks for the shop."""

    client: httpx2.AsyncClient
    webhook_url: str
    clock: Clock
    sleep: Sleep
    speed: float = 1.0
    token: str | None = field(default=None, repr=False)

    def target(self, source: str, *, several: bool) -> str:
        """Where a source's events go: of several, each to the path of its name."""
        base = self.webhook_url.rpartition("/")[0]
        return f"{base}/{quote(source)}" if several else self.webhook_url

    def order(self, reference: str) -> str:
        """The order's address in the API of the same host."""
        split = urlsplit(self.webhook_url)
        path = f"/api/v1/orders/{quote(reference, safe='')}"
        return urlunsplit((split.scheme, split.netloc, path, "", ""))


async def play(script: Script, stage: Stage, say: Callable[[str], None]) -> list[str]:
    """Play it to its end. Returns what came otherwise than the script says; none: all as then.

    Raises UnreachableError where the receiver does not answer, UsageError for a wrong token.
    """
    begin, first = stage.clock.now(), script.acts[0].at

    def moved(moment: Instant) -> Instant:
        return begin + Duration(round((moment - first) / stage.speed))

    player = _Player(script, stage, moved)
    for number, act in enumerate(script.acts, 1):
        await _until(stage, moved(act.at))
        done = await (player.tell(act) if act.record is not None else player.send(act))
        say(f"{number}/{len(script.acts)} {done}")
    if stage.token is None:
        say("No --token: what was concluded is not compared, and the shop said nothing.")
    else:
        await _until(stage, moved(script.ends_at))
        await player.compare()
    return player.differences


async def _until(stage: Stage, moment: Instant) -> None:
    wait = moment - stage.clock.now()
    if wait > 0:
        await stage.sleep(wait / SECOND)


class _Player:
    def __init__(self, script: Script, stage: Stage, moved: Callable[[Instant], Instant]) -> None:
        self._script, self._stage, self._moved = script, stage, moved
        self._price: Money | None = None
        self.differences: list[str] = []

    async def send(self, act: Act) -> str:
        """One event, signed now."""
        url = self._stage.target(act.source, several=len(self._script.signers) > 1)
        signed = self._script.signers[act.source].signed(
            act.body(self._moved), event_id=act.event_id, now=self._stage.clock.now(), url=url
        )
        headers = [("content-type", "application/json"), ("user-agent", USER_AGENT)]
        answer = await self._ask(
            "POST", signed.url or url, content=signed.body, headers=headers + signed.headers
        )
        # What is accepted is read later; and a profile may say what its provider wants to hear.
        taken = act.verdict if 200 <= answer.status_code < 300 else f"status {answer.status_code}"
        stated = _json(answer).get("verdict", "accepted")
        verdict = taken if stated == "accepted" else stated
        if verdict != act.verdict:
            self.differences.append(f"{act.event_id}: {verdict}, and it was {act.verdict} then")
        return f"event {act.event_id}: {verdict}"

    async def tell(self, act: Act) -> str:
        """What the shop said of the order."""
        record, token = act.record, self._stage.token
        assert record is not None
        self._price = record.money or self._price
        word = record.kind.removeprefix("order_")
        if token is None or self._price is None:
            return f"the shop: {word}, left out"
        answer = await self._ask(
            "PUT",
            self._stage.order(self._script.order),
            json={**to_json(self._price), f"{word}_at": format_instant(self._moved(record.at))},
            headers=[("authorization", f"Bearer {token}")],
        )
        if answer.status_code != 200:
            raise UsageError(f"the API refused the shop's word with status {answer.status_code}")
        return f"the shop: {word}"

    async def compare(self) -> None:
        """What was concluded, with what was concluded then."""
        headers = [("authorization", f"Bearer {self._stage.token}")]
        answer = await self._ask("GET", self._stage.order(self._script.order), headers=headers)
        document = _json(answer)
        found = {name: document.get(name) for name in EXPECTED}
        found["findings"] = [each["code"] for each in document.get("findings", ())]
        for name, wanted in self._script.expected.items():
            if plain(found[name]) != plain(wanted):
                self.differences.append(f"{name}: {found[name]}, and it was {wanted} then")

    async def _ask(self, method: str, url: str, **words: Any) -> httpx2.Response:
        try:
            return await self._stage.client.request(method, url, **words)
        except httpx2.HTTPError as error:
            where = urlsplit(url).netloc
            raise UnreachableError(f"{where} does not answer: {type(error).__name__}") from None


def plain(value: Any) -> Any:
    """Without what differs from one life of an order to another."""
    if isinstance(value, str):
        for pattern in _PASSING:
            value = pattern.sub("…", value)
        return value
    return [plain(each) for each in value] if isinstance(value, list) else value


def _json(answer: httpx2.Response) -> dict[str, Any]:
    try:
        document = answer.json()
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
