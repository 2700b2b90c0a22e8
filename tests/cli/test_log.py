"""The commands on the log, and which key may sign."""

import json
import os
import sqlite3
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest

from app.evidence.seal import read_checkpoint
from reconcile.canonical import canonical_json
from reconcile.transparency.merkle import consistency_holds, inclusion_holds, leaf_hash
from tests.api.driving import driving, of_order
from tests.cli.test_commands import Run, filled, run
from tests.waiting import soon

__all__ = ["filled", "run"]

KEY = "TALLYHOOK_EVIDENCE__KEY_FILE"


def change(folder: Path, sql: str) -> None:
    with closing(sqlite3.connect(folder / "t.db")) as connection:
        connection.execute(sql)
        connection.commit()


def test_a_log_without_its_key_is_an_incomplete_database(
    run: Run, filled: dict[str, str], tmp_path: Path
) -> None:
    """A copy that was made of a database in use can lack rows."""
    assert run("log", "seal").code == 0
    change(tmp_path, "DELETE FROM log_keys")
    for words in (("log", "seal"), ("log", "verify")):
        refused = run(*words)
        assert (refused.code, refused.out) == (4, ""), words
        assert "its log has no key; restore a backup" in refused.err


@pytest.mark.slow
def test_from_a_delivery_to_a_proof(run: Run, filled: dict[str, str], tmp_path: Path) -> None:
    """Nothing is sealed, then all is; a stranger checks the proof with what is printed."""
    assert run("log", "checkpoint").code == 5
    assert run("log", "verify").code == 5
    assert "log seal" in run("log", "prove", filled["paid"]).err
    sealed = run("log", "seal")
    assert (sealed.code, sealed.out) == (0, "")
    printed = run("log", "checkpoint")
    point = read_checkpoint(printed.out)
    assert f"{point.size} leaves" in printed.err
    proof = run("log", "prove", filled["paid"]).document
    assert leaf_hash(canonical_json(proof["leaf"])).hex() == proof["leaf_hash"]
    assert (proof["leaf"]["id"], proof["leaf"]["source"]) == (filled["paid"], "shop")
    assert (proof["checkpoint"], proof["size"]) == (printed.out, point.size)
    path = [bytes.fromhex(each) for each in proof["path"]]
    assert inclusion_holds(
        bytes.fromhex(proof["leaf_hash"]),
        index=proof["number"],
        size=proof["size"],
        proof=path,
        head=point.head,
    )
    assert "254711223344" not in run("log", "prove", filled["paid"]).out
    assert run("log", "prove", "dlv_nobody").code == 5
    (tmp_path / "kept").write_text(printed.out)
    run("operators", "add", "ann", "--role", "admin")
    run("log", "seal")
    grown = run("log", "consistency", str(point.size), str(point.size + 1)).document
    new = read_checkpoint(grown["new"])
    assert consistency_holds(
        old=point.size,
        old_head=point.head,
        size=new.size,
        head=new.head,
        proof=[bytes.fromhex(each) for each in grown["path"]],
    )
    assert run("log", "consistency", "1", str(new.size)).code == 5
    assert run("log", "consistency", "9", "2").code == 2
    found = run("log", "verify", "--against", str(tmp_path / "kept"), "--format", "json")
    assert (found.code, found.document["valid"]) == (0, True)


def test_a_change_is_reported_and_ends_with_1(
    run: Run, filled: dict[str, str], tmp_path: Path
) -> None:
    run("log", "seal")
    assert run("log", "verify").out.endswith("all valid.\n")
    change(tmp_path, f"UPDATE deliveries SET source='x' WHERE id='{filled['paid']}'")
    found = run("log", "verify")
    assert found.code == 1
    assert f"({'delivery ' + filled['paid']}) and its row disagree on source" in found.out
    assert run("log", "verify", "--format", "json").document["found"] == 1
    (tmp_path / "kept").write_bytes(b"\xff")
    assert run("log", "verify", "--against", str(tmp_path / "kept")).code == 2
    assert run("log", "verify", "--against", str(tmp_path / "none")).code == 2


