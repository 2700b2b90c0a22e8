"""Which key signs for this log: made with the log, refused where it is another's, replaced by word.

The log remembers every public key that has signed for it. A key that is not the newest of them
signs nothing: several receivers of one database share one key.
"""

from __future__ import annotations

from pathlib import Path

from app.access.operators import note_deed, permitted
from app.core.errors import ConfigurationError
from app.core.ids import new_id, new_secret
from app.evidence.keys import VARIABLE, EvidenceKey, PublicKey, load_key, write_key
from app.evidence.minisign import public_key_line
from app.evidence.seal import Signer, verifier_key
from app.receiving.context import AppContext
from app.sealing.log_store import Identity, add_key, begin_log, identity
from reconcile.instants import Instant


async def open_signer(context: AppContext, path: Path) -> Signer:
    """The key of the file, which is made where the log has none yet; begins the log with it.

    Raises ConfigurationError where the log was begun with another key, or its key is not there.
    """
    known = await known_log(context)
    key = load_key(path)
    if known is None:
        known, key = await _begun(context, path, key)
    if key is None:
        raise ConfigurationError([f"{VARIABLE}: {_missing(path, known)}"])
    if key.public.raw.hex() != known.keys[-1]:
        raise ConfigurationError(
            [
                f"{VARIABLE}: {path} holds the key {key.public.fingerprint}, and this log is "
                f"signed with {fingerprint_of(known.keys[-1])}; use that one's file: all who "
                "receive for one database share it"
            ]
        )
    return Signer(origin=known.origin, key=key)


async def known_log(context: AppContext) -> Identity | None:
    """Which log the database holds; None before it has begun."""
    async with context.store.reading() as connection:
        return await identity(connection)


async def _begun(
    context: AppContext, path: Path, key: EvidenceKey | None
) -> tuple[Identity, EvidenceKey | None]:
    key = key or made_key(path)
    now = context.clock.now()
    origin = f"tallyhook.{context.store.environment}/{new_id('', now)[-12:]}"
    async with context.store.writing() as connection:
        await begin_log(connection, origin=origin, public=key.public.raw.hex(), now=now)
        known = await identity(connection)  # another process may have been first
    assert known is not None
    return known, key


def made_key(path: Path) -> EvidenceKey:
    """A new key in a file of its own, or the one that another process has just put there."""
    try:
        return write_key(path, secret=new_secret())
    except FileExistsError:
        key = load_key(path)
        assert key is not None
        return key


def _missing(path: Path, known: Identity) -> str:
    return (
        f"there is no key at {path}, and this log is signed with {fingerprint_of(known.keys[-1])}; "
        "put its file back, or go on with a new key by `tallyhook log key --rotate`"
    )


def fingerprint_of(public: str) -> str:
    """The fingerprint of a public key in hex."""
    return PublicKey(bytes.fromhex(public)).fingerprint


async def rotate_key(context: AppContext, path: Path, *, by: str | None) -> EvidenceKey:
    """Sign with a new key from now on. The old one's file, if it is there, is kept beside it.

    Raises ConfigurationError where nothing is signed yet, or the files cannot be written, and
    UsageError for who may not.
    """
    async with context.store.reading() as connection:
        await permitted(connection, by=by, action="key_rotated")
    known = await known_log(context)
    if known is None:
        raise ConfigurationError([f"{VARIABLE}: the log has no key yet; `tallyhook log key`"])
    now = context.clock.now()
    if load_key(path) is not None:
        _set_aside(path, now)
    key = made_key(path)
    async with context.store.writing() as connection:
        who = await permitted(connection, by=by, action="key_rotated")
        await add_key(connection, public=key.public.raw.hex(), now=now)
        new = key.public.fingerprint
        await note_deed(connection, who, action="key_rotated", subject=new, at=now)
    return key


def _set_aside(path: Path, now: Instant) -> None:
    try:
        path.rename(path.with_name(f"{path.name}.until-{now}"))
    except OSError as error:
        raise ConfigurationError(
            [f"{VARIABLE}: the old key cannot be set aside ({error.strerror})"]
        ) from error


def shown_key(signer: Signer) -> dict[str, str]:
    """The public key in every form that somebody checks with."""
    public = signer.key.public
    return {
        "log": signer.origin,
        "fingerprint": public.fingerprint,
        "ed25519": public.raw.hex(),
        "note": verifier_key(signer.origin, public),
        "minisign": public_key_line(public),
    }
