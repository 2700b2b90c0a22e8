"""Texts that people and programs give, changed at random, are taken or refused with a sentence.

Whatever else comes out would be shown as a fault of Tallyhook's. `FUZZ_SEED=2` tries others.
"""

import json
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC
from functools import cache, partial
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, Final

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from app.api.request_body import json_object, reported_order
from app.config.load import load_settings
from app.config.settings import Settings
from app.core.errors import TallyhookError
from app.core.problems import ApiProblem
from app.core.schedule import schedule_entries
from app.core.zones import typed_deadline, typed_instant
from app.evidence.keys import (
    EvidenceKey,
    NotSigned,
    minisign_signature,
    public_key_text,
    read_public_key,
    trusted_comment,
)
from app.evidence.seal import Checkpoint, NotACheckpoint, read_checkpoint, signed_checkpoint
from app.evidence.tell_scenario import FORMAT
from app.finance.files import presets
from app.finance.files.books import BookForm
from app.finance.files.mapping import read_mapping
from app.finance.rule_file import read_rules
from app.finance.rule_text import SETTINGS
from app.orders.customers import checked_reason
from app.orders.sought import understood
from app.providers.check_signatures import NotARequest, read_line
from app.providers.profile import profile_text, read_profile, shipped_profiles
from app.sandbox.playing import read_script
from app.sandbox.settings import SANDBOX_SECRET
from reconcile.instants import Instant
from tests.finance.files.reading import bank, book
from tests.finance.files.test_bank_files import BAI2, CAMT, MT940, MT942, OFX, OFX_2

ROOT: Final = Path(__file__).resolve().parents[2]
SEED: Final = os.environ.get("FUZZ_SEED", "1")
RUNS = 3_000 if os.environ.get("TALLYHOOK_LONG") else 12
"""Texts of each kind."""

PIECES: Final = (
    "1e99999999999999999999", "9" * 5_000, "-0", "NaN", "[" * 2_000, "{" * 300, "'" * 3, '"""',
    "\0", "\ud800", "\u202e", "\ufeff", "\x85", "é\u0301", "=", "\n", "\r\n", "\t", ",", ";", "|",
    "0000-00-00", "9999-12-31T23:59:60Z", "2026-02-30", "+99:99", "1_0", "0x1", "inf", "true",
    "[a]\na = 1\n", "a.b.c = 1\n", "\\u{1F600}", "\\ud83d", "%s%n", "${x}", "../..", "٣", "½", "１",
    "KES", "XTS", "1.000,00", "* * * * *", "<!--", "<![CDATA[", "&#0;", "&a;", ":61:", "88,",
    "\u2028",
)  # fmt: skip


