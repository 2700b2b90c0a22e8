"""The console survives what strangers send, and leaves nothing of it behind."""

import os
from pathlib import Path

import pytest

from tests.console.conftest import RunningConsole, send
from tests.console.test_cases import attached
from tests.console.test_imports import upload
from tests.searching import every
from tests.security.hostile_files import KINDS, hostile_file

DECLARED = ("statement", "book", "bank", "")
"""Kinds that an upload may be declared as, and none."""

DECLARABLE = ("csv", "json", "xml")
"""Kinds of files that are declared as each of these in turn, in the gate as two of them."""

FEWEST = 50 if os.environ.get("TALLYHOOK_LONG") else 1
"""Files of a kind, or more. A workbook is read several times, in a process of its own."""

ATTACH = "/do/attach?order=ORD-1"

LAID_OUT = ("pdf", "png", "jpeg", "eml")
"""Kinds that are laid out behind a letter."""


@pytest.mark.parametrize("kind", KINDS)
async def test_it_answers_after_each_file_and_keeps_none(
    kind: str, console: RunningConsole, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    async with console.signed_in("admin") as client:
        for number in range(max(FEWEST, len(DECLARED) // every(2) if kind in DECLARABLE else 0)):
            content = hostile_file(kind, number)
            said = DECLARED[(number + KINDS.index(kind)) % len(DECLARED)]
            source = "shop" if said == "statement" else ""
            sent = await upload(client, content, f"a.{kind}", kind=said, source=source)
            assert sent.status_code in (303, 400), (number, sent.text[-300:])
            state = (await client.get("/imports.json")).json()["waiting"]
            assert "it failed" not in str(state), number
            sent = await attached(client, ATTACH, content, f"{number}.{kind}", kind="other")
            assert sent.status_code in (303, 400), number
        for ending in ("html", "pdf") if kind in LAID_OUT else ():
            letter = await send(client, "/do/letter?order=ORD-1", ending=ending)
            assert letter.status_code in (200, 400), letter.text[-300:]
        assert (await client.get("/cases/ORD-1")).status_code == 200
    console.console.uploads.close()
    assert os.listdir(temporary) == []
