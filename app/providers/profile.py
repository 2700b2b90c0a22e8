"""Read profile files, and report all mistakes of a file."""

import dataclasses
from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache, lru_cache
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Final, NamedTuple, get_args, get_type_hints

from pydantic import Field, PlainValidator, create_model

from app.core.errors import ConfigurationError, NotFoundError
from app.core.toml_file import EMPTY, TomlMistake, TomlTable, Values, read_toml
from app.providers.rules import Free
from app.providers.rules_together import check_together
from app.providers.sections import Profile

__all__ = ["SHIPPED", "Profile", "load_profile", "profile_text", "read_profile", "shipped_profiles"]

SHIPPED: Final = Path(__file__).parent / "profiles"

MAX_FILE_BYTES: Final = 32 * 1024
"""Maximum bytes of a profile file; TOML parsing takes the square of the size."""


def shipped_profiles() -> list[str]:
    """Return the names of the shipped profiles, sorted."""
    return sorted(path.stem for path in SHIPPED.glob("*.toml"))


def load_profile(name_or_path: str) -> Profile:
    """Load a profile by its shipped name, or by a path with `/` or `.toml`.

    Raise one ConfigurationError with every mistake.
    """
    path = _path_of(name_or_path)
    return read_profile(path, _text(path))


KEPT: Final = 128
"""Maximum number of cached profiles."""


@lru_cache(maxsize=KEPT)
def read_profile(path: Path, text: str) -> Profile:
    """Return the profile that a text describes.

    The profile's name comes from `path`. Raise one ConfigurationError with every mistake.
    """
    values = read_toml(
        text,
        _table_of(Profile),
        name=str(path),
        most_bytes=MAX_FILE_BYTES,
        together=lambda read: [*_read_free(Profile, read, ""), *check_together(read)],
    )
    profile: Profile = _build(Profile, {**values, "name": path.stem})
    return profile


def profile_text(name_or_path: str) -> str:
    """Return the text of a profile's file. Raise ConfigurationError if unreadable."""
    return _text(_path_of(name_or_path))


def _path_of(name_or_path: str) -> Path:
    if "/" in name_or_path or name_or_path.endswith(".toml"):
        return Path(name_or_path)
    known = shipped_profiles()
    if name_or_path in known:
        return SHIPPED / f"{name_or_path}.toml"
    if Path(name_or_path).is_file():
        meant = f"write ./{name_or_path} for the file"
        raise ConfigurationError([f"there is no shipped profile {name_or_path!r}; {meant}"])
    near = get_close_matches(name_or_path.lower(), known, n=1, cutoff=0.7)
    nearest = f"; the nearest one is {near[0]}" if near else ""
    raise ConfigurationError(
        [
            f"there is no profile {name_or_path!r}{nearest}: name one of {', '.join(known)}, or a "
            "path to a file"
        ]
    )


def _text(path: Path) -> str:
    try:
        if path.stat().st_size <= MAX_FILE_BYTES:
            return path.read_text(encoding="utf-8-sig")
        problem = f"is larger than {MAX_FILE_BYTES} bytes"
    except OSError as error:
        problem = f"cannot be read: {error.strerror or 'it is not a file'}"
    except UnicodeDecodeError:
        problem = "is not UTF-8"
    except ValueError:
        problem = "cannot be read: it is not a file"
    raise ConfigurationError([f"{path}: {problem}"])


class _Key(NamedTuple):
    """Attribute of a profile or of one of its sections."""

    section: Any
    """Dataclass of the section. None for a single key."""
    optional: bool
    """True if the value may be None."""
    rule: Any
    """Check of the value. None for `Profile.name`."""


@cache
def _keys_of(kind: Any) -> dict[str, _Key]:
    keys = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        kinds = (hint, *get_args(hint))
        section = next((each for each in kinds if dataclasses.is_dataclass(each)), None)
        rule = next(iter(getattr(hint, "__metadata__", ())), None)
        keys[name] = _Key(section, NoneType in kinds, rule)
    return keys


@cache
def _table_of(kind: Any) -> type[TomlTable]:
    given: dict[str, Any] = {}
    defaults = {each.name: each.default for each in dataclasses.fields(kind)}
    for name, key in _keys_of(kind).items():
        if key.section is not None:
            table = _table_of(key.section)
            given[name] = (table | None, None) if key.optional else (table, EMPTY)
        elif isinstance(key.rule, Free):
            given[name] = (dict[str, Any], EMPTY)
        elif key.rule is not None:
            # Defaults are not validated; only values from a file are.
            default = ... if defaults[name] is dataclasses.MISSING else defaults[name]
            reading = Annotated[Any, PlainValidator(key.rule)]
            given[name] = (reading, Field(default, validate_default=False))
    return create_model(kind.__name__, __base__=TomlTable, **given)


