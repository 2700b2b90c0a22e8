"""The evidence commands: what they write, what they refuse, and how each can end."""

import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from app.cli import main
from app.evidence.verify import pack, unpack
from tests.api.driving import driving, environ, event
from tests.copied import copy_of

PHONE = "254711223344"

Run = Callable[..., tuple[int, str, str]]


async def _fill(folder: Path) -> None:
    async with driving(folder, looking=True) as driver:
        for _ in range(2):
            await driver.send(event("e1", customer={"phone": PHONE}))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command beside a database of ORD-1; return exit code, output and standard error."""
    copy_of(_fill, tmp_path)
    monkeypatch.chdir(tmp_path)
    for name, value in environ(tmp_path).items():
        monkeypatch.setenv(name, value)

    def running(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main.run(words)
        written = capsys.readouterr()
        assert "Traceback" not in written.err + written.out
        return code, written.out, written.err

    return running


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "kept is not a checkpoint (it does not have three lines)"),
        (b"hello\n", "kept is not a checkpoint (it does not have three lines)"),
        (b"shop.example/log\nmany\nAAAA\n", "(its second line is not a number of leaves)"),
        (b"PK\x03\x04\xff\xfe", "kept is not a checkpoint: name a file"),
        (None, "kept cannot be read: Is a directory"),
    ],
)
def test_a_file_that_is_no_checkpoint_says_nothing_of_the_bundle(
    run: Run, tmp_path: Path, content: bytes | None, why: str
) -> None:
    """It is a wrong word of the command: nobody is told not to rely on a bundle that is right."""
    run("evidence", "build", "ORD-1", "-o", "a.zip")
    kept = tmp_path / "kept"
    kept.mkdir() if content is None else kept.write_bytes(content)
    code, out, err = run("evidence", "verify", "a.zip", "--checkpoint", "kept")
    assert (code, out) == (2, "")
    assert why in err
    assert content is None or "output of `tallyhook log checkpoint`" in err
    (tmp_path / "right").write_text(run("log", "checkpoint")[1])
    words = ("--checkpoint", "right", "--consistency", "kept")
    code, _, err = run("evidence", "verify", "a.zip", *words)
    assert (code, "--consistency: kept" in err or content is None) == (2, True)


def test_a_bundle_is_written_for_its_owner_and_verified(run: Run, tmp_path: Path) -> None:
    """Redacted unless asked otherwise; the JSON has a step's name, whether it passed, and why."""
    assert run("evidence", "build", "ORD-1", "-o", "a.zip")[:2] == (0, "")
    file = tmp_path / "a.zip"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert PHONE.encode() not in file.read_bytes()
    code, out, _ = run("evidence", "verify", "a.zip", "--format", "json")
    document = json.loads(out)
    assert (code, document["valid"], document["order"]) == (0, True, "ORD-1")
    assert set(document["steps"][0]) == {"step", "passed", "sentence"}
    assert document["as_of"].endswith("Z")
    words = ("--with-personal-data", "--reason", "dispute 12")
    _, _, err = run("evidence", "build", "ORD-1", "-o", "b.zip", *words)
    assert "b.zip: full" in err
    assert PHONE.encode() in (tmp_path / "b.zip").read_bytes()


def test_a_dash_is_standard_output_and_no_file_of_that_name(run: Run, tmp_path: Path) -> None:
    """As for reports. A second one is not refused for the first."""
    for _ in range(2):
        code, out, _ = run("evidence", "scenario", "ORD-1", "-o", "-")
        assert (code, json.loads(out)["order"]) == (0, "ORD-1")
    assert not (tmp_path / "-").exists()


def test_the_same_instant_gives_the_same_file(run: Run, tmp_path: Path) -> None:
    run("evidence", "build", "ORD-1", "-o", "a.zip")
    as_of = json.loads(unpack((tmp_path / "a.zip").read_bytes())["manifest.json"])["as_of"]
    run("evidence", "build", "ORD-1", "-o", "b.zip", "--as-of", as_of)
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


