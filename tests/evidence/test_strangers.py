"""Checks of a bundle by a stranger: verify.py alone, minisign, openssl, a browser, a printer."""

import ast
import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from app.evidence.rendering import VERIFIER, stand_alone, verifier_digest
from app.evidence.verify import CHECKS, check_steps, unpack
from reconcile.instants import format_instant
from tests.evidence.conftest import NOW, Bundles, Forge
from tests.waiting import PATIENCE_S

CHROMIUM = "/usr/bin/chromium"
LATE = format_instant(NOW)


@pytest.fixture
def folder(tmp_path: Path, bundles: Bundles) -> Path:
    """Make a folder with the bundle and its content."""
    (tmp_path / "bundle.zip").write_bytes(bundles.redacted)
    for name, data in unpack(bundles.redacted).items():
        (tmp_path / name).write_bytes(data)
    return tmp_path


def plain_python() -> str:
    """Return an interpreter without the project's packages."""
    return str(Path(sys.base_prefix) / "bin" / "python3")


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": os.environ["PATH"], "LC_ALL": "C"}
    return subprocess.run(
        words, cwd=folder, env=environ, capture_output=True, text=True, timeout=PATIENCE_S
    )


def test_verify_py_runs_where_nothing_is_installed(folder: Path) -> None:
    """It says of every step whether it passed, and of those that it cannot make, why."""
    done = run(folder, plain_python(), "-I", "verify.py", "bundle.zip", LATE)
    assert done.returncode == 0, done.stderr
    verdict, nothing, *lines = done.stdout.splitlines()
    assert verdict == (
        "Every check that was made passed; not checked: signature, checkpoint, ledger, rendered."
    )
    assert nothing == "Not proven, but only stated by the maker of the bundle:"
    assert lines[0] == (
        "- that nothing about the order was left out since 2026-12-30T10:00:00Z; up to "
        "then, it is proven only if a checkpoint whose size is at least 32 left "
        "the shop before the dispute"
    )
    steps = [line for line in lines if not line.startswith("- ")]
    assert [line.partition(".")[2].partition(".")[0] for line in steps] == [
        " archive: passed", " manifest: passed", " digests: passed", " signature: not checked",
        " deliveries: passed", " inclusion: passed", " readings: passed",
        " completeness: passed", " checkpoint: not checked",
        " ledger: not checked", " rendered: not checked",
    ]  # fmt: skip
    assert re.search(r"\d\d leaves are in the log of \d\d leaves\.", done.stdout)


def test_verify_py_finds_what_was_changed(folder: Path, bundles: Bundles, forge: Forge) -> None:
    def change(members: dict[str, bytes]) -> None:
        members["log.json"] = members["log.json"].replace(b'"index":3', b'"index":4')

    (folder / "bundle.zip").write_bytes(bundles.redacted[:-1])
    (folder / "forged.zip").write_bytes(forge(bundles.redacted, change))
    for name, step in (("bundle.zip", "archive"), ("forged.zip", "inclusion, completeness")):
        done = run(folder, plain_python(), "-I", "verify.py", name, LATE)
        assert done.returncode == 1
        assert done.stdout.splitlines()[0] == f"DO NOT RELY ON IT: {step} failed."
    for words in ((), ("missing.zip",), ("bundle.zip", "tomorrow")):
        done = run(folder, plain_python(), "-I", "verify.py", *words)
        assert (done.returncode, done.stdout, "Traceback" in done.stderr) == (2, "", False)


def test_verify_py_folds_where_reconcile_is_at_hand(bundles: Bundles) -> None:
    steps = {each.name: each.passed for each in check_steps(bundles.redacted, CHECKS, NOW)[1]}
    assert steps["ledger"] is True


