"""Reads variables, the dotenv file and files of secrets, and collects the mistakes found.

Leaves out: the meaning of values. No sentence made here contains a value.
"""

import difflib
import io
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dotenv.parser import parse_stream

PREFIX: Final = "TALLYHOOK_"
CONFIG: Final = PREFIX + "CONFIG"
ENVIRONMENT: Final = PREFIX + "ENVIRONMENT"
DATABASE_URL: Final = PREFIX + "DATABASE_URL"

MAX_FILE_BYTES: Final = 256 * 1024
"""Largest size of a file. A larger one was named by mistake."""

_CONTROLS: Final = {code: f"\\x{code:02x}" for code in (*range(32), 127)}
_SECRET = re.compile(r"__(CLIENT_SECRET|SECRETS?|TOKEN)\Z")


@dataclass(kw_only=True)
class SettingsReading:
    """One attempt to read the configuration: the given variables, and the mistakes found."""

    serving: bool
    given: dict[str, str] = field(default_factory=dict)
    config_file: Path | None = None
    problems: dict[str, list[str]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    @property
    def live(self) -> bool:
        """Return whether the environment is live, even if other settings cannot be read."""
        return self.given.get(ENVIRONMENT, "").strip().lower() == "live"

    def problem(self, variable: str, sentence: str) -> None:
        """Report a problem. Its message is the variable's name, followed by the sentence."""
        sentences = self.problems.setdefault(variable, [])
        if sentence not in sentences:
            sentences.append(sentence)

    def only_in_sandbox(self, variable: str, sentence: str) -> None:
        """Report a problem in a live environment, and a warning elsewhere."""
        if self.live:
            self.problem(variable, sentence)
        else:
            self.warnings.append(f"{variable}: {sentence}")

    def has_reported(self, line: str) -> bool:
        """Return whether a line's variable, or one that replaces it, already has a problem."""
        variable = line.partition(":")[0]
        stem = variable.removesuffix("SECRETS")
        keys = (f"{stem}KEYS",) if stem != variable else ()
        return any(name in self.problems for name in (variable, f"{variable}_FILE", *keys))

    def lines(self) -> list[str]:
        """Return every problem as a line, sorted by variable."""
        return [
            f"{printable(variable)}: {sentence}"
            for variable in sorted(self.problems)
            for sentence in self.problems[variable]
        ]


_ONE_SECRET = re.compile(r"-----BEGIN [^-]+-----.*?-----END [^-]+-----|\S[^\r\n]*", re.DOTALL)


def printable(name: str) -> str:
    """Return a stranger's name made safe to print: ASCII, at most 100 characters."""
    return name[:100].encode("ascii", "backslashreplace").decode().translate(_CONTROLS)


def given_variables(
    environ: Mapping[str, str], *, known: Sequence[str], reading: SettingsReading
) -> dict[str, str]:
    """Return the known variables by upper-case name. The environment overrides the file.

    An empty value counts as not given. For a secret it is a mistake.
    """
    own = _ours(environ.items(), reading)
    path = own.pop(CONFIG, "").strip()
    from_file = _ours(_dotenv(Path(path), reading), reading) if path else {}
    from_file.pop(CONFIG, None)
    in_file = from_file.get(DATABASE_URL, "").strip()
    if in_file and own.get(DATABASE_URL, in_file) != in_file:
        reading.warnings.append(
            f"{DATABASE_URL}: the environment says another one than the file of {CONFIG}, and wins"
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
    """Return our variables by upper-case name. Report two spellings of one name."""
    found: dict[str, str] = {}
    names = set[str]()
    for name, value in items:
        upper = name.upper()
        if not upper.startswith(PREFIX):
            continue
        if upper in found:
            spellings = "in two spellings; keep the one in upper case"
            if name in names:
                spellings = "in one file; keep one of the two"
            reading.problem(upper, f"is given twice, {spellings}")
        found[upper] = value
        names.add(name)
    return found


_OPTIONS: Final = {f"{PREFIX}HOST": "--host", f"{PREFIX}PORT": "--port"}
"""Options of commands that could be mistaken for settings."""


def _is_known(name: str, known: Sequence[str], reading: SettingsReading) -> bool:
    parts = name.removeprefix(PREFIX).split("__")
    source = parts[1] if parts[0] == "SOURCES" and len(parts) == 3 else "<NAME>"
    candidates = [candidate.replace("<NAME>", source) for candidate in known]
    if name not in candidates or "<" in name:
        nearest = difflib.get_close_matches(name, candidates, n=1, cutoff=0.0)[0]
        hint = f"the nearest one is {printable(nearest)}"
        if name in _OPTIONS:
            hint = f"say it to the command: `tallyhook serve {_OPTIONS[name]}`"
        reading.problem(name, f"is not a setting; {hint}")
        return False
    if source != "<NAME>" and not re.fullmatch(r"[A-Z0-9_-]{1,40}", source, re.ASCII):
        reading.problem(name, "names its source with other than 1 to 40 of A-Z, 0-9, _ and -")
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
    """Split a text into its lines. A PEM block stays whole."""
    return [found.group().strip() for found in _ONE_SECRET.finditer(text)]


def read_secret_file(path: Path, variable: str, reading: SettingsReading) -> list[str]:
    """Return the secrets of a file, one on each line, newest first. A PEM key is one secret.

    A file that cannot be read, has no secrets, or is accessible to everyone is reported under
    `variable`.
    """
    text = _text(path, variable, reading)
    secrets = secrets_in(text)
    if not secrets and variable not in reading.problems:
        reading.problem(variable, "names a file without a secret; write one on each line")
    _check_mode(path, variable, reading)
    return secrets


def _text(path: Path, variable: str, reading: SettingsReading) -> str:
    try:
        if not path.is_file():
            reading.problem(variable, "names no file that is there; write the path of one")
        elif path.stat().st_size > MAX_FILE_BYTES:
            reading.problem(variable, "names a file of more than 256 KiB; write the right path")
        else:
            return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        reading.problem(variable, "names a file that is not UTF-8 text; save it as such")
    except (OSError, ValueError):
        reading.problem(variable, "names a file that this user may not read; let it")
    return ""


def _check_mode(path: Path, variable: str, reading: SettingsReading) -> None:
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except (OSError, ValueError):
        return  # already reported
    if mode & 0o007:
        reading.only_in_sandbox(
            variable, f"names a file of secrets that everyone may use (mode {mode:o}); chmod 640 it"
        )
