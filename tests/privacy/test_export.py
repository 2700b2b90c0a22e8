"""A copy of a person's data has all that is theirs, and nothing of anybody else."""

import io
import json
import re
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.access.operator_store import audit_entries
from app.access.operators import Proven, asking_by_token, register_operator
from app.access.proposal import Proposal
from app.access.proposals import Proposals
from app.core.errors import NotFoundError, UsageError
from app.evidence.attachments import AttachRequest, attach
from app.orders.refold import refold_until_quiet
from app.privacy.export import Exported, ExportRequest, export, export_kind, propose_export
from app.privacy.export_masking import OTHERS, STAFF, PersonalCopy
from reconcile.instants import HOUR
from tests.api.driving import Driver, driving, of_order
from tests.contexts import with_settings
from tests.privacy.test_erase import OTHER, PHONE, SPELLED, erased, paid, quiet
from tests.privacy.test_markers import everywhere
from tests.rows import for_each

IDENTITY = "called back at the number"
EMAIL = "jane.doe@example.com"


def asked(**words: Any) -> ExportRequest:
    given = {"identity": IDENTITY, "by": "Ann"} | (words or {"phone": f"+{PHONE}"})
    return ExportRequest(**given)


def files(made: Exported) -> dict[str, bytes]:
    """Return the files of a copy, which any program opens."""
    with zipfile.ZipFile(io.BytesIO(made.archive)) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def data(made: Exported) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of a copy by table."""
    return {
        name[5:-5]: json.loads(content)
        for name, content in files(made).items()
        if name.startswith("data/")
    }


def everything(made: Exported) -> str:
    return "\n".join(each.decode("utf-8", "replace") for each in files(made).values())


async def test_a_copy_has_all_that_is_the_persons_by_place(tmp_path: Path) -> None:
    """Equal bytes for equal knowledge, and two indexes that need no network. The trail has a
    pseudonym and the digest, and no number."""
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        driver.context = driver.service.context
        await everywhere(driver)
        made = await export(driver.context, asked())
        again = await export(driver.context, asked())
        kept = driver.rows("SELECT who, subject, reason, facts FROM audit WHERE action = ?",
                           "data_exported")  # fmt: skip
    rows, members = data(made), files(made)
    assert again.archive == made.archive
    index = json.loads(members["index.json"])
    assert index["orders"] == ["ORD-1", "ORD-4", "ORD-5"]
    assert {each["place"] for each in index["places"]} == rows.keys()
    assert sum(each["rows"] for each in index["places"]) == made.counts["rows"]
    assert {
        "deliveries", "events", "book_lines", "bank_lines", "attachments", "rejections",
        "unread_values", "revisions", "phones", "unanswered", "audit", "ledgers",
    } <= rows.keys()  # fmt: skip
    bodies = [row["body"]["id"] for row in rows["deliveries"] if "body" in row]
    assert sorted(bodies) == ["e1", "e4", "e5", "e9"]
    said = sorted(each["says"] for each in rows["rejections"])
    assert said == [[f"data.customer.phone: {PHONE}"], [f"x-customer: {SPELLED}"]]
    assert members[rows["attachment_files"][0]["body"]] == f"call {SPELLED}".encode()
    page = members["index.html"].decode()
    assert not re.search(r"(?:src|href)=\"(?!#|files/)|@import|url\(|<script", page)
    for each in index["places"]:
        assert each["until"]
        assert f'id="{each["place"]}"' in page
    assert [(who, subject, reason) for who, subject, reason, _ in kept] == 2 * [
        ("Ann", "+254 ••• ••• •44", IDENTITY)
    ]
    facts = json.loads(kept[0][3])
    assert facts["sha256"] == made.sha256
    assert len(facts["pseudonym"]) == 16
    assert PHONE not in str(kept)
    assert PHONE.encode() not in members["data/audit.json"]


async def test_a_copy_has_nothing_of_other_people(tmp_path: Path) -> None:
    """Of another order in the same body, of another payer of the same order, of people who work
    here; another customer's note that names the person is shown without that customer."""
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        driver.context = context = driver.service.context
        await register_operator(context, name="Ann Achieng", role="admin", by=None)
        own = paid("ORD-1", "e1", email=EMAIL) | {
            "others": [
                {"order": "ORD-2", "payer": "Otieno", "phone": OTHER},
                {"order": "ORD-1", "text": f"ask {OTHER} or baba@example.org of +{PHONE}"},
            ],
            "msisdn2": OTHER[3:],
            "to": {"name": "Njeri Mwangi", "phone": OTHER, "address": {"line": "Moi Avenue 5"}},
            "shipping": {"name": "Chebet", "first_name": "Wanjiku", "city": "Nyeri"},
            "text": "Leave it with NJERI  Mwangi or Chebet, or ask Otieno Ouma.",
            "item": {"name": "Kanga"},
        }
        await driver.send(own)
        await driver.send(paid("ORD-1", "e2", OTHER, name="Otieno Ouma"))
        theirs = paid("ORD-2", "e3", OTHER, name="Otieno Ouma", note=f"his mother: {SPELLED}")
        await driver.send(theirs)
        await refold_until_quiet(context, limit=10, progress=quiet)
        letter = AttachRequest(
            about="order", subject="ORD-1", name="a.txt", kind="other", by="Ann Achieng",
            content=f"Ann Achieng called {OTHER}".encode(), note="for Ann Achieng",
        )  # fmt: skip
        await attach(context, letter)
        made = await export(context, asked(phone=f"+{PHONE}", by="Ann Achieng"))
    told, rows = everything(made), data(made)
    hidden = (OTHER, OTHER[3:], "Otieno", "baba@", "Achieng", "ORD-2",
              "Njeri", "NJERI", "Moi", "Chebet")  # fmt: skip
    assert [each for each in hidden if each in told] == []
    (body,) = [each["body"] for each in rows["deliveries"] if "body" in each]
    assert body["others"][0] == OTHERS
    assert body["others"][1]["text"].endswith(f"of +{PHONE}")
    assert body["data"]["customer"] == {"phone": PHONE, "name": "Wanjiku Kamau", "email": EMAIL}
    masked = {"name": "N•••", "phone": "+254 ••• ••• •77", "address": {"line": "M•••"}}
    assert body["to"] == masked
    assert body["shipping"] == {"name": "C•••", "first_name": "Wanjiku", "city": "Nyeri"}
    assert body["text"] == "Leave it with N••• or C•••, or ask O•••."
    assert body["item"] == {"name": "Kanga"}
    (named,) = [each for each in rows["deliveries"] if "says" in each]
    assert named["says"] == [f"data.customer.note: his mother: {SPELLED}"]
    assert [each["details"]["note"] for each in rows["attachments"]] == [f"for {STAFF}"]