def test_verify_py_is_of_python_3_8_and_of_the_standard_library() -> None:
    text = stand_alone()
    tree = ast.parse(text, feature_version=(3, 8))
    imported = {
        name.partition(".")[0]
        for node in ast.walk(tree)
        for name in (
            [each.name for each in node.names] if isinstance(node, ast.Import)
            else [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        )
    }  # fmt: skip
    assert imported - set(sys.stdlib_module_names) == {"reconcile"}
    bases = [
        base for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for base in node.bases
    ]
    assert not [base for base in bases if isinstance(base, ast.Subscript)]  # made when it is read
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.Match)]
    later = ("removeprefix", "removesuffix", "zip(", "pairwise", "|=")
    assert not [word for word in later if word in text]


def test_the_repository_has_the_verifier_and_its_digest(folder: Path) -> None:
    """For who trusts neither the ZIP nor the shop. `python -m app.cli.page_tables` writes it."""
    kept = (VERIFIER.with_name("verify.sha256")).read_text()
    assert kept == verifier_digest()
    assert kept.split()[0] == hashlib.sha256((folder / "verify.py").read_bytes()).hexdigest()
    done = run(VERIFIER.parents[2], plain_python(), "-m", "app.evidence.verify",
               str(folder / "bundle.zip"), LATE)  # fmt: skip
    assert "7. readings: passed." in done.stdout


def test_a_reader_learns_how_long_verify_py_is(folder: Path) -> None:
    """To the hundred, in the page beside it and in its own first lines."""
    texts = (folder / "README.txt").read_text() + stand_alone()
    lengths = [int(each) for each in re.findall(r"some (\d+) lines", texts)]
    assert lengths == [round(stand_alone().count("\n"), -2)] * 2


def commands(folder: Path) -> list[str]:
    """List the commands in README.txt, continued lines joined."""
    text = (folder / "README.txt").read_text().replace("\\\n", " ")
    return re.findall(r"^     (\S.*)$", text, re.MULTILINE)


@pytest.mark.parametrize("tool", ["minisign", "openssl"])
def test_the_commands_of_the_readme_accept_the_signatures(folder: Path, tool: str) -> None:
    """As they stand there, on the manifest and on the checkpoint; and refuse a changed one."""
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    wanted = commands(folder)
    assert [line.split()[0] for line in wanted] == [
        "minisign", "sed", "openssl", "openssl", "python3", "head", "sed", "openssl",
    ]  # fmt: skip
    chosen = wanted[:1] if tool == "minisign" else wanted[1:4] + wanted[5:]
    script = "set -eo pipefail\n" + "\n".join(chosen)
    done = run(folder, "bash", "-c", script)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.lower().count("verified") == (1 if tool == "minisign" else 2)
    manifest = (folder / "manifest.json").read_bytes()
    (folder / "manifest.json").write_bytes(manifest.replace(b"ORD-1", b"ORD-2"))
    assert run(folder, "bash", "-c", script).returncode != 0


PHONE = 390


@pytest.mark.slow
@pytest.mark.browser
def test_the_letter_prints_on_two_pages_and_asks_for_nothing(folder: Path) -> None:
    """Twenty deliveries, money back and a dispute: two A4 pages, and not one request."""
    if not Path(CHROMIUM).exists():
        pytest.skip("chromium is not installed")
    from playwright.sync_api import sync_playwright

    asked: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"], timeout=PATIENCE_S * 1_000
        )
        page = browser.new_page(viewport={"width": PHONE, "height": 900})
        page.on("request", lambda request: asked.append(request.url))
        page.goto((folder / "report.html").as_uri())
        wide = page.evaluate("document.documentElement.scrollWidth")
        page.emulate_media(media="print")
        printed = page.pdf(prefer_css_page_size=True)
        title, drawn = page.title(), page.locator("svg circle").count()
        browser.close()
    assert title == "Evidence of order ORD-1"
    assert drawn == 14
    assert wide == PHONE, "nothing sticks out of a phone's page"
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) == 2
    assert asked == [(folder / "report.html").as_uri()]
