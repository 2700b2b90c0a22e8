"""One fold by the pure engine, and one delivery by the provider engine, in this process."""

import hashlib
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter

from app.core.ids import new_secret
from app.core.process import look_seldom, pass_over_start
from app.providers.profile import load_profile
from app.providers.request import Incoming
from app.providers.schemes import SCHEMES
from app.providers.sections import Profile
from app.providers.source import Source
from reconcile.instants import MINUTE, SECOND, Instant
from reconcile.ledger.events import Delivery
from reconcile.ledger.fold import fold
from reconcile.ledger.history import History
from reconcile.ledger.ledger import Ledger
from reconcile.ledger.policy import Policy
from tests.bench.orders import Message, Stretch
from tests.bench.report import Figure
from tests.bench.requests import secret_text, source
from tests.bench.sizes import BARS, Sizes
from tests.providers.samples import source_of

AT = Instant(1_795_168_800_000_000)
"""2026-11-20T10:00:00Z"""
POLICY = Policy()

WANTED = frozenset({"redelivered", "same_id_different_body"})
KILOBYTE = 1_024
DEAR = 20
"""How much rarer schemes with two keys are called: each call costs up to a millisecond."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """µs of one call: the best repeat and the median."""

    best: float
    median: float


def cost(call: Callable[[], object], *, calls: int, repeats: int) -> Cost:
    """Time `calls` calls, `repeats` times, with the garbage collector set as in every command."""
    look_seldom()
    pass_over_start()
    found = []
    for _ in range(repeats):
        started = perf_counter()
        for _ in range(calls):
            call()
        found.append((perf_counter() - started) / calls * 1e6)
    return Cost(best=min(found), median=statistics.median(found))


def new_source() -> Source:
    return source(secret_text(new_secret()))


def crooked_history() -> History:
    """Return seven deliveries: four events, one repeated, one with a second body, and one that
    contradicts the last."""
    first, declined, again, paid = next(
        Stretch(seed=1, first=0, count=1).messages(ended_at=AT - MINUTE)
    )
    other_body = Message(paid.event_id, paid.body.replace(b"}}}", b"}}} "))
    body = paid.body.replace(b"payment.succeeded", b"payment.declined")
    contrary = Message("evt_contrary", body.replace(paid.event_id.encode(), b"evt_contrary"))
    return history_of([first, declined, again, paid, paid, other_body, contrary])


def history_of(messages: Sequence[Message]) -> History:
    """Return the history of messages that arrived from `AT` on, one a second."""
    reader, deliveries = new_source(), []
    for place, message in enumerate(messages):
        digest = hashlib.sha256(message.body).hexdigest()
        event = reader.read(Incoming([], message.body), digest=digest).events[0]
        at = AT + place * SECOND
        deliveries.append(Delivery(delivery_id=f"dlv_{place}", received_at=at, event=event))
    return History(order=deliveries[0].event.order or "", deliveries=frozenset(deliveries))


def fold_once(history: History) -> Ledger:
    return fold(history, policy=POLICY, as_of=AT + MINUTE)


def found_in(ledger: Ledger) -> frozenset[str]:
    return frozenset(finding.code for finding in ledger.findings)


def signed_kilobyte() -> tuple[Source, Incoming]:
    """Return a source and a genuine delivery of 1,024 bytes, padded with an unknown member."""
    reader = new_source()
    message = next(Stretch(seed=1, first=0, count=1).messages(ended_at=AT))[3]
    start = b'{"note": "%b", ' % (b"x" * (KILOBYTE - len(message.body) - len(b'"note": "", ')))
    body = start + message.body[1:]
    headers = reader.sign(body, event_id=message.event_id, now=AT)
    return reader, Incoming([(name.encode(), value.encode()) for name, value in headers], body)


def folding(_: Path, sizes: Sizes) -> list[Figure]:
    history = crooked_history()
    found = cost(lambda: fold_once(history), calls=sizes.folds, repeats=sizes.repeats)
    return [fold_figure(found, found_in(fold_once(history)), len(history.deliveries))]


def fold_figure(found: Cost, codes: frozenset[str], deliveries: int) -> Figure:
    return Figure(
        name=f"fold of {deliveries} deliveries",
        value=found.best,
        unit="µs",
        bar=BARS["fold"],
        checks={"the ledger has the findings it must have": codes >= WANTED},
        details={"median µs": found.median, "findings": sorted(codes)},
    )


def reading(_: Path, sizes: Sizes) -> list[Figure]:
    """Measure verifying and reading one delivery, and verifying by each scheme."""
    reader, request = signed_kilobyte()
    calls: dict[str, Callable[[], object]] = {
        "verifying": lambda: reader.verify(request, now=AT),
        "reading": lambda: reader.read(request, digest=hashlib.sha256(request.body).hexdigest()),
    }
    checks = {"the delivery is genuine": reader.verify(request, now=AT) is None}
    figures = []
    for name, call in calls.items():
        found = cost(call, calls=sizes.folds, repeats=sizes.repeats)
        name, details = f"{name} {KILOBYTE:,} bytes", {"median µs": found.median}
        figures.append(
            Figure(name=name, value=found.best, unit="µs", checks=checks, details=details)
        )
    return [*figures, *scheme_figures(sizes)]


# --- signature schemes ----------------------------------------------------------------------------


def scheme_figures(sizes: Sizes) -> Iterator[Figure]:
    """Measure every scheme that signs content; keyed hashes have a bar."""
    body = b'{"note": "%b"}' % (b"x" * (KILOBYTE - len(b'{"note": ""}')))
    for mac, scheme in SCHEMES.items():
        if not scheme.covers:
            continue
        signer = source_of(_profile(mac))
        signed = signer.sign(body, event_id="e", now=AT)
        headers = [(name.encode(), value.encode()) for name, value in signed]
        genuine, changed = Incoming(headers, body), Incoming(headers, body + b" ")
        right = signer.verify(genuine, now=AT) is None
        right &= signer.verify(changed, now=AT) is not None
        calls = sizes.folds // (DEAR if scheme.asymmetric else 1)
        found = cost(partial(signer.verify, genuine, now=AT), calls=calls, repeats=sizes.repeats)
        yield Figure(
            name=f"verifying {mac}",
            value=found.best,
            unit="µs",
            bar=BARS["verifying"] if mac.startswith("hmac-") else None,
            checks={"the genuine passes and the changed does not": right},
            details={"median µs": found.median},
        )


def _profile(mac: str) -> Profile:
    content = "{ts}.{body}{secret}" if mac.startswith("hash-") else "{ts}.{body}"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scheme.toml"
        path.write_text(
            f'verifies_only = true\n[signature]\nmac = "{mac}"\nwhere = "header:x-signature"\n'
            f'signed = "{content}"\n[timestamp]\nwhere = "header:x-time"\n'
        )
        return load_profile(str(path))
