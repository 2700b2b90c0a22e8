"""Keyed digests of phone numbers, mail addresses and names, by which orders are found.

A plain hash could be reversed by trying all phone numbers. The key lies in a separate file, so the
database alone reveals no number.
"""

import hmac
from pathlib import Path
from typing import Final

from app.core.errors import ConfigurationError, UnreachableError
from app.core.ids import new_secret
from app.core.private_files import write_new

DIGEST_BYTES: Final = 16
"""Length of a digest in bytes. The first four bytes identify the key."""

_NAMING: Final = 4
_KEY_CHARS: Final = 64
"""Number of characters in a key file: 32 bytes in hexadecimal digits."""


class PhoneKey:
    """Secret key that turns phone numbers and other identifiers into digests. The repr does not
    show the key."""

    __slots__ = ("_begun", "name")

    def __init__(self, key: bytes) -> None:
        self._begun = hmac.new(key, digestmod="sha256")
        self.name: bytes = hmac.digest(key, b"tallyhook phone key", "sha256")[:_NAMING]
        """First bytes of this key's digests. They identify the key."""

    def __repr__(self) -> str:
        return "PhoneKey()"

    def digest(self, identifier: str) -> bytes:
        """Return the digest of a phone number in E.164 digits, or of another identifier.

        Four bytes identify the key; a shortened HMAC-SHA-256 follows. The last bit is 0 for a phone
        number, else 1.
        """
        code = self._begun.copy()
        code.update(identifier.encode())
        *most, last = code.digest()[: DIGEST_BYTES - _NAMING]
        return self.name + bytes([*most, last & ~1 | (not identifier.isdecimal())])


def is_of_a_number(digest: bytes) -> bool:
    """Return whether a digest was made from a phone number, the strongest evidence."""
    return not digest[-1] & 1


def read_phone_key(path: Path) -> PhoneKey | None:
    """Return the phone key from a file. Return None if the file does not exist. Raise
    ConfigurationError if the file is unusable."""

    def unusable(what: str) -> ConfigurationError:
        return ConfigurationError(
            [
                f"TALLYHOOK_PHONES__KEY_FILE: {what}; restore the key's file from your backup, or "
                "name a new file and run `tallyhook reindex`"
            ]
        )

    try:
        text = path.read_text("ascii").strip()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError:
        raise ConfigurationError(
            [
                "TALLYHOOK_PHONES__KEY_FILE: this user may not read the file; run this command as "
                "the service's user, or give this user access. A file that root created belongs "
                "to root"
            ]
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise unusable(f"cannot be read ({type(error).__name__})") from None
    if len(text) != _KEY_CHARS or not set(text) <= set("0123456789abcdef"):
        raise unusable("is not 64 hex digits")
    return PhoneKey(bytes.fromhex(text))


def make_phone_key(path: Path) -> PhoneKey:
    """Return the phone key from a file, which is created if missing, readable only by its owner.

    Raises ConfigurationError if the file is unusable, and UnreachableError if it cannot be created.
    """
    known = read_phone_key(path)
    if known is not None:
        return known
    try:
        # The file is complete before it gets its name, so that nobody reads half a key.
        write_new(path, new_secret().hex().encode() + b"\n")
    except FileExistsError:
        pass
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise UnreachableError(
            f"the file of the phone key cannot be created in {path.parent}: {reason}; give this "
            "user write access to the folder, or name another file in TALLYHOOK_PHONES__KEY_FILE"
        ) from None
    made = read_phone_key(path)
    assert made is not None, "it was just made"
    return made
