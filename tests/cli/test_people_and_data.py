"""The commands of people and of personal data: who may, what is shown, and what is kept."""

import asyncio
import hashlib
import re
import sqlite3
import zipfile
from contextlib import closing
from pathlib import Path

import pytest

from app.wiring import serving
from reconcile.instants import DAY
from tests.api.driving import driving, event
from tests.cli.test_commands import PHONE, Run
from tests.cli.test_commands import filled as filled  # fixtures
from tests.cli.test_commands import run as run
from tests.reconcile.build import T


@pytest.fixture
def old(tmp_path: Path) -> None:
    """Make a paid order of a year ago."""

    async def fill() -> None:
        async with driving(tmp_path, with_worker=True) as driver:
            driver.clock.put(T - 365 * DAY)
            await driver.send(event("e1", customer={"phone": PHONE}))

    asyncio.run(fill())


def with_tokens(run: Run, folder: Path, **roles: str) -> dict[str, tuple[str, str]]:
    """Add operators, the first of them an admin. Return the option that names each one's token."""
    first, tokens = next(iter(roles)), {}
    for name, role in roles.items():
        run("operators", "add", name, "--role", role, "--by", first)
        made = run("operators", "token", name, "--until", "30d", "--by", first)
        file = folder / f"{name}.token"
        file.write_text(made.out)
        tokens[name] = ("--token-file", str(file))
    return tokens


def test_a_tokens_name_is_given_once(run: Run) -> None:
    """So that the trail says which one it was; who changes a token is given a name for the next."""
    assert run("tokens", "add", "shop").code == 0
    again = run("tokens", "add", "shop")
    assert (again.code, "named shop; choose another name, such as shop-2" in again.err) == (2, True)
    assert run("tokens", "add", "shop-2").code == 0
    assert run("tokens", "revoke", "shop").code == 0
    again = run("tokens", "add", "shop")
    assert "named shop, which was revoked; choose another name, such as shop-3" in again.err


@pytest.mark.slow
def test_operators_and_their_trail(run: Run) -> None:
    """The first is an admin; from then on who asks must be named, and may or may not."""
    assert run("operators", "add", "Sue", "--role", "support").code == 2
    assert run("operators", "add", "Ann", "--role", "admin").code == 0
    assert run("operators", "add", "Sue", "--role", "support", "--by", "Ann").code == 0
    assert run("tokens", "add", "shop", "--by", "Sue").code == 2
    assert run("tokens", "add", "shop").code == 2
    assert run("tokens", "add", "shop", "--by", "Ann").code == 0
    assert run("tokens", "revoke", "shop", "--by", "Ann").code == 0
    assert run("operators", "disable", "Sue", "--by", "Ann").code == 0
    listed = run("operators", "list", "--format", "json").document
    assert [(each["name"], each["disabled_at"] is None) for each in listed] == [
        ("Ann", True),
        ("Sue", False),
    ]
    entries = run("audit", "list", "--format", "json").document
    assert [(each["number"], each["action"], each["subject"]) for each in entries] == [
        (1, "operator_added", "Ann"),
        (2, "operator_added", "Sue"),
        (3, "token_added", "shop"),
        (4, "token_revoked", "shop"),
        (5, "operator_disabled", "Sue"),
    ]
    for words, numbers in (
        (["--subject", "shop"], [3, 4]),
        (["--who", "Ann", "--action", "operator_added"], [2]),
        (["--after", "3", "--limit", "1"], [4]),
    ):
        found = run("audit", "list", *words, "--format", "json").document
        assert [each["number"] for each in found] == numbers
    assert run("audit", "list", "--action", "sung").code == 2