def changed(text: str, random: Random) -> str:
    """Insert, replace, cut and repeat."""
    for _ in range(random.randint(1, 4)):
        at, to = sorted(random.randrange(len(text) + 1) for _ in range(2))
        to = min(to, at + random.choice((0, 1, 9, 400)))
        piece = random.choice((random.choice(PIECES), chr(random.randrange(0x3000)), text[at:to]))
        text = text[:at] + piece + text[random.choice((at, to)) :]
        if random.random() < 0.1:
            text = text[:at] or text
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Texts that are taken, and what reads them. refuses: errors with a sentence."""

    texts: Callable[[], tuple[str, ...]]
    reads: Callable[[str, Path], Any]
    refuses: tuple[type[Exception], ...] = (TallyhookError,)


def _settings(text: str, folder: Path) -> None:
    path = folder / "settings.env"
    path.write_text(text, errors="surrogateescape" if "\ud800" not in text else "replace")
    path.chmod(0o600)
    load_settings({"TALLYHOOK_CONFIG": str(path)})


def _environment(text: str, _: Path) -> None:
    pairs = (line.partition("=") for line in text.split("\n"))
    load_settings({name.strip("# "): value for name, _, value in pairs})


@cache
def _example() -> tuple[str, ...]:
    lines = (ROOT / "config.example.env").read_text().split("\n")
    given = [line for line in lines if line.lstrip("#").startswith("TALLYHOOK_")]
    return tuple("\n".join(given[at : at + 12]) for at in range(0, len(given), 6))


def _all_presets() -> tuple[str, ...]:
    return tuple(map(presets.preset_text, presets.shipped_presets()))


def _script(text: str, folder: Path) -> None:
    path = folder / "script.json"
    path.write_text(text, errors="surrogatepass")
    read_script(path, secret=SANDBOX_SECRET)


def _scripts() -> tuple[str, ...]:
    at = "2026-11-20T10:00:00Z"
    body = ['{"at": "', {"at": at, "as": "rfc3339"}, '"}']
    record = {
        "record_id": "rec_1", "order": "ORD-1", "kind": "order_placed", "recorded_at": at, "at": at,
        "author": "token:shop", "money": {"amount": "1500.00", "currency": "KES"},
    }  # fmt: skip
    step = {"at": at, "source": "shop", "event_id": "e1", "verdict": "stored", "body": body}
    script = {
        "format": FORMAT, "order": "ORD-1", "policy": {"payment_window": None},
        "sources": [
            {"source": "shop", "profile": "checkout", "text": profile_text("checkout")},
        ],
        "steps": [step, {"at": at, "record": record}],
        "expected": {"at": at, "outcome": "pending", "fulfillable": False, "findings": [],
                     "explanation": []},
    }  # fmt: skip
    return (json.dumps(script),)


KEY: Final = EvidenceKey(Ed25519PrivateKey.from_private_bytes(b"k" * 32))


@cache
def _notes() -> tuple[str, ...]:
    head = Checkpoint(origin="shop.example/log", size=7, head=b"h" * 32)
    return (
        signed_checkpoint(KEY, head),
        minisign_signature(KEY, b"", comment="signed"),
        public_key_text(KEY.public),
    )


def _note(text: str, _: Path) -> None:
    refused = list[Exception]()
    for reads in (read_checkpoint, read_public_key, partial(trusted_comment, KEY.public, b"")):
        try:
            reads(text)
        except (NotACheckpoint, NotSigned) as error:
            refused.append(error)
    if refused:
        raise refused[-1]


IN_KENYA: Final[Any] = SimpleNamespace(countries=("254",), settings=Settings())
"""Stand-in for the context, with what checking a reason reads."""

TARGETS: Final = {
    "settings": Target(texts=_example, reads=_settings),
    "environment": Target(texts=_example, reads=_environment),
    "mapping": Target(
        texts=_all_presets,
        reads=lambda text, _: read_mapping(text.encode(errors="replace"), BookForm.FIELDS),
    ),
    "preset": Target(
        texts=_all_presets,
        reads=lambda text, _: presets.read_preset(
            "a", text.encode(errors="replace").decode(), file="a.toml"
        ),
    ),
    "rules": Target(
        texts=lambda: ("\n".join(each.toml for each in SETTINGS),),
        reads=lambda text, _: read_rules(text),
    ),
    "profile": Target(
        texts=lambda: tuple(map(profile_text, shipped_profiles()[:20])),
        reads=lambda text, _: read_profile(Path("a.toml"), text),
    ),
    "schedule": Target(
        texts=lambda: (
            "nightly | 30 2 * * * | reconcile; month | 0 6 12 * * | reconcile month pdf folder",
        ),
        reads=lambda text, _: schedule_entries(text),
        refuses=(ValueError,),
    ),
    "search": Target(
        texts=lambda: (
            "KES 1,500.00 2026-11-20", "+254 700 000 001", "Wanjiku Kamau",
            "1.500,00 EUR 20/11/2026",
            "QKL12ABC34 Confirmed. Ksh1,500.00 paid to SHOP. on 20/11/26 at 1:05 PM.",
        ),
        reads=lambda text, _: understood(text, countries=("254",)),
    ),
    "reason": Target(
        texts=lambda: ("the customer called about ORD-1 on 2026-11-20", "0712 345 678"),
        reads=lambda text, _: checked_reason(IN_KENYA, text, phones=["254712345678"]),
    ),
    "moment": Target(
        texts=lambda: ("2026-11-20 10:00", "2026-11-20", "2026-11-20T10:00:00.123Z"),
        reads=lambda text, _: (typed_instant(text, UTC), typed_deadline(text, UTC)),
        refuses=(ValueError,),
    ),
    "bank files": Target(
        texts=lambda: (CAMT, MT940, MT942, OFX, OFX_2, BAI2),
        reads=lambda text, folder: bank(text.encode(errors="replace"), folder=folder),
    ),
    "tables": Target(
        texts=lambda: (
            "reference,amount,currency,placed_at,status\nA,1.00,KES,2026-11-01,paid\n",
            '{"reference": "A", "amount": 1.5, "currency": "KES"}\n' * 3,
            "reference;amount;currency\n\"A\";1500,00;KES\n",
        ),
        reads=lambda text, folder: book(text.encode(errors="replace"), folder=folder),
    ),
    "scripts": Target(texts=_scripts, reads=_script),
    "notes": Target(texts=_notes, reads=_note, refuses=(NotACheckpoint, NotSigned)),
    "signature lines": Target(
        texts=lambda: (
            '{"name": "a", "profile": "stripe", "secret": ["s"], "headers": [["a", "b"]], '
            '"body": "{}", "method": "POST", "url": "https://a.example", "now": 1614265330, '
            '"tolerance": 300}',
            '{"secret": {"key": "s"}, "headers": {"a": "b"}, "body_b64": "e30=", "now": 1.5}',
        ),
        reads=lambda text, _: read_line(
            text.encode(errors="replace"), profile="stripe", now=Instant(0)
        ),
        refuses=(NotARequest,),
    ),
    "json bodies": Target(
        texts=lambda: (
            '{"amount": "1500.00", "currency": "KES", "placed_at": "2026-11-20T10:00:00Z", '
            '"references": [{"source": "shop", "session": "cs_1", "amount": "1", '
            '"currency": "KES"}], '
            '"tenders": [{"kind": "gift_card", "amount": "1.00"}], "free": false}',
        ),
        reads=lambda text, _: reported_order(
            "ORD-1", json_object(text.encode(errors="replace")), sources=("shop",)
        ),
        refuses=(ApiProblem,),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TARGETS)
def test_a_changed_text_is_taken_or_refused_with_a_sentence(name: str) -> None:
    target, failed = TARGETS[name], dict[str, str]()
    texts = target.texts()
    with tempfile.TemporaryDirectory() as folder:
        for run in range(RUNS):
            random = Random(f"{SEED} {name} {run}")
            text = changed(random.choice(texts), random)
            try:
                target.reads(text, Path(folder))
            except target.refuses as error:
                if not str(error).strip():
                    failed["no sentence"] = text[-300:]
            except Exception as error:
                failed[f"{type(error).__name__} {error}"[:200]] = text[-300:]
    assert not failed
