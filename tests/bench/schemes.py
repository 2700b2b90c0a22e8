"""What each scheme costs on a genuine delivery of one kilobyte."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from app.providers.profile import load_profile
from app.providers.request import Incoming
from app.providers.schemes import SCHEMES
from app.providers.sections import Profile
from tests.bench.engine import AT, KILOBYTE, Cost, cost
from tests.bench.sizes import Sizes
from tests.providers.samples import source_of

DEAR = 20
"""How much rarer the schemes with two keys are tried: each costs up to a millisecond."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """One scheme's cost, and whether it judged rightly."""

    mac: str
    cost: Cost
    right: bool


def verify_each(sizes: Sizes) -> Iterator[Verified]:
    """Every scheme of the engine that signs content."""
    body = b'{"note": "%b"}' % (b"x" * (KILOBYTE - len(b'{"note": ""}')))
    for mac, scheme in SCHEMES.items():
        if not scheme.covers:
            continue
        source = source_of(_profile(mac))
        signed = source.sign(body, event_id="e", now=AT)
        headers = [(name.encode(), value.encode()) for name, value in signed]
        genuine = Incoming(headers, body)
        right = source.verify(genuine, now=AT) is None
        right &= source.verify(Incoming(headers, body + b" "), now=AT) is not None
        calls = sizes.folds // (DEAR if scheme.asymmetric else 1)
        yield Verified(
            mac=mac,
            right=right,
            cost=cost(partial(source.verify, genuine, now=AT), calls=calls, repeats=sizes.repeats),
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