def _read_free(kind: Any, values: Values, prefix: str) -> Iterator[TomlMistake]:
    for name, key in _keys_of(kind).items():
        if key.section is not None and values.get(name):
            yield from _read_free(key.section, values[name], f"{prefix}{name}.")
        if not isinstance(key.rule, Free) or name not in values:
            continue
        read, mistakes = [], []
        for word, value in values.pop(name).items():
            try:
                read.append((word, key.rule.read((word, value))))
            except ValueError as error:
                mistakes.append(TomlMistake(f'{prefix}{name}."{word}"', str(error)))
        if not mistakes:
            values[name] = tuple(read)
        yield from mistakes


def _build(kind: Any, values: Values) -> Any:
    sections = {name: key.section for name, key in _keys_of(kind).items()}
    return kind(
        **{
            name: _build(sections[name], value) if sections[name] and value is not None else value
            for name, value in values.items()
        }
    )


def list_profiles() -> list[dict[str, Any]]:
    """Return a summary of every shipped profile: signature, when events count, and sources."""
    return [
        {
            "profile": profile.name,
            "mac": profile.signature.mac,
            "key": profile.signature.key,
            "where": profile.signature.where,
            "events": what_events_are_worth(profile),
            "rests_on": profile.rests_on.mark if profile.rests_on else None,
        }
        for profile in map(load_profile, shipped_profiles())
    ]


def what_events_are_worth(profile: Profile) -> str:
    """Return when a profile's events count.

    - `signed`: as soon as they are verified
    - `fetched back`: only after the provider was asked
    - `unconfirmed`: never by themselves, because all merchants share the key
    - `none`: never, because the profile only verifies signatures
    """
    if profile.verifies_only:
        return "none"
    if profile.account.undocumented:
        return "unconfirmed"
    return "fetched back" if profile.confirm else "signed"


def show_profile(name_or_path: str) -> dict[str, Any]:
    """Return everything that a profile states, with its defaults.

    Raise NotFoundError for an unknown profile, and ConfigurationError with every mistake.
    """
    _must_exist(name_or_path)
    profile = load_profile(name_or_path)
    shown = dataclasses.asdict(profile)
    for section in (shown, *(each for each in shown.values() if type(each) is dict)):
        for key, value in section.items():
            if type(value) is tuple and value and all(type(each) is tuple for each in value):
                section[key] = dict(value)  # free keys
    summary = {"profile": shown.pop("name"), "events": what_events_are_worth(profile)}
    must = what_the_shop_must_name(profile)
    return summary | ({} if must is None else {"the_shop_must": must}) | shown


def what_the_shop_must_name(profile: Profile) -> str | None:
    """Return an instruction on payment references, if needed."""
    answers = profile.fetch_back.order if profile.fetch_back else ()
    if profile.verifies_only or profile.event.order or answers:
        return None
    kinds = [kind for kind in ("session", "payment") if getattr(profile.event, kind)]
    if not kinds:
        return (
            "note that events name no order, session or payment, so none can be matched to an order"
        )
    unstated = profile.fetch_back is not None and not profile.fetch_back.amount
    amount = {"session": ', "amount": …, "currency": …'} if unstated else {}
    return (
        f"name the {' or the '.join(kinds)} of each order, because no event names the order: use "
        "PUT /api/v1/orders/REF with "
        + " or ".join(
            f'{{"references": [{{"source": …, "{kind}": …{amount.get(kind, "")}}}]}}'
            for kind in kinds
        )
        + ", or those columns in an order book; sessions that are opened here are known"
        + ("; state the amount too, because the provider's answer has none" if unstated else "")
    )


def profile_rows(shown: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield a shown profile's entries as dotted keys with values."""
    for key, value in shown.items():
        if type(value) is dict:
            yield from profile_rows(value, f"{prefix}{key}.")
        elif value not in (None, ()):
            yield f"{prefix}{key}", list(value) if type(value) is tuple else value


def check_profile(name_or_path: str) -> list[str]:
    """Return every mistake of a profile file. Raise NotFoundError for a missing file."""
    _must_exist(name_or_path)
    try:
        load_profile(name_or_path)
    except ConfigurationError as error:
        return list(error.problems)
    return []


def _must_exist(name_or_path: str) -> None:
    if name_or_path not in shipped_profiles() and not Path(name_or_path).exists():
        raise NotFoundError(
            f"there is no file {name_or_path!r}, and no shipped profile of that name; `tallyhook "
            "profiles list` shows those that are shipped"
        )
