"""Public requests about the log, and their refusal where the log is not published."""

from pathlib import Path

from app.evidence.keys import read_public_key
from app.evidence.prove_sealed import newest_checkpoint
from app.evidence.seal import note_holds, open_signer, read_checkpoint, rename_log, seal_all
from app.evidence.verify_log import verify_log
from app.sealing.departure_store import Departure, add_departure
from reconcile.instants import MINUTE, Instant
from reconcile.transparency.cosignatures import body_of
from reconcile.transparency.merkle import consistency_holds
from tests.api.driving import Driver, driving, event
from tests.evidence.witness import TestWitness

PLACE = "/.well-known/tallyhook"


async def sealed(driver: Driver, folder: Path) -> None:
    """Wait until every delivery has its leaf."""
    await seal_all(driver.context, await open_signer(driver.context))


async def test_a_stranger_follows_the_log_without_a_token(tmp_path: Path) -> None:
    """They get the key, a checkpoint, and later the proof that the new checkpoint extends the
    old."""
    async with driving(
        tmp_path, with_worker=False, EVIDENCE__PUBLISH="true", looking=True
    ) as driver:
        heads = []
        for name in ("e1", "e2"):
            await driver.send(event(name))
            await sealed(driver, tmp_path)
            body = (await driver.client.get(f"{PLACE}/")).json()
            public = read_public_key(body["keys"][-1]["minisign"])
            note = (await driver.client.get(body["checkpoint"])).text
            assert note_holds(note, name=body["log"], public=public)
            heads.append(read_checkpoint(note))
        old, new = heads
        assert old.size < new.size
        address = body["consistency"].format(old=old.size, new=new.size)
        proof = (await driver.client.get(address)).json()
        assert "ORD-1" not in str(body) + note + str(proof)
    assert consistency_holds(
        old=old.size, old_head=old.head, size=new.size, head=new.head,
        proof=[bytes.fromhex(each) for each in proof["path"]],
    )  # fmt: skip


async def test_that_it_was_shown_is_noted_once_an_hour(tmp_path: Path) -> None:
    """A published checkpoint cannot be withdrawn: `log verify` compares with it."""
    async with driving(
        tmp_path, with_worker=False, EVIDENCE__PUBLISH="true", looking=True
    ) as driver:
        shown = []
        for name, later in (("e1", 0), ("e2", 59), ("e3", 1), ("e4", 200)):
            driver.clock.put(Instant(driver.clock.now() + later * MINUTE))
            await driver.send(event(name))
            await sealed(driver, tmp_path)
            for _ in range(2):
                note = (await driver.client.get(f"{PLACE}/checkpoint")).text
            shown.append(read_checkpoint(note).size)
        noted = driver.rows("SELECT size, way FROM log_departures ORDER BY size")
        found = await verify_log(driver.context, progress=lambda done, of: None)
    assert noted == [(shown[place], "published") for place in (0, 2, 3)]
    assert found.left is not None
    assert found.left.size == shown[3]


async def test_what_witnesses_have_cosigned_is_shown_with_their_signatures(tmp_path: Path) -> None:
    key = TestWitness("one.example", lambda: 0)
    settings = {
        "EVIDENCE__PUBLISH": "true",
        "EVIDENCE__WITNESSES": f"{key.key} https://one.example",
    }
    async with driving(tmp_path, with_worker=False, looking=True, **settings) as driver:  # type: ignore[arg-type]
        await driver.send(event("e1"))
        await sealed(driver, tmp_path)
        body = (await driver.client.get(f"{PLACE}/")).json()
        assert body["witnesses"] == [key.key]
        assert (await driver.client.get(body["cosigned"])).status_code == 404
        head = await newest_checkpoint(driver.context)
        line = key.cosignature(body_of(head.note))
        left = Departure(
            size=head.size, way=key.key, head=head.head, at=head.at, line=line.rstrip("\n")
        )
        async with driver.context.database.writing() as connection:
            await add_departure(connection, left)
        shown = await driver.client.get(body["cosigned"])
    assert shown.text == head.note + line


async def test_earlier_origins_are_shown(tmp_path: Path) -> None:
    """Someone who kept a checkpoint from before a restore learns which log continues it."""
    async with driving(tmp_path, with_worker=False, EVIDENCE__PUBLISH="true") as driver:
        await driver.send(event("e1"))
        await sealed(driver, tmp_path)
        before = (await driver.client.get(f"{PLACE}/")).json()
        assert before["earlier"] == []
        head = await newest_checkpoint(driver.context)
        await rename_log(driver.context, by=None, reason="a backup was put back")
        after = (await driver.client.get(f"{PLACE}/")).json()
    assert after["earlier"] == [{"log": before["log"], "leaves": head.size}]
    assert after["log"] != before["log"]


async def test_before_anything_is_sealed_there_is_nothing(tmp_path: Path) -> None:
    async with driving(
        tmp_path, with_worker=False, EVIDENCE__PUBLISH="true", looking=True
    ) as driver:
        for place in ("/checkpoint", "/cosigned", "/consistency/1/2"):
            answer = await driver.client.get(PLACE + place)
            assert answer.status_code == 404, place


async def test_sizes_that_were_none_are_refused(tmp_path: Path) -> None:
    wrong = ["0/1", "2/1", "1/x", "-1/2", "1/99", "1/" + "9" * 40, "\u0661/2", "1/2/3", "1"]
    async with driving(
        tmp_path, with_worker=False, EVIDENCE__PUBLISH="true", looking=True
    ) as driver:
        await driver.send(event("e1"))
        await sealed(driver, tmp_path)
        for sizes in wrong:
            answer = await driver.client.get(f"{PLACE}/consistency/{sizes}")
            assert answer.status_code == 404, sizes
            assert answer.headers["content-type"] == "application/problem+json"


async def test_it_is_off_unless_it_is_asked_for(tmp_path: Path) -> None:
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        for place in ("/", "/checkpoint", "/cosigned", "/consistency/1/2"):
            assert (await driver.client.get(PLACE + place)).status_code == 404
