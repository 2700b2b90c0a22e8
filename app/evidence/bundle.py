"""Makes the bundle: files, manifest, signature, ZIP."""

from __future__ import annotations

from typing import Any, Final

from app.errors import UsageError
from app.evidence import minisign
from app.evidence.dossier import Dossier
from app.evidence.files import Files, entry, files_of
from app.evidence.keys import EvidenceKey
from app.evidence.verify import FORMAT, MANIFEST, MAX_BYTES, MAX_MEMBERS, SIGNATURE, pack
from reconcile.canonical import canonical_json
from reconcile.instants import format_instant

KEY: Final = "evidence-key.pub"
"""The key as `minisign -p` reads it."""

ABOUT: Final = "signature over the manifest of an evidence bundle"
"""The signature's first line, which no signature covers: always the same, so a change is seen."""

KEY_PEM: Final = "evidence-key.pem"
"""The same key as `openssl` reads it."""


def bundle_of(dossier: Dossier, key: EvidenceKey) -> bytes:
    """The bundle's bytes: the same for the same dossier and key.

    Raises UsageError where it would be larger than `verify` takes.
    """
    files = files_of(dossier, key=minisign.key_name(key.public))
    files.shown[KEY] = minisign.public_key_text(key.public).encode()
    files.shown[KEY_PEM] = key.public.pem().encode()
    manifest = canonical_json(manifest_of(dossier, files))
    members = files.shown | (files.personal if dossier.full else {})
    _check_bounds(members)
    comment = f"evidence of an order as of {format_instant(dossier.as_of)}"
    signature = minisign.signed(key, manifest, comment=comment, about=ABOUT)
    return pack({**members, MANIFEST: manifest, SIGNATURE: signature.encode()})


def manifest_of(dossier: Dossier, files: Files) -> dict[str, Any]:
    """What is signed: order, instant, and the digest of every file, left out or not."""
    shown = {name: entry(data) for name, data in files.shown.items()}
    personal = {name: entry(data) for name, data in files.personal.items()}
    return {
        "format": FORMAT,
        "order": dossier.history.order,
        "as_of": format_instant(dossier.as_of),
        "redacted": not dossier.full,
        "files": shown | (personal if dossier.full else {}),
        "left_out": {} if dossier.full else personal,
    }


def _check_bounds(members: dict[str, bytes]) -> None:
    size = sum(len(data) for data in members.values())
    if size > MAX_BYTES * 0.9 or len(members) > MAX_MEMBERS - 2:
        raise UsageError(
            f"this bundle would have {len(members):,} files and {size:,} bytes, more than can be "
            "checked in one piece: name an earlier --as-of, or leave personal data out"
        )
