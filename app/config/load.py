"""Reads the settings once, and reports every mistake at once: the variable, what is wrong, what
would be right; never with a value in it, since any value could be a secret in the wrong place.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError
from pydantic_settings import EnvSettingsSource

from app.config.checks import CHECKS
from app.config.reading import PREFIX, Reading, given_variables, read_secret_file
from app.config.settings import SECTIONS, Settings, SourceSettings
from app.core.errors import ConfigurationError


def load_settings(
    environ: Mapping[str, str] | None = None,
    *,
    serving: bool = False,
    also: Callable[[Settings], list[str]] | None = None,
) -> Settings:
    """The settings of `environ` (default: the process's own), over those of TALLYHOOK_CONFIG.

    serving  whether webhooks will be received, for which an environment must be chosen
    also     what finds further problems, one line each: told together with the others

    Raises ConfigurationError with every problem, one line each: the variable, what is wrong and
    what would be right.
    """
    reading = Reading(serving=serving)
    reading.given = given_variables(
        os.environ if environ is None else environ, known=known_variables(), reading=reading
    )
    tree = _tree(reading.given)
    _fill_in(tree, reading)
    settings = _validated(tree, reading)
    for check in CHECKS:
        check(settings, reading)
    further = [] if also is None else also(settings)
    lines = [*reading.lines(), *(line for line in further if not reading.has_told(line))]
    if lines:
        raise ConfigurationError(lines)
    settings._warnings = tuple(reading.warnings)
    return settings


OF_COMMANDS: Final = ("CONFIG", "OPERATOR", "PLAY_TOKEN")
"""Variables that are no settings but words of commands: the file with the settings, who asks, and
the token of `sandbox --play`."""


def known_variables() -> tuple[str, ...]:
    """Every variable there can be; `<NAME>` stands for a source's name."""
    names = [PREFIX + name for name in OF_COMMANDS]
    for field in Settings.model_fields:
        if field == "sources":
            nested = [f"SOURCES__<NAME>__{name.upper()}" for name in SourceSettings.model_fields]
        elif field in SECTIONS:
            nested = [f"{field}__{name}".upper() for name in SECTIONS[field].model_fields]
        else:
            nested = [field.upper()]
        names += [PREFIX + name for name in nested]
    return tuple(names)


def _tree(given: Mapping[str, str]) -> dict[str, Any]:
    """The variables as nested values, still text."""
    source = EnvSettingsSource(Settings)
    source.env_vars = {name.lower(): value for name, value in given.items()}
    return source()


def _fill_in(tree: dict[str, Any], reading: Reading) -> None:
    """Secrets from their files, and the only source as the one that sessions come from."""
    sources = tree.get("sources", {})
    for name, fields in sources.items():
        if "secrets_file" in fields and "secrets" not in fields:
            variable = f"{PREFIX}SOURCES__{name.upper()}__SECRETS_FILE"
            fields["secrets"] = read_secret_file(Path(fields["secrets_file"]), variable, reading)
    checkout = tree.setdefault("checkout", {})
    for section, name in (("checkout", "token"), ("shop", "secret")):
        fields = tree.get(section, {})
        if f"{name}_file" in fields and name not in fields:
            variable = f"{PREFIX}{section}__{name}_FILE".upper()
            lines = read_secret_file(Path(fields[f"{name}_file"]), variable, reading)
            fields[name] = lines[0] if lines else None
    if len(sources) == 1:
        checkout.setdefault("source", next(iter(sources)))


def _validated(tree: dict[str, Any], reading: Reading) -> Settings:
    """The settings; those that do not fit are reported and left at their defaults.

    With the defaults in their place, the checks across settings can still find their own problems.
    """
    try:
        return Settings(**tree)
    except ValidationError as error:
        for mistake in error.errors(include_url=False, include_input=False):
            path = [part for part in mistake["loc"] if isinstance(part, str)]
            reading.problem(PREFIX + "__".join(path).upper(), _sentence(mistake, path[-1]))
            _drop(tree, path)
    return Settings(**tree)


def _drop(tree: dict[str, Any], path: list[str]) -> None:
    for part in path[:-1]:
        tree = tree.get(part, {})
    tree.pop(path[-1], None)


def _sentence(mistake: Any, field: str) -> str:
    """What would be right, in our words: pydantic's may hold the value."""
    context = mistake.get("ctx", {})
    if mistake["type"] == "value_error":
        return str(context["error"])
    if mistake["type"] == "literal_error":
        return f"must be {context['expected'].replace(chr(39), '')}"
    if field in _SHAPES:
        return _SHAPES[field]
    if field in ("profile", "source"):
        return "must be a name of 1 to 40 of a-z, 0-9, _ and -"
    return f"must be a whole number{_unit(field)} from {' to '.join(_bounds(field))}"


_SHAPES: Final = {
    "amount": "must be an amount in major units, such as 1500.00",
    "currency": "must be an ISO 4217 code, such as KES",
}


def _unit(field: str) -> str:
    return {"s": " of seconds", "days": " of days", "bytes": " of bytes", "mb": " of MiB"}.get(
        field.rpartition("_")[2], ""
    )


def _bounds(field: str) -> list[str]:
    metadata = Settings.model_fields[field].metadata
    low = next(part.ge for part in metadata if hasattr(part, "ge"))
    high = next(part.le for part in metadata if hasattr(part, "le"))
    return [f"{low:,}", f"{high:,}"]
