"""Check that the balance of each wallet follows from its movements of money.

1 balances   opening + movements = stated balance, for each wallet
2 transfers  both sides of a transfer between wallets of one source add up to zero
3 holds      each release has a hold
4 rhythm     a regular withdrawal is not overdue
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Final, Literal, NamedTuple

from reconcile.instants import DAY, Duration, Instant
from reconcile.ledger.ledger import Facts
from reconcile.matching.books import TO_BANK, StatementKind
from reconcile.matching.breaks import Break
from reconcile.matching.causes import BreakCause
from reconcile.matching.control import Control, WalletTie, break_totals
from reconcile.matching.funds import left_of
from reconcile.matching.period import Period
from reconcile.matching.rows import subject_of
from reconcile.matching.rules import Coverage
from reconcile.money import Money


class WalletRow(NamedTuple):
    """One statement line that changes the balance of a wallet."""

    source: str
    wallet: str
    currency: str
    at: Instant
    line_id: str
    kind: StatementKind
    reference: str | None
    """Reference of the payment, transfer or hold."""
    net: int
    """Change of the balance in minor units."""
    balance: int | None
    """Stated balance after this line, if any."""


WalletFlow = Literal["settled", "withdrawn", "transferred", "held", "disbursed"]

_FLOWS: Final[dict[StatementKind, WalletFlow]] = {
    **dict.fromkeys(TO_BANK, "withdrawn"),
    "transfer": "transferred",
    "conversion": "transferred",
    "hold": "held",
    "release": "held",
    "disbursement": "disbursed",
}

HELD_BACK: Final = "Held"
"""Name of the wallet for held money."""

APART_MOST: Final[Duration] = DAY
"""Maximum time between the two sides of a transfer whose references differ."""

PAST_LEAST, PAST_MOST = 5, 13
"""Minimum and maximum number of withdrawals for a prediction."""

GRACE: Final[Duration] = DAY
"""Additional time before a withdrawal counts as late."""

MOST: Final = 1_000_000
"""Maximum number of transfers and holds that are paired."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WalletSums:
    """Movements of a wallet in a period, in minor units of its currency."""

    source: str
    wallet: str
    currency: str
    opening: int
    """Stated balance at the start, or else the sum of all earlier movements."""
    settled: int = 0
    """Net sum of the money from and to payments."""
    withdrawn: int = 0
    """Net sum of the money from and to the bank."""
    transferred: int = 0
    """Net sum of the money from and to other wallets or currencies."""
    held: int = 0
    """Net sum of the money that was released or put on hold."""
    disbursed: int = 0
    """Net sum of the money from and to other people."""
    stated: int | None = None
    """Stated balance at the end, if any."""
    since: Instant | None = None
    """Date of the oldest hold that is not released. Only for sums of held money."""

    @property
    def closing(self) -> int:
        moved = self.settled + self.withdrawn + self.transferred + self.held + self.disbursed
        return self.opening + moved

    @property
    def name(self) -> str:
        return name_of(self.source, self.wallet)


@dataclass(frozen=True, slots=True, kw_only=True)
class WalletOpening:
    """Balance of a wallet before its first stated balance."""

    source: str
    wallet: str
    currency: str
    at: Instant
    minor: int
    line_id: str
    """Id of the line that states a balance first."""


