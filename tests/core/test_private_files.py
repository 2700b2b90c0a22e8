"""Files that are made whole or not at all: nobody else has a hand in them."""

import errno
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from app.core.errors import ConfigurationError
from app.core.phone_key import read_phone_key
from app.core.private_files import read_private, replacing, write_new


@pytest.mark.parametrize("linked", [True, False])
def test_a_file_that_was_laid_ready_is_not_written_into(linked: bool, tmp_path: Path) -> None:
    """Somebody who may write to the folder could put a file or a link there, and read the key."""
    theirs = tmp_path / "theirs"
    theirs.write_bytes(b"before")
    theirs.chmod(0o666)

    def laid(name: str) -> Path:
        path = tmp_path / name
        path.symlink_to(theirs) if linked else os.link(theirs, path)
        return path

    key = tmp_path / "key.pem"
    laid(f"key.pem.{os.getpid()}.new")
    write_new(key, b"a key")
    report = tmp_path / "report.csv"
    with replacing(report, part=laid("report.part")) as file:
        file.write(b"a report")
    assert theirs.read_bytes() == b"before"
    for path, content in ((key, b"a key"), (report, b"a report")):
        assert path.read_bytes() == content
        assert not path.is_symlink()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_key_of_another_user_is_no_lost_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a first try as root: a copy from a backup would not help."""
    path = tmp_path / "t.key"
    path.write_text("00" * 32)

    def denied(*words: Any, **more: Any) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", denied)  # root may read all
    for reading in (
        lambda: read_private(path, variable="A_KEY", what="a key", most=100),
        lambda: read_phone_key(path),
    ):
        with pytest.raises(ConfigurationError, match="the service's user") as told:
            reading()
        assert "backup" not in str(told.value)
