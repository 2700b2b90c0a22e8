"""Preflight checks of an installation, each with advice.

No sentence contains a secret.
"""

import json
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from app.access.operator_store import TokenEntry
from app.core.alarm import Alarm
from app.core.errors import TallyhookError
from app.core.http import Exchange
from app.core.text import capital, counted
from app.database.facts import DatabaseFacts
from app.database.gaps import Gap
from app.database.servers import AWAITS_STANDBY
from app.monitoring.service_note import ANSWERED_BY, ServiceNote
from app.providers.provider_client import Probe
from app.providers.schemes import TOKENS
from app.providers.sections import Profile
from app.receiving.journal_state import JournalState
from app.receiving.source_state import SourceState
from reconcile.instants import DAY, SECOND, Duration, Instant, format_instant

State = Literal["ok", "weak", "must"]

SKEW_WEAK: Final[Duration] = 3 * SECOND
"""Clock difference above which a person is warned."""

SKEW_MUST: Final[Duration] = 30 * SECOND
"""Clock difference above which a person must act."""

CERTIFICATE_SOON: Final[Duration] = 14 * DAY

MIB: Final = 1024 * 1024

SPARE_MIB: Final = 1024
"""Free MiB that should be left before deliveries are refused; half a million fit."""


NAMED: Final = 6
"""Maximum number of changed settings that one line names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Result of one check."""

    what: str
    state: State
    """`ok`; `weak` if a person should know the result; `must` if a person must act."""
    sentence: str
    do: str | None = None
    """Advice, if any."""


def ok(what: str, sentence: str) -> Check:
    return Check(what=what, state="ok", sentence=sentence)


def weak(what: str, sentence: str, do: str | None = None) -> Check:
    """Return a check result that a person should know."""
    return Check(what=what, state="weak", sentence=sentence, do=do)


def must(what: str, sentence: str, do: str) -> Check:
    """Return a check result for something on which a person must act."""
    return Check(what=what, state="must", sentence=sentence, do=do)


def of_configuration(problems: tuple[str, ...]) -> Iterator[Check]:
    """Yield a check result for each problem of the configuration."""
    for line in problems:
        variable, _, sentence = line.partition(": ")
        yield must(variable, f"{sentence}.", MEND_SETTING)


MEND_SETTING: Final = (
    "change it, then run this again; a running service keeps the settings from its start"
)


def of_settings(changed: Sequence[str]) -> Iterator[Check]:
    """Check that the running service uses the present settings."""
    if changed:
        more = len(changed) - NAMED
        names = f"{', '.join(changed[:NAMED])}{f' and {more} more' if more > 0 else ''}"
        sentence = f"{names} changed after the service started, and the service still uses the old"
        do = "restart the service to apply the change"
        yield weak("settings", f"{sentence} {'values' if len(changed) > 1 else 'value'}.", do)


def of_service(note: ServiceNote, answer: Exchange) -> Iterator[Check]:
    """Report whether the last started service is ready."""
    at = f"at {note.address}"
    if answer.problem == "connection_failed" or (
        answer.status is not None and answer.headers.get(ANSWERED_BY.lower()) != note.name
    ):
        sentence = f"The service that was started last does not answer {at}: it has ended, or runs"
        yield weak(
            "service",
            f"{sentence} elsewhere.",
            "start the service, or run this command on its machine",
        )
    elif answer.status is None:
        sentence = f"The service does not answer {at} ({answer.problem})."
        yield must("service", sentence, "check its log, and whether the machine is overloaded")
    elif reasons := json.loads(answer.body)["reasons"]:
        for reason in reasons:
            sentence = f"Not ready: {reason}."
            yield must("service", sentence, "check its log; `/readyz` shows when it is ready")
    else:
        yield ok("service", f"The service is ready {at}.")


def of_secret_file(variable: str, mode: int | None) -> Check:
    """Check the permissions of a file that contains secrets.

    The mode is None if the file cannot be read.
    """
    if mode is None:
        return must(variable, "The file's permissions cannot be read.", "give this user access")
    permissions = f"Its mode is {stat.S_IMODE(mode):o}"
    if mode & 0o027:
        return must(variable, f"{permissions}: others can read or change it.", "chmod 640 it")
    return ok(variable, f"{permissions}: no other user can change it.")


