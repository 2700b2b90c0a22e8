"""Reading a profile file: all of its mistakes at once, each with its line, or a frozen Profile."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from app.core.errors import ConfigurationError
from app.core.toml_file import read_toml
from app.providers.rules import ProfileFile, read_free
from app.providers.rules_together import check_together
from app.providers.sections import (
    AccountRule,
    AcknowledgementRule,
    AlsoRule,
    AmountsRule,
    CheckoutRule,
    CustomerRule,
    EnvironmentRule,
    EventRule,
    FetchBackRule,
    HandshakeRule,
    Profile,
    RequestRule,
    RestsOnRule,
    SecretRule,
    SignatureRule,
    TimestampRule,
)

__all__ = ["SHIPPED", "Profile", "load_profile", "profile_text", "read_profile", "shipped_profiles"]

SHIPPED: Final = Path(__file__).parent / "profiles"

MAX_FILE_BYTES: Final = 32 * 1024
"""A profile is a page or two; what is larger is another file by mistake, or made to be slow to
read: bundles and scenarios of strangers hold profiles, and a TOML parser's time grows with the
square."""

_TOO_LARGE: Final = f"is larger than {MAX_FILE_BYTES} bytes"


def shipped_profiles() -> list[str]:
    """Names that `load_profile` knows without a path, sorted."""
    return sorted(path.stem for path in SHIPPED.glob("*.toml"))


def load_profile(name_or_path: str) -> Profile:
    """The profile of a shipped name, or of a path (it has a `/` or ends in `.toml`).

    Raises ConfigurationError with every mistake of the file at once, each with file, line and key.
    """
    path = _path_of(name_or_path)
    return read_profile(path, _text(path))


def read_profile(path: Path, text: str) -> Profile:
    """The profile in a text; `path` names it, in mistakes too. Raises as `load_profile` does."""
    values = read_toml(
        text,
        ProfileFile,
        name=str(path),
        most_bytes=MAX_FILE_BYTES,
        together=lambda read: [*read_free(read), *check_together(read)],
    )
    return _build(path.stem, values)


def profile_text(name_or_path: str) -> str:
    """The file of a profile that `load_profile` takes. Raises as that does for one that is none."""
    return _text(_path_of(name_or_path))


def _path_of(name_or_path: str) -> Path:
    if "/" in name_or_path or name_or_path.endswith(".toml"):
        return Path(name_or_path)
    if name_or_path not in shipped_profiles():
        shipped = ", ".join(shipped_profiles())
        near = get_close_matches(name_or_path.lower(), shipped_profiles(), n=1)
        nearest = f"; the nearest one is {near[0]}" if near else ""
        raise ConfigurationError(
            [
                f"there is no profile {name_or_path!r}{nearest}: name one of {shipped}, or a path "
                "to a file"
            ]
        )
    return SHIPPED / f"{name_or_path}.toml"


def _text(path: Path) -> str:
    try:
        if path.stat().st_size <= MAX_FILE_BYTES:
            return path.read_text(encoding="utf-8")
        problem = _TOO_LARGE
    except OSError as error:
        problem = f"cannot be read: {error.strerror or 'it is not a file'}"
    except UnicodeDecodeError:
        problem = "is not UTF-8"
    except ValueError:
        problem = "cannot be read: it is not a file"
    raise ConfigurationError([f"{path}: {problem}"])


def _build(name: str, values: dict[str, Any]) -> Profile:
    signature, event = values["signature"], values["event"]
    fetch_back, amounts = values["fetch_back"], values["amounts"]
    also = signature.pop("also")
    return Profile(
        name=name,
        verifies_only=values["verifies_only"],
        confirm=values["confirm"],
        signature=SignatureRule(**signature, also=also and AlsoRule(**also)),
        account=AccountRule(**values["account"]),
        secret=SecretRule(**values["secret"]),
        timestamp=values["timestamp"] and TimestampRule(**values["timestamp"]),
        request=RequestRule(**values["request"]),
        acknowledgement=AcknowledgementRule(**values["acknowledgement"]),
        handshake=values["handshake"] and HandshakeRule(**values["handshake"]),
        event=EventRule(**event),
        customer=CustomerRule(**values["customer"]),
        environment=EnvironmentRule(**values["environment"]),
        amounts=AmountsRule(**amounts),
        fetch_back=fetch_back and FetchBackRule(**fetch_back),
        checkout=CheckoutRule(**values["checkout"]),
        rests_on=values["rests_on"] and RestsOnRule(**values["rests_on"]),
        claims=values["claims"],
    )
