"""Where settings come from: variables, the dotenv file, files of secrets; and what was wrong.

Leaves out: what a value means. No sentence made here contains a value.
"""

from __future__ import annotations

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
"""More than any list of settings or secrets; a larger file was named by mistake."""

_CONTROLS: Final = {code: f"\\x{code:02x}" for code in (*range(32), 127)}
_SECRET = re.compile(r"__(SECRETS?|TOKEN)\Z")


@dataclass(kw_only=True)
class SettingsReading:
    """One attempt to read the configuration: what was given and what was found wrong with it."""

    serving: bool
    given: dict[str, str] = field(default_factory=dict)
    config_file: Path | None = None
    problems: dict[str, list[str]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    @property
    def live(self) -> bool:
        """Whether real money is asked for, even where other settings cannot be read."""
        return self.given.get(ENVIRONMENT, "").strip().lower() == "live"

    def problem(self, variable: str, sentence: str) -> None:
        """`sentence` continues the variable's name and says what would be right."""
        sentences = self.problems.setdefault(variable, [])
        if sentence not in sentences:
            sentences.append(sentence)

    def only_in_sandbox(self, variable: str, sentence: str) -> None:
        """A problem in live, a warning elsewhere."""
        if self.live:
            self.problem(variable, sentence)
        else:
            self.warnings.append(f"{variable}: {sentence}")

    def has_reported(self, line: str) -> bool:
        """Whether this line's variable, or what is given in its stead, has a problem already."""
        variable = line.partition(":")[0]
        stem = variable.removesuffix("SECRETS")
        keys = (f"{stem}KEYS",) if stem != variable else ()
        return any(name in self.problems for name in (variable, f"{variable}_FILE", *keys))

    def lines(self) -> list[str]:
        """Every problem as one line, sorted by variable."""
        return [
            f"{printable(variable)}: {sentence}"
            for variable in sorted(self.problems)
            for sentence in self.problems[variable]
        ]


_ONE_SECRET = re.compile(r"-----BEGIN [^-]+-----.*?-----END [^-]+-----|\S[^\r\n]*", re.DOTALL)


def printable(name: str) -> str:
    """A name that someone else chose, safe to print: ASCII, at most 100 characters."""
    return name[:100].encode("ascii", "backslashreplace").decode().translate(_CONTROLS)


def given_variables(
    environ: Mapping[str, str], *, known: Sequence[str], reading: SettingsReading
) -> dict[str, str]:
    """The known variables by their upper-case names, the environment over the file.

    An empty value counts as not given, except for secrets: there it is a mistake to report.
    """
    own = _ours(environ.items(), reading)
    path = own.pop(CONFIG, "").strip()
    from_file = _ours(_dotenv(Path(path), reading), reading) if path else {}
    from_file.pop(CONFIG, None)
    in_file = from_file.get(DATABASE_URL, "").strip()
    if in_file and own.get(DATABASE_URL, in_file) != in_file:
        reading.warnings.append(  # what is done on the one is not seen on the other
            f"{DATABASE_URL}: the environment says another one than the file of {CONFIG}, and wins"
        )
    given = {
        name: value
        for name, value in {**from_file, **own}.items()
        if _is_known(name, known, reading) and (value.strip() or _SECRET.search(name))
    }
    # The mode can only be judged now: whether it matters depends on the environment.
    reading.given = given
    reading.config_file = Path(path) if path else None
    if any(_SECRET.search(name) for name in from_file):
        _check_mode(Path(path), CONFIG, reading)
    return given


def _ours(items: Iterable[tuple[str, str]], reading: SettingsReading) -> dict[str, str]:
    """Our variables by upper-case name; two spellings of one would let chance decide."""
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
"""Settings that commands that listen take as options of their own."""


def _meant(name: str, candidates: Sequence[str]) -> str:
    if name in _OPTIONS:
        return f"say it to the command: `tallyhook serve {_OPTIONS[name]}`"
    nearest = difflib.get_close_matches(name, candidates, n=1, cutoff=0.0)[0]
    return f"the nearest one is {printable(nearest)}"


def _is_known(name: str, known: Sequence[str], reading: SettingsReading) -> bool:
    parts = name.removeprefix(PREFIX).split("__")
    source = parts[1] if parts[0] == "SOURCES" and len(parts) == 3 else "<NAME>"
    candidates = [candidate.replace("<NAME>", source) for candidate in known]
    if name not in candidates or "<" in name:
        reading.problem(name, f"is not a setting; {_meant(name, candidates)}")
        return False
    if source != "<NAME>" and not re.fullmatch(r"[A-Z0-9_-]{1,40}", source, re.ASCII):
        reading.problem(name, "names its source with other than 1 to 40 of A-Z, 0-9, _ and -")
        return False
    return True


def _dotenv(path: Path, reading: SettingsReading) -> list[tuple[str, str]]:
    text = _text(path, CONFIG, reading)
    bindings = list(parse_stream(io.StringIO(text)))
    for binding in bindings:
        if binding.error or (binding.key and binding.value is None):
            line = binding.original.line
            reading.problem(CONFIG, f"names a file whose line {line} is not NAME=value")
    return [(b.key, b.value) for b in bindings if b.key is not None and b.value is not None]


def secrets_in(text: str) -> list[str]:
    """Each line, and each block of PEM as one."""
    return [found.group().strip() for found in _ONE_SECRET.finditer(text)]


def read_secret_file(path: Path, variable: str, reading: SettingsReading) -> list[str]:
    """The secrets of a file, one a line, newest first; blank lines do not count.

    A key in PEM is one secret with all its lines.
    A file that cannot be read, holds none, or can be read by everyone on a live machine is
    reported under `variable`; the answer is then what could be read.
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
        return  # already reported by whoever tried to read it
    if mode & 0o007:
        reading.only_in_sandbox(
            variable, f"names a file of secrets that everyone may use (mode {mode:o}); chmod 640 it"
        )
