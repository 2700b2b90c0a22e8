"""A case or a few, decided, and what came of it in words that a test can compare."""

from reconcile.instants import DAY, Instant
from reconcile.matching.breaks import Break
from reconcile.matching.candidates import Searchable
from reconcile.matching.control import Control
from reconcile.matching.match import Decision, Matching
from reconcile.matching.rules import Coverage, HandMatch, MatchRules
from tests.reconcile.books_truth import AS_OF, COVERAGE, RULES, START, Case, streams

AT = START + DAY


def case(reference: str = "ORD-1", minor: int = 1_500, at: Instant = AT) -> Case:
    return Case(reference, minor, at)


def decided(
    *cases: Case,
    rules: MatchRules = RULES,
    coverage: Coverage = COVERAGE,
    as_of: Instant = AS_OF,
    hands: tuple[tuple[str, str], ...] = (),
    beside: list[Searchable] | None = None,
) -> tuple[list[Decision], Control]:
    """Match these cases together; return decisions and totals."""
    paired = [HandMatch(one=one, other=other) for one, other in hands]
    matching = Matching(rules=rules, as_of=as_of, coverage=coverage, hands=paired)
    found = [*matching.by_key(**streams(*cases)), *matching.rest(beside=beside or ())]
    assert matching.control().holds
    return found, matching.control()


def causes(decisions: list[Decision]) -> list[str]:
    """Return causes and kinds of matches, sorted."""
    return sorted(each.cause if isinstance(each, Break) else each.kind for each in decisions)


def stands(control: Control, side: str) -> list[str]:
    """Return the buckets of one side's rows."""
    return sorted(line.bucket for line in control.lines if line.side == side)
