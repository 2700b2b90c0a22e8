"""Compare people's acts with the audit trail."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from sqlalchemy import bindparam, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.text import counted
from app.finance.break_acts import BREAK_ACTIONS
from app.finance.import_digest_store import digests_again
from app.finance.stage_file import FORMS
from app.finance.withdraw_import import ACTIONS
from reconcile.instants import format_instant, format_known
from reconcile.matching.breaks import Act
from reconcile.money import Money, MoneyError, major_text

Facts = dict[str, Any]


class TrailEntry(NamedTuple):
    """Entry of the audit trail."""

    at: int
    who: str
    action: str
    subject: str
    reason: str
    facts: Facts


@dataclass(frozen=True, slots=True, kw_only=True)
class Acts:
    """Kind of act that a table and the audit trail both store."""

    rows: str
    of_row: Callable[..., tuple[str, Facts]]
    actions: frozenset[str]
    entries: Callable[[Sequence[TrailEntry]], list[tuple[str, Facts]]]


# --- imports --------------------------------------------------------------------------------------

_IMPORTED: Final[Mapping[str, str]] = {form.action: kind for kind, form in FORMS.items()}
_WITHDRAWN: Final[Mapping[str, str]] = {action: kind for kind, action in ACTIONS.items()}
_DIGESTS: Final = ("lines_sha256", "texts_sha256")
_COUNTS: Final = ("read", "new", "changed", "rejected")


def _import_row(number: int, withdraws: int | None, read: int, *values: Any) -> tuple[str, Facts]:
    names = ("at", "who", "kind", "file", "sha256", "new", "changed", "rejected", "reason")
    taken_back = None if withdraws is None else f"import {withdraws}"
    facts = dict(zip(names, values, strict=True)) | {"read": read, "withdraws": taken_back}
    return f"import {number}", facts | ({} if withdraws is None else {"lines": read})


def _import_entries(entries: Sequence[TrailEntry]) -> list[tuple[str, Facts]]:
    found = []
    for each in entries:
        facts, stated = each.facts, {"at": each.at, "who": each.who}
        if each.action in _IMPORTED:
            number = facts.get("import")
            stated |= {"kind": _IMPORTED[each.action], "file": each.subject, "withdraws": None}
            stated |= _picked(facts, "sha256", *_COUNTS, *_DIGESTS)
        else:
            number = facts.get("by_import")
            stated |= {"kind": _WITHDRAWN[each.action], "withdraws": each.subject}
            stated |= {"reason": each.reason} | _picked(facts, "file", "lines", *_DIGESTS)
        found.append((f"import {number}", stated))
    return found


_IMPORTS: Final = Acts(
    rows=(
        "SELECT number, withdraws, read, published_at, who, kind, file, sha256, new, changed, "
        "rejected, reason FROM imports WHERE published_at IS NOT NULL ORDER BY number"
    ),
    of_row=_import_row,
    actions=frozenset((*_IMPORTED, *_WITHDRAWN)),
    entries=_import_entries,
)

# --- months and rules -----------------------------------------------------------------------------


def _one_of_each(
    name: str, stated: Callable[[TrailEntry], Facts]
) -> Callable[[Sequence[TrailEntry]], list[tuple[str, Facts]]]:
    return lambda entries: [
        (name.format(each.subject), {"at": each.at, "who": each.who} | stated(each))
        for each in entries
    ]


_CLOSINGS: Final = Acts(
    rows="SELECT period, closed_at, who, second, as_of, document FROM closings ORDER BY closed_at",
    of_row=lambda period, at, who, second, as_of, document: (
        f"the closing of {period}",
        {
            "at": at,
            "who": who,
            "second": second,
            "as_of": format_instant(as_of),
            "digest": f"sha256:{_sha256(document)}",
        },
    ),
    actions=frozenset({"period_closed"}),
    entries=_one_of_each("the closing of {}", lambda entry: {"second": None} | entry.facts),
)

_REOPENINGS: Final = Acts(
    rows="SELECT period, at, who, version, document FROM reopenings ORDER BY at",
    of_row=lambda period, at, who, version, document: (
        f"the reopening of {period}",
        {"at": at, "who": who, "version": version, "digest": f"sha256:{_sha256(document)}"},
    ),
    actions=frozenset({"period_reopened"}),
    entries=_one_of_each("the reopening of {}", lambda entry: entry.facts),
)

_RULES: Final = Acts(
    rows="SELECT number, at, who, toml FROM match_rules ORDER BY number",
    of_row=lambda number, at, who, toml: (
        f"rules {number}",
        {"at": at, "who": who, "sha256": _sha256(toml)},
    ),
    actions=frozenset({"rules_saved"}),
    entries=_one_of_each("{}", lambda entry: entry.facts),
)

# --- breaks and the checklist: several acts of one name, in order ---------------------------------


def _break_row(
    name: str, at: int, who: str, step: Act, value: str, reason: str, second: str | None,
    minor: int, currency: str,
) -> tuple[str, Facts]:  # fmt: skip
    return f"the decision about break {name}", {
        "at": at,
        "who": who,
        "action": BREAK_ACTIONS.get(step),
        "value": value,
        "reason": reason,
        "second": second,
        "amount": _amount(minor, currency),
        "currency": currency,
    }


def _amount(minor: int, currency: str) -> str | None:
    try:
        return major_text(Money(minor=minor, currency=currency))
    except MoneyError:
        return None


_BREAKS: Final = Acts(
    rows=(
        "SELECT break_id, at, who, deed, value, reason, second, minor, currency FROM break_deeds "
        "ORDER BY number"
    ),
    of_row=_break_row,
    actions=frozenset(BREAK_ACTIONS.values()),
    entries=_one_of_each(
        "the decision about break {}",
        lambda entry: (
            {"action": entry.action, "reason": entry.reason, "value": "", "second": None}
            | entry.facts
        ),
    ),
)

_CHECKLIST: Final = Acts(
    rows=(
        "SELECT item, at, signer, state, note FROM signoffs "
        "WHERE substr(signer, 1, 9) <> 'tallyhook' ORDER BY number"
    ),
    of_row=lambda item, at, signer, state, note: (
        f"the signature on {item}",
        {"at": at, "who": signer, "state": state, "note": note},
    ),
    actions=frozenset({"item_signed"}),
    entries=_one_of_each(
        "the signature on {}", lambda entry: {"state": "passed", "note": entry.reason}
    ),
)

# --- operators and tokens -------------------------------------------------------------------------


def _operator_entries(entries: Sequence[TrailEntry]) -> list[tuple[str, Facts]]:
    found: dict[str, Facts] = {}
    for each in entries:
        stated = found.setdefault(each.subject, {"disabled_at": None})
        if each.action == "operator_added":
            stated |= {"created_at": each.at} | each.facts
        else:
            stated["disabled_at"] = each.at
    return [(f"operator {name}", stated) for name, stated in found.items()]


_OPERATORS: Final = Acts(
    rows="SELECT name, role, created_at, disabled_at FROM operators ORDER BY name",
    of_row=lambda name, role, created_at, disabled_at: (
        f"operator {name}",
        {"role": role, "created_at": created_at, "disabled_at": disabled_at},
    ),
    actions=frozenset({"operator_added", "operator_disabled"}),
    entries=_operator_entries,
)


def _token_entries(entries: Sequence[TrailEntry]) -> list[tuple[str, Facts]]:
    found: dict[str, Facts] = {}
    for each in entries:
        if each.action == "token_added":
            stated = {"operator": None, "until": None, "revoked_at": None} | each.facts
            found[each.subject] = stated | {"created_at": each.at}
        elif each.action == "token_revoked":
            found.setdefault(each.subject, {})["revoked_at"] = each.at
        else:  # an operator's own end with the operator
            for own in found.values():
                if own.get("operator") == each.subject and own.get("revoked_at") is None:
                    own["revoked_at"] = each.at
    return [(f"token {name}", stated) for name, stated in found.items()]


_TOKENS: Final = Acts(
    rows=(
        "SELECT name, hash, scopes, created_at, revoked_at, until, operator FROM tokens "
        "ORDER BY name"
    ),
    of_row=lambda name, hashed, scopes, created_at, revoked_at, until, operator: (
        f"token {name}",
        {
            "hash_sha256": _sha256(hashed),
            "scopes": scopes,
            "created_at": created_at,
            "revoked_at": revoked_at,
            "until": format_known(until),
            "operator": operator,
        },
    ),
    actions=frozenset({"token_added", "token_revoked", "operator_disabled"}),
    entries=_token_entries,
)

# --- attachments ----------------------------------------------------------------------------------

_ATTACHED: Final = ("about", "kind", "media", "sha256", "size", "details")

_ATTACHMENTS: Final = Acts(
    rows=(
        "SELECT id, at, who, subject, details, about, kind, media, sha256, size FROM attachments "
        "ORDER BY id"
    ),
    of_row=lambda name, at, who, subject, details, *values: (
        f"attachment {name}",
        {"at": at, "who": who, "subject": subject}
        | dict(zip(_ATTACHED, values, strict=False))
        | ({} if details is None else {"details": _sha256(details)}),
    ),
    actions=frozenset({"attached"}),
    entries=lambda entries: [
        (
            f"attachment {each.facts.get('attachment')}",
            {"at": each.at, "who": each.who, "subject": each.subject}
            | _picked(each.facts, *_ATTACHED),
        )
        for each in entries
    ],
)

# --- comparing ------------------------------------------------------------------------------------


def _sha256(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()


_ALL: Final = (
    _IMPORTS,
    _CLOSINGS,
    _REOPENINGS,
    _RULES,
    _BREAKS,
    _OPERATORS,
    _TOKENS,
    _ATTACHMENTS,
    _CHECKLIST,
)

_ENTRIES: Final = text(
    "SELECT at, who, action, subject, reason, facts FROM audit WHERE action IN :actions "
    "ORDER BY number"
).bindparams(bindparam("actions", expanding=True))


async def prove_trail(connection: AsyncConnection, progress: Callable[[int], None]) -> list[str]:
    """Return a sentence for each act that the trail lacks."""
    found: list[str] = []
    for acts in _ALL:
        rows = [acts.of_row(*row) for row in await connection.execute(text(acts.rows))]
        entries = await _entries(connection, acts.actions)
        found += _differences(rows, acts.entries(entries))
    return found + await _changed_lines(connection, progress)


async def _entries(connection: AsyncConnection, actions: frozenset[str]) -> list[TrailEntry]:
    rows = await connection.execute(_ENTRIES, {"actions": sorted(actions)})
    return [
        TrailEntry(at, who, action, subject, reason, _facts(facts))
        for at, who, action, subject, reason, facts in rows
    ]


def _facts(kept: str) -> Facts:
    try:
        facts = json.loads(kept)
    except ValueError:
        return {}
    return facts if isinstance(facts, dict) else {}


def _differences(
    rows: Sequence[tuple[str, Facts]], entries: Sequence[tuple[str, Facts]]
) -> list[str]:
    by_name: defaultdict[str, list[Facts]] = defaultdict(list)
    for name, facts in entries:
        by_name[name].append(facts)
    found: list[str] = []
    for name, facts in rows:
        if not by_name[name]:
            found.append(f"{name} is not in the trail")
            continue
        entry = by_name[name].pop(0)
        if any(entry[member] != facts[member] for member in entry.keys() & facts.keys()):
            found.append(f"{name} differs from the trail")
    return found + [
        f"the trail has {name}, but it is missing here" for name, left in by_name.items() if left
    ]


async def _changed_lines(connection: AsyncConnection, progress: Callable[[int], None]) -> list[str]:
    now = await digests_again(connection, progress)
    erased = [
        each.at
        for each in await _entries(connection, frozenset({"erased"}))
        if each.facts.get("bank_lines")
    ]
    found = [
        f"{counted(count, 'line')} of {kind} imports {'was' if count == 1 else 'were'} not added "
        "or withdrawn by a recorded import: restore a backup"
        for kind, count in now.strays.items()
        if count
    ]
    lines = {f"import {number}": facts for number, facts in now.facts.items()}
    for name, stated in _import_entries(await _entries(connection, _IMPORTS.actions)):
        compared = _DIGESTS if stated["at"] > max(erased, default=-1) else _DIGESTS[:1]
        again = lines.get(name, {})
        if again and any(stated.get(each, again.get(each)) != again.get(each) for each in compared):
            found.append(
                f"the lines of {name} have changed since it was imported; restore a backup, or "
                "withdraw the import and import its file again (the old lines are still reported "
                "afterwards)"
            )
    return found


def _picked(facts: Mapping[str, Any], *names: str) -> Facts:
    return {name: facts[name] for name in names if name in facts}