def test_a_person_acts_with_a_token_of_their_own(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a file or by the environment; the trail marks what only the machine's owner said. A token
    is good for nobody else, and for nothing once it was revoked."""
    file = tmp_path / "boss.token"
    run("operators", "add", "Boss", "--role", "admin")
    made = run("operators", "token", "Boss", "--until", "1d", "--by", "Boss")
    file.write_text(made.out)
    own = ("--token-file", str(file))
    assert run(*own, "operators", "add", "Ann", "--role", "finance").code == 0
    other = run(*own, "operators", "add", "Ben", "--role", "finance", "--by", "Ann")
    assert (other.code, "the token belongs to Boss" in other.err) == (2, True)
    monkeypatch.setenv("TALLYHOOK_OPERATOR_TOKEN", made.out.strip())
    assert run("operators", "add", "Ben", "--role", "finance").code == 0
    assert run("operators", "token", "Ann", "--until", "1d").code == 0
    listed = run("tokens", "list", "--format", "json").document
    assert [(each["name"], each["operator"]) for each in listed] == [
        ("Ann", "Ann"), ("Boss", "Boss"),
    ]  # fmt: skip
    assert run("tokens", "revoke", "Boss").code == 0
    refused = run("operators", "add", "Eve", "--role", "finance")
    assert (refused.code, "token was refused" in refused.err) == (2, True)
    monkeypatch.setenv("TALLYHOOK_OPERATOR_TOKEN", "no token")
    assert run("operators", "add", "Eve", "--role", "finance").code == 2
    for wrong in (tmp_path, tmp_path / "nothing"):
        unread = run("--token-file", str(wrong), "operators", "add", "Eve", "--role", "finance")
        assert (unread.code, "cannot be read" in unread.err) == (2, True)
    trail = run("audit", "list", "--format", "json").document
    said = {
        each["subject"]: "account" in each["facts"] for each in trail if each["role"] == "admin"
    }
    assert said == {"Boss": False, "Ann": False, "Ben": False}
    (first,) = [each for each in trail if each["action"] == "token_added"][:1]
    assert "account" in first["facts"]
    assert made.out.strip() not in str(trail)


@pytest.mark.parametrize(("zone", "end"), [
    ("Africa/Nairobi", "2099-06-30T21:00:00Z"), ("UTC", "2099-07-01T00:00:00Z"),
])  # fmt: skip
def test_a_token_is_good_through_the_day_that_is_named(
    run: Run, monkeypatch: pytest.MonkeyPatch, zone: str, end: str
) -> None:
    """A day of the merchant's, as every command takes one for an end."""
    monkeypatch.setenv("TALLYHOOK_TIMEZONE", zone)
    run("operators", "add", "Boss", "--role", "admin")
    words = ("--until", "2099-06-30", "--by", "Boss", "--format", "json")
    assert run("tokens", "add", "books", *words).document["until"] == end
    assert run("operators", "token", "Boss", *words).document["until"] == end


def test_an_order_is_found_and_its_number_shown_to_who_says_why(
    run: Run, filled: dict[str, str]
) -> None:
    found = run("orders", "find", "+254 711 223 344", "--format", "json")
    assert [hit["order"] for hit in found.document["hits"]] == ["ORD-1"]
    assert "+254 ••• ••• •44" in found.err
    assert run("orders", "find", "nothing-like-it").code == 5
    assert PHONE not in run("orders", "show", "ORD-1").out
    assert run("orders", "show", "ORD-1", "--with-personal-data").code == 2
    shown = run("orders", "show", "ORD-1", "--with-personal-data", "--reason", "he called")
    assert PHONE in shown.out
    (entry,) = run("audit", "list", "--subject", "ORD-1", "--format", "json").document
    assert (entry["action"], entry["reason"]) == ("unmasked", "he called")


def test_numbers_of_several_orders_take_two_with_tokens_of_their_own(
    run: Run, filled: dict[str, str], tmp_path: Path
) -> None:
    """Proposed by one, approved by another, and then shown to the first alone."""
    tokens = with_tokens(run, tmp_path, Boss="admin", Sue="support", Sam="support")
    words = ("orders", "unmask", "ORD-1", "--purpose", "refund", "--reason", "it came back")
    assert run(*words).code == 2
    asked = run(*tokens["Sue"], *words, "--format", "json")
    identity = asked.document["id"]
    assert "proposals approve" in asked.err
    assert run(*tokens["Sue"], "orders", "numbers", identity).code == 2
    done = run(*tokens["Sam"], "proposals", "approve", identity, "--reason", "I saw it")
    assert done.code == 0
    assert run(*tokens["Sam"], "orders", "numbers", identity).code == 2
    seen = run(*tokens["Sue"], "orders", "numbers", identity, "--format", "json")
    assert seen.document == [{"order": "ORD-1", "phones": [PHONE], "note": ""}]
    trail = run("audit", "list", "--subject", "ORD-1", "--format", "json")
    assert [(each["who"], each["action"]) for each in trail.document] == [("Sue", "unmasked")]
    others = (asked, done, trail, run("proposals", "show", identity))
    assert all(PHONE not in each.out + each.err for each in others)
    both = ("orders", "unmask", "ORD-1", "--finding", "redelivered")
    assert run(*tokens["Sue"], *both, "--purpose", "refund", "--reason", "so").code == 2


def test_who_reads_a_refused_delivery_is_in_the_trail(run: Run, filled: dict[str, str]) -> None:
    run("deliveries", "show", filled["paid"])
    run("deliveries", "show", filled["live"])
    (entry,) = run("audit", "list", "--format", "json").document
    assert (entry["action"], entry["subject"]) == ("rejection_read", filled["live"])


def test_places_are_listed_and_reported(run: Run, old: None) -> None:
    """Without a database's help; and of one erasure, in its table and its JSON."""
    listed = run("erase", "--places", "--format", "json").document
    assert {"where": "deliveries.body", "personal": "personal", "what": "a delivery as it arrived",
            "erasure": "emptied"} in listed  # fmt: skip
    words = ("erase", "--phone", f"+{PHONE}", "--dry-run")
    places = {each["place"]: each for each in run(*words, "--format", "json").document["places"]}
    assert (places["deliveries.body"]["went"], places["deliveries.body"]["stays"]) == (1, 0)
    assert "deliveries.body" in run(*words).out


@pytest.mark.slow
def test_erasing(run: Run, old: None, tmp_path: Path) -> None:
    """First looked at, then done; the files are searched, and asked again nothing is left."""
    words = ("erase", "--phone", f"+{PHONE}", "--reason", "asked by letter")
    looked = run(*words, "--dry-run", "--format", "json").document
    assert (looked["orders"], looked["deliveries"], looked["kept"]) == (1, 1, [])
    done = run(*words)
    assert (done.code, PHONE in done.out + done.err) == (0, False)
    assert "+254" not in done.out
    assert "Erased: bodies and headers of 1 delivery about 1 order" in done.err
    assert all(PHONE.encode() not in path.read_bytes() for path in tmp_path.iterdir())
    assert run(*words).code == 5
    assert run("db", "check").code == 0
    assert run("log", "verify").code == 0
    assert run("db", "vacuum").code == 0
    assert run("orders", "show", "ORD-1").code == 0


def test_a_copy_of_a_persons_data_is_written_for_its_owner_alone(
    run: Run, old: None, tmp_path: Path
) -> None:
    """The machine's owner takes it at once, said so in the trail; operators with their own tokens
    propose it, and the proposer takes what another approved."""
    copy, mine = tmp_path / "copy.zip", ("privacy", "export", "--phone", f"+{PHONE}")
    words = (*mine, "--identity", "called back at the number", "--out", str(copy))
    done = run(*words, "--format", "json")
    assert done.code == 0
    assert done.document["sha256"] == hashlib.sha256(copy.read_bytes()).hexdigest()
    assert f"Its SHA-256 is {done.document['sha256']}." in done.err
    assert PHONE not in done.out + done.err
    assert copy.stat().st_mode & 0o777 == 0o600
    with zipfile.ZipFile(copy) as archive:
        assert PHONE in archive.read("index.html").decode()
    (noted,) = run("audit", "list", "--action", "data_exported", "--format", "json").document
    assert (noted["role"], noted["subject"]) == ("account", "+254 ••• ••• •44")
    assert "copy.zip exists" in run(*words).err
    assert "--out is missing: name the ZIP" in run(*mine, "--identity", "seen").err
    assert run("privacy", "export", "--identity", "seen", "--out", "x.zip").code == 2
    tokens = with_tokens(run, tmp_path, Boss="admin", Ann="admin", Ben="admin")
    made = run(*tokens["Ann"], *mine, "--identity", "seen")
    assert (made.code, "Proposed as prp_" in made.err, PHONE in made.err) == (0, True, False)
    name = re.findall(r"prp_\w+", made.err)[0]
    assert run(*tokens["Ben"], "proposals", "approve", name, "--reason", "letter seen").code == 0
    second = ("--proposal", name, "--out", str(tmp_path / "second.zip"))
    assert run(*tokens["Ben"], *mine, *second).code == 2
    assert run(*tokens["Ann"], *mine, *second).code == 0


def test_a_trace_in_an_unused_place_is_reported_until_the_file_is_written_anew(
    run: Run, old: None, tmp_path: Path
) -> None:
    """What something else deleted without writing over it is no row any more, and still bytes of
    the file: the erasure ends with 1 and says what helps, and that does."""
    path = tmp_path / "t.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA secure_delete=OFF")
        database.execute("CREATE TABLE spare (text)")
        database.execute("INSERT INTO spare VALUES (?)", [PHONE * 20_000])
        database.execute("DROP TABLE spare")
    assert PHONE.encode() in path.read_bytes()
    ended = run("erase", "--phone", PHONE, "--reason", "asked", "--format", "json")
    assert (ended.code, ended.document["kept"]) == (1, [])
    assert ended.document["traces"] == [str(path)]
    assert f"{path} still contains the number" in ended.err
    assert "`tallyhook db vacuum`" in ended.err
    assert run("db", "vacuum").code == 0
    assert PHONE.encode() not in path.read_bytes()