async def test_what_an_erasure_had_to_keep_is_in_the_copy(tmp_path: Path) -> None:
    """An order that is still open; and nothing of it is erased by a look."""
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        driver.context = driver.service.context
        context = with_settings(driver.context, retention_accounts_days=3650)
        await driver.send(paid("ORD-1", "e1"))
        open_ = of_order("ORD-8", "e8", "pending")
        open_["data"] |= {"customer": {"phone": PHONE}}
        await driver.send(open_)
        await refold_until_quiet(driver.context, limit=10, progress=quiet)
        assert [each.what for each in (await erased(driver)).kept] == ["ORD-8"]
        made = await export(context, asked())
        of_order_alone = await export(driver.context, asked(order="ORD-1"))
        with pytest.raises(NotFoundError, match="there is no order 'ORD-7'"):
            await export(driver.context, asked(order="ORD-7"))
        with pytest.raises(NotFoundError, match="nothing is stored about"):
            await export(driver.context, asked(phone="+254700000009"))
    (body,) = [each["body"] for each in data(made)["deliveries"] if "body" in each]
    assert body["id"] == "e8"
    assert [row["thing"] for row in data(made)["restrictions"]] == ["ORD-8"]
    (kept,) = [
        each["kept"]
        for each in json.loads(files(made)["index.json"])["periods"]
        if each["what"].startswith("accounting records")
    ]
    assert "restricted for 3,650 days" in kept
    assert kept in files(made)["index.html"].decode()
    assert "body" not in data(of_order_alone)["deliveries"][0]
    assert {row["order_key"] for row in data(of_order_alone)["events"]} == {"ORD-1"}