def due_after(paid: Sequence[Instant]) -> Instant | None:
    """Return the instant after which the next payout is late.

    None means that the payouts are irregular.
    """
    if len(paid) < PAST_LEAST:
        return None
    apart = sorted([after - before for before, after in pairwise(paid)])
    usual, longest = apart[len(apart) // 2], apart[-1]
    return Instant(paid[-1] + longest + GRACE) if longest <= 2 * usual else None


def name_of(source: str, wallet: str) -> str:
    return f"{source} {wallet}".strip()


class Wallets:
    """All wallets as of one instant, checked for one period or for all time."""

    def __init__(
        self,
        rows: Iterable[WalletRow],
        *,
        period: Period | None,
        as_of: Instant,
        coverage: Coverage,
    ) -> None:
        """Check the wallets. Raises ValueError for too many transfers and holds."""
        self._covered = {each.name: each.spans for each in coverage.statements}
        self._period = period or Period()
        self._until = as_of if self._period.until is None else min(as_of, self._period.until)
        self._breaks: list[Break] = []
        self.openings: list[WalletOpening] = []
        self._apart: list[WalletRow] = []
        self._wallets: dict[tuple[str, str], set[str]] = defaultdict(set)
        found: list[WalletSums] = []
        for (source, wallet, currency), own in groupby(rows, key=lambda row: row[:3]):
            found.append(self._balance(source, wallet, currency, own))
        self._end_transfers([row for row in self._apart if row.kind == "transfer"])
        found += self._end_holds([row for row in self._apart if row.kind != "transfer"])
        self.sums = tuple(found)

    def _balance(
        self, source: str, wallet: str, currency: str, rows: Iterable[WalletRow]
    ) -> WalletSums:
        start = self._period.since
        stated, opening = None, None
        last: WalletRow | None = None
        sent: deque[WalletRow] = deque(maxlen=PAST_MOST)
        self._wallets[source, currency].add(wallet)
        earlier, flows = 0, Counter[WalletFlow]()
        for at, group in groupby(rows, key=lambda row: row.at):
            together = list(group)
            if at >= self._until:
                continue
            self._apart += [row for row in together if row.kind in ("transfer", "hold", "release")]
            sent += [row for row in together if row.kind == "withdrawal"]
            if len(self._apart) > MOST:
                raise ValueError(
                    f"there are more than {MOST:,} transfers and holds between balances"
                )
            inside = start is None or at >= start
            if inside and opening is None and stated is not None:
                opening = stated
            before, stated = stated, self._stated_after(together, stated, after=last)
            last = together[-1]
            if before is None and stated is not None:
                before = stated - sum([row.net for row in together if row.balance is not None])
                began = before - earlier - sum(flows.values())
                opening = began if inside else opening
                if began:
                    line_id = min([row.line_id for row in together])
                    self.openings.append(
                        WalletOpening(
                            source=source,
                            wallet=wallet,
                            currency=currency,
                            at=at,
                            minor=began,
                            line_id=line_id,
                        )
                    )
            for row in together:
                if inside:
                    flows[_FLOWS.get(row.kind, "settled")] += row.net
                else:
                    earlier += row.net
        if opening is None:  # nothing happened in the period, or no balance is stated
            opening = earlier if stated is None else stated
        sums = WalletSums(
            source=source,
            wallet=wallet,
            currency=currency,
            opening=opening,
            stated=stated,
            settled=flows["settled"],
            withdrawn=flows["withdrawn"],
            transferred=flows["transferred"],
            held=flows["held"],
            disbursed=flows["disbursed"],
        )
        self._late(sent, sums.closing if stated is None else stated)
        return sums

    def _late(self, sent: Sequence[WalletRow], balance: int) -> None:
        due = due_after([row.at for row in sent])
        if due is None or balance < min([-row.net for row in sent]):
            return
        last = sent[-1]
        spans = self._covered.get(last.source, ())
        if (
            due <= self._until
            and due in self._period
            and any(span.since <= last.at and due <= span.until for span in spans)
        ):
            waiting = Money(minor=balance, currency=last.currency)
            wallet = name_of(last.source, last.wallet)
            self._breaks.append(
                Break(
                    cause="payout_late",
                    subject=subject_of(last.line_id),
                    money=waiting,
                    since=due,
                    cites=(last.line_id,),
                    facts=(
                        ("wallet", wallet),
                        ("waiting", waiting),
                        ("last_at", last.at),
                        ("due_at", due),
                    ),
                )
            )

    def _stated_after(
        self, rows: Sequence[WalletRow], before: int | None, *, after: WalletRow | None
    ) -> int | None:
        stating = [(row.balance, row.net) for row in rows if row.balance is not None]
        if not stating:
            return before
        ends = Counter(balance for balance, _ in stating)
        ends.subtract(Counter(balance - net for balance, net in stating))
        closing = sorted([balance for balance, count in ends.items() if count > 0])
        if not closing:  # incoming money left at once
            closing = sorted({balance for balance, _ in stating})
        if before is None:
            return closing[-1]
        due = before + sum([net for _, net in stating])
        found = min(closing, key=lambda balance: abs(balance - due))
        if found != due:
            assert after is not None, "the balance before these rows is that of a row"
            self._differs(min(rows, key=lambda row: row.line_id), after, due=due, found=found)
        return found

    def _differs(self, row: WalletRow, after: WalletRow, *, due: int, found: int) -> None:
        earlier, later = [int(each.line_id.rpartition(".")[2]) for each in (after, row)]
        between: Facts = (("how", "between files"), ("earlier", earlier), ("later", later))
        self._report(
            "wallet_balance_differs",
            row,
            minor=abs(found - due),
            facts=(
                ("due", Money(minor=due, currency=row.currency)),
                ("stated", Money(minor=found, currency=row.currency)),
                ("difference", Money(minor=abs(found - due), currency=row.currency)),
                ("source", row.source),
                ("sub_account", row.wallet),
                *(between if earlier != later else ()),
            ),
            left=left_of([Money(minor=due - found, currency=row.currency)]),
        )

    def _report(
        self,
        cause: BreakCause,
        row: WalletRow,
        *,
        minor: int,
        facts: Facts,
        left: tuple[Money, ...] = (),
    ) -> None:
        if row.at not in self._period:
            return
        self._breaks.append(
            Break(
                cause=cause,
                subject=subject_of(row.line_id),
                money=Money(minor=minor, currency=row.currency),
                since=row.at,
                cites=(row.line_id,),
                facts=(("wallet", name_of(row.source, row.wallet)), ("moved_at", row.at), *facts),
                left=left,
            )
        )

    def _end_transfers(self, rows: Sequence[WalletRow]) -> None:
        together: dict[tuple[str, str, str | None], list[WalletRow]] = defaultdict(list)
        for row in rows:
            together[row.source, row.currency, row.reference].append(row)
        left = [
            row
            for (_, _, reference), own in together.items()
            if reference is None or sum([each.net for each in own]) != 0
            for row in own
        ]
        waiting: dict[tuple[str, str, int], deque[WalletRow]] = defaultdict(deque)
        alone: dict[str, WalletRow] = {}
        for row in sorted(left, key=lambda row: (row.at, row.line_id)):
            opposite = waiting[row.source, row.currency, -row.net]
            while opposite and row.at - opposite[0].at > APART_MOST:
                opposite.popleft()
            if opposite:
                del alone[opposite.popleft().line_id]
            else:
                waiting[row.source, row.currency, row.net].append(row)
                alone[row.line_id] = row
        for row in alone.values():
            others = self._wallets[row.source, row.currency] - {row.wallet}
            spans = self._covered.get(row.source, ())
            if others and any(span.since <= row.at < span.until for span in spans):
                self._report(
                    "transfer_one_sided",
                    row,
                    minor=abs(row.net),
                    facts=(("moved", Money(minor=row.net, currency=row.currency)),),
                )

    def _end_holds(self, rows: Sequence[WalletRow]) -> Iterator[WalletSums]:
        by_source: dict[tuple[str, str], list[WalletRow]] = defaultdict(list)
        for row in rows:
            by_source[row.source, row.currency].append(row)
        for (source, currency), own in sorted(by_source.items()):
            held: list[tuple[WalletRow, int]] = []
            opening = moved = 0
            for row in sorted(own, key=lambda row: (row.at, row.net > 0, row.line_id)):
                if self._period.since is not None and row.at < self._period.since:
                    opening -= row.net
                else:
                    moved -= row.net
                if row.net < 0:
                    held.append((row, -row.net))
                    continue
                free, kept = row.net, list[tuple[WalletRow, int]]()
                held.sort(key=lambda each: each[0].reference != row.reference)
                for hold, minor in held:
                    freed = min(free, minor)
                    free -= freed
                    if minor > freed:
                        kept.append((hold, minor - freed))
                held = sorted(kept, key=lambda each: each[0].at)
                if free:
                    released = Money(minor=row.net, currency=currency)
                    facts: Facts = (("released", released),)
                    self._report("release_without_hold", row, minor=free, facts=facts)
            yield WalletSums(
                source=source,
                wallet=HELD_BACK,
                currency=currency,
                opening=opening,
                held=moved,
                since=held[0][0].at if held else None,
            )

    def decisions(self) -> Iterator[Break]:
        yield from self._breaks

    def control(self, as_of: Instant) -> Control:
        """Return the breaks, and the computed and stated balances."""
        return Control(
            as_of=as_of,
            breaks=break_totals(self._breaks),
            wallets=tuple(
                WalletTie(
                    wallet=each.name,
                    currency=each.currency,
                    moved=each.closing,
                    stated=each.stated,
                )
                for each in self.sums
                if each.stated is not None
            ),
        )