def of_database_folder(folder: Path, *, writable: bool) -> Iterator[Check]:
    """Check that this user may write in the database's folder."""
    if not writable:
        yield must(
            "database folder",
            f"This user cannot write to {folder}, the folder of the database and its files.",
            "run this as the service's user, or let this user write there; check with `mount` "
            "whether its file system is read-only",
        )


def of_import_folder(folder: Path, *, usable: bool) -> Check:
    """Check the folder from which files are imported automatically."""
    what = "import folder"
    if usable:
        return ok(what, f"{folder} is watched.")
    return must(
        what,
        f"{folder} is not a folder that this user can write to, so nothing in it is imported.",
        "create it with a folder for each source, and let the service's user write there",
    )


def of_source(source: SourceState) -> Check:
    """Report the state of a source's deliveries."""
    sentence = f"{source.state}: {source.whole_sentence}"
    if source.state == "ok":
        return ok(f"source {source.source}", sentence)
    state: State = "must" if source.state == "refusing" else "weak"
    return Check(what=f"source {source.source}", state=state, sentence=sentence, do=source.do)


def of_unallocated(words: str) -> Check:
    """Report payments that belong to no order."""
    do = "assign each to its order, or dismiss it: `tallyhook unallocated list`"
    return weak("unallocated", f"{words}.", do)


def of_gap(gap: Gap, *, held: int) -> Check:
    """Report an accepted gap, and the orders that are still held because of it."""
    sentence = (
        f"{gap.sentence()}. {gap.accepted_by} accepted it at {format_instant(gap.accepted_at)}: "
        f"{gap.reason.strip().removesuffix('.')}."
    )
    if not held:
        return ok("gap", sentence)
    orders = counted(held, "order is", "orders are")
    return weak(
        "gap",
        f"{sentence} {orders} still held because of it.",
        "look each up at its provider and in the shop's books, then `tallyhook orders release "
        "--held-for gap_accepted`",
    )


def of_key_file(variable: str, *, there: bool, needed: bool) -> Iterator[Check]:
    """Check a key file that this program has created.

    needed  whether the database depends on the key
    """
    if there:
        sentence = "No backup of the database holds it: keep a copy in another safe place."
        yield ok(variable, sentence)
    elif needed:
        yield must(variable, "The database needs it, and it is missing.", "put its copy back")


def of_phone_notes(variable: str, *, others: bool) -> Iterator[Check]:
    """Check that a search can find every stored phone number."""
    if others:
        yield must(
            variable,
            "The database uses another key, so no order is found by phone numbers stored with it.",
            "put that key's file back, or stop the service and run `tallyhook reindex`",
        )


def of_readings(sources: Iterable[str]) -> Iterator[Check]:
    """Check that stored deliveries were read with the present settings."""
    for source in sources:
        yield must(
            f"source {source} settings",
            "PROFILE, its file, ACCOUNT, ONLY, ORDERS, LINK_BY or CAPTURES has changed since its "
            "deliveries were read, so earlier and later payments are judged differently.",
            "stop the service, run `tallyhook reindex` and start it again",
        )


def of_erasure_journal(variable: str, state: JournalState) -> Iterator[Check]:
    """Check the journal of erasures and its key."""
    if state.problem is not None:
        what, _, do = state.problem.rpartition("; ")
        yield must(variable, f"{what[:1].upper()}{what[1:]}.", do)
    elif state.path is None:
        sentence = "It is not set, so nobody's personal data can be erased."
        yield weak(variable, sentence, "name a file on a disk that a restore does not replace")
    elif state.begun:
        sentence = "No database backup contains it or its key: keep copies in another safe "
        yield ok(variable, f"{sentence}place, and copy it after each erasure.")
    if state.pending:
        lines = counted(state.pending, "line of it is", "lines of it are")
        sentence = f"{lines} not carried out yet, so this database still contains personal "
        yield must(variable, f"{sentence}data that must be erased.", "; ".join(state.waits))
    if state.restricted:
        next_end = "their ends are not known"
        if state.next_end is not None:
            next_end = f"the next period ends at {format_instant(state.next_end)}"
        are = counted(state.restricted, "thing is", "things are")
        sentence = f"{are} kept about erased people and hidden from searches: {next_end}."
        yield ok("restricted data", sentence)
    if state.torn:
        sentence = "Its last line is incomplete: that erasure was not started."
        yield weak(variable, sentence, "request that erasure again")


