"""Store a note about a listening service, which `doctor` reads.

Each setting is a keyed digest, so that the database reveals no secret.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import SecretStr

from app.config.config_file import PREFIX
from app.config.settings import SECTIONS, Settings
from app.config.values import DatedSecret
from app.context.context import AppContext
from app.core.phone_key import PhoneKey
from app.receiving.inbox_store import fact, put_fact

ANSWERED_BY: Final = "Tallyhook-Service"
"""Header of `/readyz` that contains the random name of the service that answered."""

_FACT: Final = "service"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceNote:
    """Note about the service that was started last."""

    address: str
    """Scheme, host and port."""
    name: str
    """Random name."""
    settings: Mapping[str, str]
    """Digests of the settings that differ from their defaults, by variable."""


async def note_service(context: AppContext, *, address: str, name: str) -> None:
    """Store that this process is the service that was started last.

    Raise StoreUnavailable if the database cannot be written.
    """
    assert context.phone_key is not None, "the serving process has created one"
    digests = settings_digests(context.settings, context.phone_key)
    note = ServiceNote(address=address, name=name, settings=digests)
    await context.database.writer.commit(put_fact, _FACT, json.dumps(asdict(note)))


async def noted_service(context: AppContext) -> ServiceNote | None:
    """Return the note about the last started service."""
    found = await context.database.on_snapshot(fact, _FACT)
    return None if found is None else ServiceNote(**json.loads(found))


def changed_settings(note: ServiceNote, settings: Settings, key: PhoneKey) -> list[str]:
    """Return the variables that have changed since the start."""
    now = settings_digests(settings, key)
    names = sorted({*now, *note.settings})
    return [name for name in names if now.get(name) != note.settings.get(name)]


def settings_digests(settings: Settings, key: PhoneKey) -> dict[str, str]:
    """Return a digest of each changed setting, by variable."""
    return {
        name: key.digest(f"{name}={json.dumps(value, sort_keys=True, default=_plain)}").hex()
        for name, value in _given(settings)
    }


def _given(settings: Settings) -> Iterator[tuple[str, Any]]:
    texts = settings.profile_files
    for field, value in settings.model_dump(exclude_defaults=True).items():
        if field == "sources":
            for name, fields in value.items():
                for part, each in {"profile": "checkout", **fields}.items():
                    content = [each, texts.get(each)] if part == "profile" else each
                    yield f"{PREFIX}SOURCES__{name}__{part}".upper(), content
        elif field in SECTIONS:
            for part, each in value.items():
                yield f"{PREFIX}{field}__{part}".upper(), each
        else:
            yield f"{PREFIX}{field}".upper(), value


def _plain(value: Any) -> Any:
    if isinstance(value, DatedSecret):
        return [value.get_secret_value(), value.until]
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    return str(value) if isinstance(value, Path) else sorted(value)