async def test_a_copy_that_is_too_large_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.privacy.export.MOST_BYTES", 1000)
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        driver.context = driver.service.context
        await driver.send(paid("ORD-1", "e1"))
        await refold_until_quiet(driver.context, limit=10, progress=quiet)
        with pytest.raises(UsageError, match="MiB: export order by order"):
            await export(driver.context, asked())
        await driver.send(paid("ORD-1", "e2", OTHER, name="Otieno Ouma"))
        await refold_until_quiet(driver.context, limit=10, progress=quiet)
        with pytest.raises(UsageError, match=r"ORD-1 may name 2 customers: .* number or email"):
            await export(driver.context, asked(order="ORD-1"))
        with pytest.raises(UsageError, match="--identity must say how you checked"):
            await export(driver.context, asked(phone=f"+{PHONE}", identity=" "))
        with pytest.raises(UsageError, match="remove the phone number"):
            await export(driver.context, asked(phone=f"+{PHONE}", identity=f"called {SPELLED}"))
        assert driver.rows("SELECT 1 FROM audit WHERE action = 'data_exported'") == []


async def test_a_number_and_an_address_may_be_of_one_customer(tmp_path: Path) -> None:
    """One message states this, and the other that; two addresses are two customers'."""
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        driver.context = driver.service.context
        await driver.send(paid("ORD-1", "e1"))
        for name, address in (("e2", EMAIL), ("e3", "otieno@example.com")):
            other = paid("ORD-1", name, email=address)
            del other["data"]["customer"]["phone"]
            await driver.send(other)
            await refold_until_quiet(driver.context, limit=10, progress=quiet)
            if name == "e2":
                made = await export(driver.context, asked(order="ORD-1"))
        assert len(data(made)["deliveries"]) == 2
        assert EMAIL in everything(made)
        with pytest.raises(UsageError, match="ORD-1 may name 2 customers"):
            await export(driver.context, asked(order="ORD-1"))


@pytest.mark.parametrize("wanted", [False, True])
async def test_attached_pictures_and_pdfs_are_in_a_copy_only_where_that_is_asked(
    tmp_path: Path, wanted: bool
) -> None:
    """Nobody is masked in them; by default the copy lists them, and says why they are left out."""
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        driver.context = context = driver.service.context
        await driver.send(paid("ORD-1", "e1"))
        await refold_until_quiet(context, limit=10, progress=quiet)
        content = b"%PDF-1.7 signed for startxref %%EOF"
        await attach(context, AttachRequest(
            about="order", subject="ORD-1", name="a.pdf", kind="other", by="Ann", content=content
        ))  # fmt: skip
        made = await export(context, asked(order="ORD-1", attachments=wanted))
    (row,) = data(made)["attachment_files"]
    assert (content in files(made).values(), made.counts["unmasked"]) == (wanted, int(wanted))
    assert wanted or row["body"].startswith("left out (PDF, 35 bytes): it cannot be masked")


async def proposed(driver: Driver, **words: Any) -> Proposal:
    made = await propose_export(driver.context, asked(by=Proven("Ann"), **words))
    assert made is not None
    return made