def of_reach(what: str, probe: Probe, *, now: Instant) -> Iterator[Check]:
    """Check whether an address answers, whether it uses TLS, and when its certificate expires."""
    if probe.tls_problem is not None:
        yield must(what, f"TLS fails: {probe.tls_problem}.", "fix the certificate or the address")
        return
    if probe.problem is not None:
        yield must(
            what,
            f"It does not answer ({probe.problem}).",
            "check that it runs, and check the address and the firewall",
        )
        return
    yield ok(what, f"It answers, with status {probe.status}.")
    if probe.tls is None:
        do = "use this only on one machine, or for a trial"
        yield weak(f"{what} TLS", "The connection has no TLS.", do)
    elif probe.certificate_ends is not None:
        ends = format_instant(probe.certificate_ends)
        soon = probe.certificate_ends - now < CERTIFICATE_SOON
        sentence = f"{probe.tls}; the certificate ends {ends}."
        yield weak(f"{what} TLS", sentence, "renew it") if soon else ok(f"{what} TLS", sentence)


def of_company(issuer: str, problem: str | None) -> Check:
    """Report whether the company's sign-in works."""
    what = "company's sign-in"
    if problem is None:
        return ok(what, f"{issuer} answers, and states its addresses and keys.")
    sentence = f"Nobody can sign in there: {problem}."
    return must(
        what, sentence, "check TALLYHOOK_OIDC__ISSUER and the provider, then run this again"
    )


def of_clock(probe: Probe, *, before: Instant, after: Instant) -> Check:
    """Compare this machine's clock with a provider's answer."""
    if probe.date is None:
        return weak(
            "clock", "There was no other clock to compare with.", "synchronize the clock by NTP"
        )
    # The header is truncated to the second, so the time may be anywhere within that second.
    ahead, behind = before - (probe.date + SECOND), probe.date - after
    skew = max(ahead, behind, 0)
    seconds = f"{skew / SECOND:.0f} s"
    if skew > SKEW_MUST:
        sentence = f"This clock and the provider's differ by {seconds}; signatures will be refused."
        return must("clock", sentence, "synchronize the clock by NTP (timedatectl set-ntp true)")
    if skew > SKEW_WEAK:
        sentence = f"This clock and the provider's differ by {seconds}."
        return weak("clock", sentence, "synchronize the clock by NTP (timedatectl set-ntp true)")
    return ok("clock", "This clock and the provider's agree.")


def of_no_database(error: TallyhookError) -> Check:
    return must("database", f"{capital(str(error))}.", "then run this again")


def of_database(facts: DatabaseFacts) -> Iterator[Check]:
    """Check the database for settings and states that endanger its data."""
    name = f"{facts.kind} {'.'.join(map(str, facts.version))}"
    for setting in facts.off:
        yield must(
            "database", f"The server has {setting}=off: a crash loses deliveries.", "turn it on"
        )
    for subject, sentence in (
        ("restored", facts.moved),
        ("writes", facts.no_writes),
        ("pooler", facts.pooled),
        ("standby", AWAITS_STANDBY if facts.awaits else None),
    ):
        if sentence is not None:
            what, _, do = sentence.partition("; ")
            yield must(subject, f"{what[:1].upper()}{what[1:]}.", do)
    for sentence in facts.standbys:
        what, _, do = sentence.partition("; ")
        yield weak("standby", f"{what}.", do)
    if facts.kind == "SQLite" and facts.journal_mode != "wal":
        yield must(
            "database",
            f"{name} uses journal_mode={facts.journal_mode}, which `tallyhook serve` refuses.",
            "put it on a local disk",
        )
    elif facts.kind == "SQLite" and has_reset_bug(facts.version):
        yield weak(
            "database",
            f"{name} can lose data if one program checkpoints the log while another writes. "
            "Tallyhook prevents that; other programs may not.",
            "let no other program open the file (use `tallyhook backup` for backups), or install "
            "SQLite "
            "3.51.3",
        )
    elif not facts.off:
        yield ok("database", f"{name} keeps confirmed commits.")


