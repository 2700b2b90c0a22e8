"""A scenario told from a real order, read and checked: what is to be played, and what must come.

A scenario file comes from somebody else: everything in it is checked before anything is sent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from app.core.errors import ConfigurationError, UsageError
from app.evidence.pseudonyms import FORMAT, Piece, dated
from app.providers.profile import read_profile
from app.providers.source import Source
from reconcile.instants import Instant, parse_instant
from reconcile.ledger.records import Record
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