async def test_two_operators_take_a_copy_and_no_number_is_stored(tmp_path: Path) -> None:
    """The proposer alone takes it, for a day, and types the number again."""
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        driver.context = context = driver.service.context
        await driver.send(paid("ORD-1", "e1"))
        await driver.send(paid("ORD-2", "e2", OTHER))
        await refold_until_quiet(context, limit=10, progress=quiet)
        for name in ("Ann", "Ben"):
            await register_operator(context, name=name, role="admin", by="Ann")
        mine = asked(phone=f"+{PHONE}", by=Proven("Ann"))
        with pytest.raises(UsageError, match="needs two operators"):
            await export(context, mine)
        assert await propose_export(context, replace(mine, by="Ann")) is None, "the owner takes it"
        proposal = await proposed(driver, phone=f"+{PHONE}")
        with pytest.raises(UsageError, match="nobody has approved the proposal"):
            await export(context, mine, approved=proposal)
        proposals = Proposals(context, [export_kind(context)])
        with asking_by_token(Proven("Ben")):
            proposal = await proposals.approve(proposal.id, by=None, reason="I saw the letter")
        assert PHONE not in str(driver.rows("SELECT * FROM proposals"))
        for other, match in (
            ({"phone": f"+{OTHER}"}, "for +254 ••• ••• •44"), ({"order": "ORD-1"}, "is only for"),
            ({"phone": f"+{PHONE}", "attachments": True}, "excludes attached PDFs"),
        ):  # fmt: skip
            with pytest.raises(UsageError, match=re.escape(match)):
                await export(context, asked(by=Proven("Ann"), **other), approved=proposal)
        with pytest.raises(UsageError, match="only Ann may see the result"):
            await export(context, replace(mine, by=Proven("Ben")), approved=proposal)
        made = await export(context, mine, approved=proposal)
        assert PHONE in everything(made)
        async with context.database.reading() as connection:
            (noted,) = await audit_entries(connection, limit=9, action="data_exported")
        assert (noted.who, noted.facts["second"], noted.reason) == ("Ann", "Ben", IDENTITY)
        driver.clock.put(driver.clock.now() + 24 * HOUR)
        with pytest.raises(UsageError, match="the approval expired at"):
            await export(context, mine, approved=proposal)


@for_each(
    ("content", "shown"),
    [
        ({"a": 1.25, "b": None, "c": True}, {"a": "1.25", "b": None, "c": True}),
        (
            {"at": 1764583200000, "day": 20261120100000},
            {"at": 1764583200000, "day": 20261120100000},
        ),
        ({"to": int(OTHER)}, {"to": "+254 ••• ••• •77"}),
        ({"phone": OTHER[3:]}, {"phone": "+79 ••• ••77"}),
        ([{"sku": "a"}, {"sku": "b"}], [{"sku": "a"}, {"sku": "b"}]),
        ([{"order": "5"}, {"order": "7"}], [{"order": "5"}, OTHERS]),
        ({"m": f"+{PHONE} not +{OTHER}"}, {"m": f"+{PHONE} not +254 ••• ••• •77"}),
    ],
)
def test_own_documents_keep_their_form(content: Any, shown: Any) -> None:
    copy = PersonalCopy([PHONE], things=["5"], staff=[])
    assert copy.whole(json.dumps(content)) == shown
    assert PHONE not in repr(copy)


@for_each(
    ("content", "shown"),
    [
        (b"not named", []),
        (b"x\nof 0711 223344\ny", ["of 0711 223344"]),
        (b'{"a": {"b": ["%b", "c"]}, "d": "e"}' % PHONE.encode(), [f"a.b.1: {PHONE}"]),
        (b"2547112%323344", [PHONE]),
        (b'{"0711223344": 5}', ["0711223344"]),
        (b"a " * 900 + PHONE.encode() + b" b" * 900, None),
    ],
)
def test_of_anothers_text_only_what_names_the_person_is_shown(
    content: bytes, shown: list[str] | None
) -> None:
    found = PersonalCopy([PHONE], things=[], staff=[]).passages(content)
    if shown is None:
        (line,) = found
        assert PHONE in line
        assert len(line) <= 500
    else:
        assert found == shown
