"""Read the configuration's variables and files, and add settings to a file on request.

    variables, dotenv file, files of secrets ──▶ `SettingsReading`, with the mistakes found
    file, wanted ──▶ added: written at the end │ same: there already │ differing: only reported

Messages about mistakes never quote a value.
"""

import difflib
import io
import os
import re
import stat
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dotenv.parser import parse_stream

from app.core.errors import ConfigurationError
from app.core.private_files import replacing

PREFIX: Final = "TALLYHOOK_"
CONFIG: Final = PREFIX + "CONFIG"
ENVIRONMENT: Final = PREFIX + "ENVIRONMENT"
DATABASE_URL: Final = PREFIX + "DATABASE_URL"

MAX_FILE_BYTES: Final = 256 * 1024
"""Maximum size of a configuration file in bytes. A larger file was probably named by mistake."""

_CONTROLS: Final = {code: f"\\x{code:02x}" for code in (*range(32), 127)}
_SECRET = re.compile(r"__(CLIENT_SECRET|SECRETS?|TOKEN)\Z")


@dataclass(kw_only=True)
class SettingsReading:
    """Variables that were read so far, with the problems and warnings found."""

    serving: bool
    given: dict[str, str] = field(default_factory=dict)
    config_file: Path | None = None
    problems: dict[str, list[str]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    @property
    def live(self) -> bool:
        """Return whether the environment is stated to be live, even if other settings are
        unreadable."""
        return self.given.get(ENVIRONMENT, "").strip().lower() == "live"

    def problem(self, variable: str, sentence: str) -> None:
        """Report a problem with a variable. The report is a line with the variable's name and the
        sentence."""
        sentences = self.problems.setdefault(variable, [])
        if sentence not in sentences:
            sentences.append(sentence)

    def only_in_sandbox(self, variable: str, sentence: str) -> None:
        """Report a problem if the environment is live. Otherwise add a warning."""
        if self.live:
            self.problem(variable, sentence)
        else:
            self.warnings.append(f"{variable}: {sentence}")

    def has_reported(self, line: str) -> bool:
        """Return whether a problem was already reported for the variable that a line names.

        Problems of the variable with `_FILE` count, too, and for SECRETS those of KEYS.

        line  text of a problem, which begins with the variable's name and a colon
        """
        variable = line.partition(":")[0]
        stem = variable.removesuffix("SECRETS")
        keys = (f"{stem}KEYS",) if stem != variable else ()
        return any(name in self.problems for name in (variable, f"{variable}_FILE", *keys))

    def lines(self) -> list[str]:
        """Return each problem as a line of text, sorted by variable."""
        return [
            f"{printable(variable)}: {sentence}"
            for variable in sorted(self.problems)
            for sentence in self.problems[variable]
        ]


_ONE_SECRET = re.compile(r"-----BEGIN [^-]+-----.*?-----END [^-]+-----|\S[^\r\n]*", re.DOTALL)


def printable(name: str) -> str:
    """Return a name that a stranger chose in printable ASCII. The name is cut to 100 characters."""
    return name[:100].encode("ascii", "backslashreplace").decode().translate(_CONTROLS)


def given_variables(
    environ: Mapping[str, str], *, known: Sequence[str], reading: SettingsReading
) -> dict[str, str]:
    """Return the values of all known variables, the environment's before the file's.

    An empty value counts as missing; an empty secret is a mistake.
    """
    own = _ours(environ.items(), reading)
    path = own.pop(CONFIG, "").strip()
    from_file = _ours(_dotenv(Path(path), reading), reading) if path else {}
    from_file.pop(CONFIG, None)
    in_file = from_file.get(DATABASE_URL, "").strip()
    if in_file and own.get(DATABASE_URL, in_file) != in_file:
        reading.warnings.append(
            f"{DATABASE_URL}: has a different value in the environment than in the file of "
            f"{CONFIG}; the environment's value is used"
        )
    given = {
        name: value
        for name, value in {**from_file, **own}.items()
        if _is_known(name, known, reading) and (value.strip() or _SECRET.search(name))
    }
    # Checked only now, because the environment decides whether the file mode matters.
    reading.given = given
    reading.config_file = Path(path) if path else None
    if any(_SECRET.search(name) for name in from_file):
        _check_mode(Path(path), CONFIG, reading)
    return given


def _ours(items: Iterable[tuple[str, str]], reading: SettingsReading) -> dict[str, str]:
    """Return Tallyhook's variables by their upper-case names. Report each variable that is set
    twice."""
    found: dict[str, str] = {}
    names = set[str]()
    for name, value in items:
        upper = name.upper()
        if not upper.startswith(PREFIX):
            continue
        if upper in found:
            spellings = "with different capitals; keep the name in upper case"
            if name in names:
                spellings = "in one file; keep one of the two"
            reading.problem(upper, f"is set twice, {spellings}")
        found[upper] = value
        names.add(name)
    return found


_OPTIONS: Final = {f"{PREFIX}HOST": "--host", f"{PREFIX}PORT": "--port"}
"""Variables that look like settings but are none, each with the command option that sets the
value."""


def _is_known(name: str, known: Sequence[str], reading: SettingsReading) -> bool:
    parts = name.removeprefix(PREFIX).split("__")
    source = parts[1] if parts[0] == "SOURCES" and len(parts) == 3 else "<NAME>"
    candidates = [candidate.replace("<NAME>", source) for candidate in known]
    if name not in candidates or "<" in name:
        nearest = difflib.get_close_matches(name, candidates, n=1, cutoff=0.0)[0]
        hint = f"the closest name is {printable(nearest)}"
        if name in _OPTIONS:
            hint = f"use the command's option: `tallyhook serve {_OPTIONS[name]}`"
        reading.problem(name, f"is not a setting; {hint}")
        return False
    if source != "<NAME>" and not re.fullmatch(r"[A-Z0-9_-]{1,40}", source, re.ASCII):
        reading.problem(
            name,
            "has an invalid source name; use 1 to 40 characters of A-Z, 0-9, _ and -",
        )
        return False
    return True


def _dotenv(path: Path, reading: SettingsReading) -> list[tuple[str, str]]:
    bindings = list(parse_stream(io.StringIO(_text(path, CONFIG, reading))))
    for binding in bindings:
        if binding.error or (binding.key and binding.value is None):
            line = binding.original.line
            reading.problem(CONFIG, f"names a file whose line {line} is not NAME=value")
    return [(b.key, b.value) for b in bindings if b.key is not None and b.value is not None]


def secrets_in(text: str) -> list[str]:
    """Split a text into its secrets: each line is one secret, but a PEM block stays in one
    piece."""
    return [found.group().strip() for found in _ONE_SECRET.finditer(text)]


def read_secret_file(path: Path, variable: str, reading: SettingsReading) -> list[str]:
    """Return the secrets in a file, newest first: one on each line, or a PEM key.

    An unusable file, or one that everyone can read, is reported under `variable`.
    """
    text = _text(path, variable, reading)
    secrets = secrets_in(text)
    if not secrets and variable not in reading.problems:
        reading.problem(variable, "names a file without a secret; write one secret on each line")
    _check_mode(path, variable, reading)
    return secrets


def _text(path: Path, variable: str, reading: SettingsReading) -> str:
    try:
        if not path.is_file():
            reading.problem(variable, "names no existing file; write the path of a file")
        elif path.stat().st_size > MAX_FILE_BYTES:
            reading.problem(variable, "names a file larger than 256 KiB; check the path")
        else:
            return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        reading.problem(variable, "names a file that is not UTF-8 text; save it as UTF-8")
    except (OSError, ValueError):
        reading.problem(variable, "names a file that this user may not read; give this user access")
    return ""


def _check_mode(path: Path, variable: str, reading: SettingsReading) -> None:
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except (OSError, ValueError):
        return  # already reported
    if mode & 0o007:
        reading.only_in_sandbox(
            variable,
            f"names a file of secrets that any user can access (mode {mode:o}); chmod 640 it",
        )


_NOT_THE_WORLD: Final = 0o770
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.,:/@%+=-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsPlan:
    """Plan for adding settings to a configuration file."""

    added: tuple[str, ...]
    """Names that the file lacks."""
    same: tuple[str, ...]
    """Names that already have the wanted value."""
    differing: tuple[str, ...]
    """Names that have another value. If there are any, nothing may be written."""
    values: Mapping[str, str]
    """Values in the file after writing. Never shown."""
    before: str
    """Text of the file before writing."""
    after: str
    """Text of the file after writing."""


def plan_settings(
    path: Path, wanted: Mapping[str, str], *, changing: Collection[str] = ()
) -> SettingsPlan:
    """Return a plan for adding wanted settings to a file, which may be missing.

    changing  names of settings that may replace another value

    Raises ConfigurationError if a line is not NAME=value, or if a name occurs twice.
    """
    before = _content(path)
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
    """Replace the file with the planned content.

    A new file has mode 0600; an existing file loses permissions for other users. Raises
    ConfigurationError if the file has changed since the plan, or cannot be written.
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
                            f"{path}: belongs to user {was.st_uid} and group {was.st_gid}, and "
                            "this command would change that; run it as the owner or as root"
                        ]
                    ) from None
                os.fchmod(file.fileno(), stat.S_IMODE(was.st_mode) & _NOT_THE_WORLD)
            if _content(path) != plan.before:
                problem = (
                    f"{path}: was changed by another program during this command; check it, "
                    "and try again"
                )
                raise ConfigurationError([problem])
    except FileExistsError:
        problem = (
            f"{path}: is being written by another command; wait for that command, or remove "
            f"{beside} if no command is running"
        )
        raise ConfigurationError([problem]) from None
    except OSError as error:
        raise ConfigurationError([f"{path}: cannot be written ({error.strerror})"]) from None


def _content(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ConfigurationError([f"{path}: is larger than 256 KiB; name the right file"])
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError:
        raise ConfigurationError([f"{path}: is not UTF-8 text; save it as UTF-8"]) from None
    except OSError as error:
        raise ConfigurationError([f"{path}: cannot be read ({error.strerror})"]) from None


def _lines(path: Path, text: str) -> list[tuple[str, str, str]]:
    """Split a file into parts, each with a name, a value and the original text. A comment's name is
    empty."""
    found: dict[str, int] = {}
    parts = []
    for binding in parse_stream(io.StringIO(text)):
        line = binding.original.line
        if binding.error or (binding.key and binding.value is None):
            raise ConfigurationError([f"{path}:{line}: is not NAME=value"])
        name = (binding.key or "").upper()
        if name in found:
            raise ConfigurationError(
                [f"{path}:{line}: {name} was already set in line {found[name]}; keep one"]
            )
        if name:
            found[name] = line
        parts.append((name, binding.value or "", binding.original.string))
    return parts


def _written(value: str) -> str:
    if _PLAIN.fullmatch(value):
        return value
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