@pytest.mark.slow
def test_the_key_is_made_once_shown_in_every_form_and_replaced_by_word(
    run: Run, filled: dict[str, str], tmp_path: Path
) -> None:
    shown = run("log", "key", "--format", "json").document
    file = tmp_path / "t.evidence.key"
    assert shown["file"] == str(file)
    assert shown["note"].startswith(shown["log"] + "+")
    assert all(shown[name] in run("log", "key").out for name in shown)
    private = "".join(file.read_text().splitlines()[1:-1])
    assert private not in run("log", "key").out
    run("log", "seal")
    if os.geteuid() == 0:  # as the service's user made it
        os.chown(file, 4321, 4322)
    owner = (file.stat().st_uid, file.stat().st_gid)
    again = run("log", "key", "--rotate", "--format", "json").document
    assert (file.stat().st_uid, file.stat().st_gid) == owner
    assert (again["log"], again["ed25519"] != shown["ed25519"]) == (shown["log"], True)
    assert len(list(tmp_path.glob("t.evidence.key.until-*"))) == 1
    run("log", "seal")
    assert run("log", "verify").code == 0
    proof = run("log", "prove", "deed:1").document
    assert proof["opened"]["said"]["value"]["action"] == "key_rotated"
    commitments = {
        name: sha256(canonical_json({"part": name, **part})).hexdigest()
        for name, part in proof["opened"].items()
    }
    assert sha256(canonical_json(commitments)).hexdigest() == proof["leaf"]["parts"]


@pytest.mark.slow
def test_another_key_is_refused_with_what_to_do(
    run: Run, filled: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run("log", "key", "--format", "json").document
    file = tmp_path / "t.evidence.key"
    monkeypatch.setenv(KEY, str(tmp_path / "other.key"))
    missing = run("log", "seal")
    assert (missing.code, not (tmp_path / "other.key").exists()) == (3, True)
    assert first["fingerprint"] in missing.err
    assert "--rotate" in missing.err
    alone = run("log", "verify")
    assert alone.code == 0
    assert "There is no evidence key in" in alone.err
    (tmp_path / "new.db").touch()
    monkeypatch.setenv("TALLYHOOK_DATABASE_URL", f"sqlite+aiosqlite:///{tmp_path}/new.db")
    assert run("log", "key").code == 0
    monkeypatch.setenv("TALLYHOOK_DATABASE_URL", f"sqlite+aiosqlite:///{tmp_path}/t.db")
    for words in (["log", "seal"], ["serve", "--port", "0"]):
        refused = run(*words)
        assert refused.code == 3
        assert f"{KEY}: {tmp_path}/other.key holds the key sha256:" in refused.err
    output = run("log", "verify")
    assert output.code == 1
    assert f"the signing key, {first['fingerprint']}, is not the key of this machine" in output.out
    monkeypatch.setenv(KEY, str(file))
    assert run("log", "seal").code == 0
    file.chmod(0o644)
    assert "chmod 600" in run("log", "seal").err


def test_an_operator_of_the_right_role_rotates(run: Run, filled: dict[str, str]) -> None:
    run("log", "key")
    run("operators", "add", "ann", "--role", "admin")
    run("operators", "add", "sue", "--role", "support", "--by", "ann")
    assert run("log", "key", "--rotate", "--by", "sue").code == 2
    assert run("log", "key", "--rotate", "--by", "ann").code == 0


async def test_the_service_seals_by_itself_and_says_how_far(tmp_path: Path) -> None:
    async with driving(tmp_path, looking=True) as driver:
        for number in range(3):
            await driver.send(of_order(f"O-{number}", f"e{number}"))
        sealed = "SELECT count(*) FROM log_leaves WHERE kind='delivery'"
        await soon(lambda: driver.rows(sealed) == [(3,)])
        output = (await driver.client.get("/metrics")).text
        assert "\ntallyhook_log_waiting " in output
        leaves = [line for line in output.splitlines() if line.startswith("tallyhook_log_leaves ")]
        assert float(leaves[0].split()[1]) >= 3
        assert await driver.ready()
        sealing = dict(driver.service.parts)["the task that seals the evidence"]
        sealing.stop()
        await soon(lambda: not sealing.alive)
        answer = json.loads((await driver.client.get("/readyz")).content)
        assert answer["reasons"] == ["the task that seals the evidence is not running"]


async def test_a_receiver_without_a_worker_needs_no_key_and_is_ready_with_a_backlog(
    tmp_path: Path,
) -> None:
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        await driver.send(of_order("O-1", "e1"))
        assert await driver.ready()
        assert "the task that seals the evidence" not in dict(driver.service.parts)
        assert not (tmp_path / "t.evidence.key").exists()
        assert "tallyhook_log_waiting 1.0" in (await driver.client.get("/metrics")).text