def test_what_must_stay_is_listed_and_shown_by_the_exit_code(
    run: Run, filled: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TALLYHOOK_RETENTION_MINIMUM_DAYS", "7")
    ended = run("erase", "--order", "ORD-1", "--reason", "asked", "--format", "json")
    assert ended.code == 1
    assert [(each["what"], each["why"]) for each in ended.document["kept"]] == [
        ("ORD-1", "minimum"),
        (filled["live"], "refused"),
    ]
    for words in ([], ["--phone", "1", "--order", "O"], ["--order", "ORD-1"]):
        assert run("erase", *words).code == 2
    assert run("erase", "--order", "never-heard-of", "--reason", "x").code == 5


def test_each_class_has_its_own_time(run: Run, old: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only digests of phones are deleted here, and only when it is no longer a dry run."""
    monkeypatch.setenv("TALLYHOOK_RETENTION_PHONES_DAYS", "30")
    for words, digests in ((["--dry-run"], 1), ([], 1), ([], 0)):
        document = run("prune", *words, "--format", "json").document
        assert {each["class"]: (each["days"], each["items"]) for each in document["classes"]} == {
            "bodies": (None, 0),
            "phones": (30, digests),
            "rejections": (None, 0),
            "book_phones": (None, 0),
        }
    (entry,) = run("audit", "list", "--format", "json").document
    assert (entry["action"], entry["facts"]) == ("pruned", {"phones": 1})


def test_an_order_shows_who_stated_what(run: Run, tmp_path: Path) -> None:
    """Each record with its author, and a change of the price with both."""

    async def fill() -> None:
        async with driving(tmp_path) as driver:
            for amount in ("1500.00", "1.00"):
                document = {"amount": amount, "currency": "KES"}
                await driver.api("PUT", "/orders/ORD-1", json=document)
                driver.clock.put(driver.clock.now() + DAY)

    asyncio.run(fill())
    shown = run("orders", "show", "ORD-1").out
    assert shown.count("token:shop") == 3  # two records, and the finding
    assert "changed what is due from KES 1,500.00 to KES 1.00" in shown
    (entry,) = run("audit", "list", "--action", "price_changed", "--format", "json").document
    assert (entry["who"], entry["subject"]) == ("token:shop", "ORD-1")


def test_a_finding_is_accepted_with_a_reason_in_the_trail(run: Run, tmp_path: Path) -> None:
    async def fill() -> None:
        async with driving(tmp_path) as driver:
            document = {"amount": "1000.00", "currency": "KES"}
            await driver.api("PUT", "/orders/ORD-1", json=document)
            await driver.send(event("e1"))

    asyncio.run(fill())
    given = ("orders", "accept", "ORD-1", "--reason", "a tip", "--finding")
    assert run(*given, "overpaid").code == 0
    (entry,) = run("audit", "list", "--action", "finding_accepted", "--format", "json").document
    assert (entry["subject"], entry["reason"]) == ("ORD-1", "a tip")
    refused = run(*given, "refund_failed")
    assert refused.code == 2
    assert "ORD-1" in refused.err


def test_the_consoles_port_is_one_setting(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """For `console`, `serve --console` and the links of invitations; the command line wins."""
    asked = list[object]()

    async def serve(settings: object, **where: object) -> None:
        asked.append(where["console"])

    async def serve_console(settings: object, **where: object) -> None:
        asked.append(where["port"])

    monkeypatch.setattr(serving, "serve", serve)
    monkeypatch.setattr(serving, "serve_console", serve_console)
    assert run("operators", "invite", "Boss", "--role", "admin").out.startswith(
        "http://127.0.0.1:8081/invite#"
    )
    monkeypatch.setenv("TALLYHOOK_CONSOLE__PORT", "9191")
    for words in (("serve", "--console"), ("console",), ("console", "--port", "0")):
        run(*words)
    assert asked == [("127.0.0.1", 9191), 9191, 0]
    assert run("operators", "invite", "Boss", "--by", "Boss").out.startswith(
        "http://127.0.0.1:9191/invite#"
    )