def test_a_key_to_trust_is_given_as_a_line_or_as_a_file(run: Run, tmp_path: Path) -> None:
    run("evidence", "build", "ORD-1", "-o", "a.zip")
    text = unpack((tmp_path / "a.zip").read_bytes())["evidence-key.pub"].decode()
    (tmp_path / "shop.pub").write_text(text)
    for key in ("shop.pub", text.splitlines()[-1]):
        code, out, _ = run("evidence", "verify", "a.zip", "--key", key)
        assert (code, "the trusted key" in out) == (0, True)
    for key in ("nonsense", "missing.pub"):
        code, _, err = run("evidence", "verify", "a.zip", "--key", key)
        assert code == 2
        assert "--key" in err


def test_a_changed_bundle_ends_in_one(run: Run, tmp_path: Path) -> None:
    run("evidence", "build", "ORD-1", "-o", "a.zip")
    files = unpack((tmp_path / "a.zip").read_bytes())
    (tmp_path / "b.zip").write_bytes(pack({**files, "ledger.json": b"{}"}))
    code, out, _ = run("evidence", "verify", "b.zip")
    assert code == 1
    assert out.splitlines()[0].startswith("DO NOT RELY ON IT: digests")


def test_it_verifies_without_any_configuration(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a computer that knows no database, no environment and no source."""
    run("evidence", "build", "ORD-1", "-o", "a.zip")
    for name in environ(tmp_path):
        monkeypatch.delenv(name)
    assert run("evidence", "verify", "a.zip")[0] == 0
    assert run("orders", "list")[0] != 0


def test_the_scenario_of_an_order(run: Run, tmp_path: Path) -> None:
    code, _, err = run("evidence", "scenario", "ORD-1", "-o", "a.json")
    assert (code, "2 steps" in err) == (0, True)
    assert PHONE not in (tmp_path / "a.json").read_text()
    (tmp_path / "b.json").write_text("{}")
    nowhere = ("--webhook-url", "http://127.0.0.1:9/webhooks/shop")
    assert run("sandbox", "--play", "b.json", *nowhere)[0] == 2
    code, _, err = run("sandbox", "--play", "a.json", *nowhere)
    assert (code, "does not answer" in err) == (4, True)


WRONG: dict[str, tuple[tuple[str, ...], int, str]] = {
    "an order nobody knows": (("build", "ORD-9", "-o", "x.zip"), 5, "nothing is known"),
    "no instant": (("build", "ORD-1", "-o", "x.zip", "--as-of", "soon"), 2, "--as-of"),
    "to come": (("build", "ORD-1", "-o", "x.zip", "--as-of", "2999-01-01T00:00:00Z"), 2, "future"),
    "a file that is there": (("build", "ORD-1", "-o", "t.db"), 2, "exists"),
    "no folder": (("build", "ORD-1", "-o", "nowhere/x.zip"), 2, "no folder"),
    "no reason": (("build", "ORD-1", "-o", "x.zip", "--with-personal-data"), 2, "--reason"),
    "a reason for nothing": (("build", "ORD-1", "-o", "x.zip", "--reason", "x"), 2, "--reason"),
    "the number in the reason": (
        ("build", "ORD-1", "-o", "x.zip", "--with-personal-data", "--reason", f"call {PHONE}"),
        2,
        "remove the phone number",
    ),
    "no bundle": (("verify", "x.zip"), 5, "no file"),
    "a folder": (("verify", "."), 2, "cannot be read"),
    "no listing": (("verify", "t.db", "--format", "csv"), 2, "not one of"),
    "no scenario of nobody": (("scenario", "ORD-9", "-o", "x.json"), 5, "nothing is known"),
}


@pytest.mark.slow
def test_what_cannot_be_done_is_one_sentence(run: Run, tmp_path: Path) -> None:
    """The exit code says of what kind the mistake is, and nothing is written."""
    for what, (words, code, said) in WRONG.items():
        ended = run("evidence", *words)
        assert ended[0] == code, (what, ended)
        assert said in ended[2], (what, ended)
    assert not (tmp_path / "x.zip").exists()
    assert not (tmp_path / "x.json").exists()


def test_a_file_is_attached_listed_put_in_a_bundle_and_detached(run: Run, tmp_path: Path) -> None:
    (tmp_path / "parcel.pdf").write_bytes(b"%PDF-1.7 signed for startxref %%EOF")
    words = ("--kind", "delivery", "--carrier", "DHL", "--tracking", "JD01", "--note", "a porch")
    code, out, err = run("evidence", "attach", "ORD-1", "parcel.pdf", *words)
    name = out.strip()
    assert (code, "the log seals its digest" in err.lower()) == (0, True)
    (listed,) = json.loads(run("evidence", "attachments", "ORD-1", "--format", "json")[1])[
        "attachments"
    ]
    assert (listed["attachment"], listed["name"], listed["tracking"]) == (
        name, "parcel.pdf", "JD01",
    )  # fmt: skip
    full = ("--attachments", "--with-personal-data", "--reason", "dispute 12")
    assert (
        "The bundle contains the files of 1 attachment"
        in run("evidence", "build", "ORD-1", "-o", "a.zip", *full)[2]
    )
    assert unpack((tmp_path / "a.zip").read_bytes())[f"attachment-{name}.pdf"]
    assert run("evidence", "verify", "a.zip")[0] == 0
    assert run("evidence", "detach", name, "--reason", "another order's")[0] == 0
    assert run("evidence", "detach", name, "--reason", "twice")[0] == 2
    assert run("evidence", "detach", "att_0", "--reason", "none")[0] == 5
    assert run("breaks", "attachments", "brk_1")[0] == 5
    (tmp_path / "x.exe").write_bytes(b"MZ\0")
    for file, kind in (("x.exe", "other"), ("parcel.pdf", "invoice"), ("missing.pdf", "other")):
        assert run("evidence", "attach", "ORD-1", file, "--kind", kind)[0] == 2
    assert run("evidence", "attach", "ORD-404", "parcel.pdf", "--kind", "other")[0] == 5


def test_a_letter_is_written_and_says_what_is_missing(run: Run, tmp_path: Path) -> None:
    code, out, err = run("evidence", "letter", "ORD-1", "-o", "a.html", "--reason-family", "fraud")
    assert (code, out) == (0, "")
    assert stat.S_IMODE((tmp_path / "a.html").stat().st_mode) == 0o600
    assert "The bank's deadline for an answer is not known" in err
    assert "Not met: The receipt or invoice is attached." in err
    shown = json.loads(run("evidence", "letter", "ORD-1", "--format", "json")[1])
    listed = json.loads(run("evidence", "checklist", "ORD-1", "--format", "json")[1])
    assert shown["checklist"]["items"] == listed["items"]
    assert listed["missing"] == sum(not each["there"] for each in listed["items"]) > 0
    day = run("evidence", "checklist", "ORD-1", "--respond-by", "2099-12-04", "--format", "json")
    assert json.loads(day[1])["respond_by"] == "2099-12-04T23:59:59Z"  # all of it is in time
    for words in (
        ("-o", "a.html"),  # it is there
        ("-o", "a.docx"),
        (),
        ("-o", "b.pdf", "--reason-family", "theft"),
        ("-o", "b.pdf", "--respond-by", "soon"),
    ):
        assert run("evidence", "letter", "ORD-1", *words)[0] == 2, words
    assert run("evidence", "letter", "ORD-404", "-o", "b.html")[0] == 5
    assert run("evidence", "checklist", "ORD-404")[0] == 5
    assert not (tmp_path / "b.html").exists()