def has_reset_bug(version: tuple[int, ...]) -> bool:
    """Check for the WAL-reset bug of SQLite 3.7.0 to 3.51.2.

    The versions 3.44.6 and 3.50.7 have the correction. Source: https://sqlite.org/wal.html.
    """
    mended = any(version[:2] == line[:2] and version >= line for line in ((3, 44, 6), (3, 50, 7)))
    return (3, 7, 0) <= version < (3, 51, 3) and not mended


def of_order_records(*, required: bool, since: Instant | None, live: bool) -> Check:
    """Check whether the shop must state the price of each order.

    since  time since which new orders need a price, or None
    """
    what = "prices"
    if not required:
        sentence = (
            "An order whose price the shop has not stated counts as paid at the event's price."
        )
        do = "set TALLYHOOK_REQUIRE_ORDER_RECORD=on, and state each order's price"
        return weak(what, sentence, do) if live else ok(what, sentence)
    begun = "the first start" if since is None else format_instant(since)
    return ok(what, f"Orders first known after {begun} need a price stated by the shop.")


def of_tokens(ending: Iterable[TokenEntry]) -> Iterator[Check]:
    """Report each API token that expires soon."""
    for entry in ending:
        assert entry.until is not None
        sentence = f"The token {entry.name} ends {format_instant(entry.until)}."
        yield weak("tokens", sentence, "create another with `tallyhook tokens add` for the program")


def of_disk(free: int | None, *, low_water_mib: int) -> Iterator[Check]:
    """Check the free space on the database's disk.

    None as `free` means a database server.
    """
    if free is None:
        return
    mib = free // MIB
    sentence = f"{mib:,} MiB are free; deliveries are refused below {low_water_mib:,} MiB."
    if mib <= low_water_mib:
        yield must("disk", sentence, "free some")
    elif mib < low_water_mib + SPARE_MIB:
        yield weak("disk", sentence, "free some soon")
    else:
        yield ok("disk", sentence)


def of_alarm(name: str, alarm: Alarm) -> Check:
    """Return a raised alarm as a check result."""
    made = must if alarm.pressing else weak
    return made(name, f"{alarm.problem}.", alarm.do)


def of_merchant() -> Check:
    """Return a reminder that one instance serves one merchant."""
    return ok(
        "merchant",
        "This instance serves one merchant: an order reference names the same order at all "
        "sources, except those with ORDERS=own.",
    )


def of_profile(source: str, profile: Profile) -> Iterator[Check]:
    """Report what the signatures of a source's provider do not cover."""
    what, found = f"profile of {source}", dict[str, str]()
    asked = (
        "its events count only after the provider has confirmed them, so the provider must be "
        "reachable"
    )
    if profile.signature.mac == "none":
        found[f"it signs nothing; {asked}."] = "let only the provider's addresses through"
    elif profile.signature.mac in TOKENS:
        found[f"it sends a password instead of a signature; {asked}."] = "change it regularly"
    elif profile.account.undocumented:
        found[
            "all of the provider's merchants share its key, and no signed data names the account: "
            "no event counts by itself, and orders stay pending."
        ] = "rely on your records and the provider's statements"
    elif profile.confirm:
        found[f"its signature does not cover everything in its events; {asked}."] = "nothing"
    elif profile.timestamp is None:
        found[
            "it does not sign the time, so a copied delivery can be sent again. Tallyhook "
            "treats the copy as a duplicate."
        ] = "change the secret once a year"
    if not profile.environment.where and not profile.verifies_only:
        found["its events do not state sandbox or live."] = (
            "use different secrets and instances for the provider's sandbox and live accounts"
        )
    for sentence, do in found.items():
        yield weak(what, f"Profile {profile.name}: {sentence}", do)
    if not found:
        yield ok(what, f"Profile {profile.name} signs every body and its time.")
