"""Adds settings to a configuration file, and changes existing values only on request.

    file, wanted ──▶ added: written at the end │ same: there already │ differing: only reported

A name without a value gets the value in its line. The file is replaced in one step. It contains
secrets, so a new file is only for its owner. An existing file keeps its owner and group, and nobody
else may read it. Leaves out: the meaning of values (`load.py`).
"""

import io
import os
import re
import stat
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dotenv.parser import parse_stream

from app.config.reading import MAX_FILE_BYTES
from app.core.errors import ConfigurationError
from app.core.private_files import replacing

_NOT_THE_WORLD: Final = 0o770
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.,:/@%+=-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsPlan:
    """Result of comparing a file with wanted settings, by names of variables.

    values     values of the file as planned; never shown
    differing  names with another value in the file; if there are any, nothing may be written
    """

    added: tuple[str, ...]
    same: tuple[str, ...]
    differing: tuple[str, ...]
    values: Mapping[str, str]
    before: str
    after: str


def plan_settings(
    path: Path, wanted: Mapping[str, str], *, changing: Collection[str] = ()
) -> SettingsPlan:
    """Compare wanted settings with a file, which may be missing.

    changing  names whose value may be replaced if the file has another

    Raises ConfigurationError if a line is not NAME=value, or a name is given twice.
    """
    before = _text(path)
    lines = _lines(path, before)
    there = {name: value for name, value, _ in lines if name and value}
    blank = {name for name, value, _ in lines if name and not value}
    blank |= {name for name in changing if name in there}
    there = {name: value for name, value in there.items() if name not in changing}
    added = tuple(name for name in wanted if name not in there)
    kept = "".join(
        f"{name}={_written(wanted[name])}\n" if name in blank and name in wanted else text
        for name, _, text in lines
    )
    new = "".join(f"{name}={_written(wanted[name])}\n" for name in added if name not in blank)
    gap = "" if not kept or not new or kept.endswith("\n") else "\n"
    return SettingsPlan(
        added=added,
        same=tuple(name for name in wanted if there.get(name) == wanted[name]),
        differing=tuple(name for name in wanted if there.get(name, wanted[name]) != wanted[name]),
        values={**there, **{name: wanted[name] for name in added}},
        before=before,
        after=kept + gap + new,
    )


def write_plan(path: Path, plan: SettingsPlan) -> None:
    """Replace the file by the planned content.

    A new file has mode 0600. An existing one keeps owner, group and mode, without the permissions
    of others. Raises ConfigurationError if the file has changed meanwhile, another command is
    writing it, or it cannot be written.
    """
    real = Path(os.path.realpath(path))
    beside = real.with_name(f".{real.name}.new")
    try:
        with replacing(real, part=beside, exclusive=True) as file:
            file.write(plan.after.encode("utf-8"))
            # The service may run as another user, and read the file by its group.
            if real.exists():
                was = real.stat()
                try:
                    os.fchown(file.fileno(), was.st_uid, was.st_gid)
                except PermissionError:
                    raise ConfigurationError(
                        [
                            f"{path}: is of user {was.st_uid} and group {was.st_gid}, and would be "
                            "so no more; run this as its owner or as root"
                        ]
                    ) from None
                os.fchmod(file.fileno(), stat.S_IMODE(was.st_mode) & _NOT_THE_WORLD)
            if _text(path) != plan.before:
                problem = f"{path}: has changed meanwhile; look at it, and try again"
                raise ConfigurationError([problem])
    except FileExistsError:
        problem = f"{path}: is being written by another command; where none runs, remove {beside}"
        raise ConfigurationError([problem]) from None
    except OSError as error:
        raise ConfigurationError([f"{path}: cannot be written ({error.strerror})"]) from None


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ConfigurationError([f"{path}: is more than 256 KiB; name the right file"])
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError:
        raise ConfigurationError([f"{path}: is not UTF-8 text; save it as such"]) from None
    except OSError as error:
        raise ConfigurationError([f"{path}: cannot be read ({error.strerror})"]) from None


def _lines(path: Path, text: str) -> list[tuple[str, str, str]]:
    """Split a file into parts, each with name, value and text. A comment has no name."""
    found: dict[str, int] = {}
    parts = []
    for binding in parse_stream(io.StringIO(text)):
        line = binding.original.line
        if binding.error or (binding.key and binding.value is None):
            raise ConfigurationError([f"{path}:{line}: is not NAME=value"])
        name = (binding.key or "").upper()
        if name in found:
            raise ConfigurationError(
                [f"{path}:{line}: {name} is given twice, first in line {found[name]}; keep one"]
            )
        if name:
            found[name] = line
        parts.append((name, binding.value or "", binding.original.string))
    return parts


def _written(value: str) -> str:
    """Return the value quoted for the file."""
    if _PLAIN.fullmatch(value):
        return value
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
