"""Pages of matching rules: the current rules, forms for common rules, previews, and suggested
fees."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from app.access.proposal import Proposal
from app.console.finance_pages import day
from app.console.proposals_pages import proposed
from app.console.view import PROPOSE, Act, ActionResult, Document, Field, Form, View, stated
from app.console.words import address
from app.core.errors import NotFoundError, UsageError
from app.core.jobs import Job, job_document
from app.core.text import counted
from app.finance import bank_match, fee_suggestions, match_rules, rule_file, rule_text
from reconcile.instants import TICK, Instant
from reconcile.matching.rows import name_of
from reconcile.periods import Calendar


async def rules_document(view: View) -> Document:
    """Return the current rules and every possible setting."""
    saved = await match_rules.current_rules(view.context)
    rules = match_rules.rules_of(saved)
    return {
        "rules": match_rules.rules_document(saved),
        "limits": rule_text.limits_of(rules),
        "close_alone": rules.close_alone,
        "settings": [{"toml": each.toml, "means": each.means} for each in rule_text.SETTINGS],
    }


# --- forms for common rules -----------------------------------------------------------------------

RULE_FORMS: Final[Mapping[str, str]] = {
    "limit": "What one person may decide about alone",
    "fee": "A fee that you expect",
    "tolerance": "A difference that does not matter",
    "methods": "Payment methods outside providers",
}

METHODS: Final[Mapping[str, str]] = {
    "outside": "Paid to you, and through no provider",
    "bank": "Paid to your bank account",
    "tender": "Paid with a gift card or store credit",
}


async def ask_add_rule(view: View) -> Form:
    """Return the form for one rule, filled in with its current values."""
    kind = stated("rule", view.choice("rule", RULE_FORMS))
    saved = await match_rules.current_rules(view.context)
    fields = _FIELDS[kind](view, match_rules.rules_of(saved))
    return Form(
        RULE_FORMS[kind],
        "/rules",
        "Your entry is put into the rules in force, whose other lines stay as they are. Then you "
        "see which matches would be new, lost or changed, before you put the rules in force or "
        "propose them.",
        reason=False,
        fields=fields,
    )


def _limit_fields(view: View, rules: rule_file.Rules) -> tuple[Field, ...]:
    code = view.word("currency") or ""
    known = next((e for e in rule_text.limits_of(rules) if e["currency"] == code), {})
    hints = {
        "accept_alone_max": (
            "If empty, this currency has no limit: any amount needs two people once another "
            "currency has a limit."
        ),
        "accept_alone_day": "Empty: the same as for one decision.",
        "accept_alone_month": "Empty: five times the limit of a day.",
    }
    given = {
        "accept_alone_max": code in rules.alone_max,
        "accept_alone_day": code in rules.alone.get("day", {}),
        "accept_alone_month": code in rules.alone.get("month", {}),
    }
    return (
        _currency_field(code),
        *(
            Field(
                name,
                label,
                value=known[name] if given[name] else "",
                hint=hints[name],
                required=False,
            )
            for name, label in rule_text.LIMITS.items()
        ),
    )


def _currency_field(code: str = "") -> Field:
    return Field("currency", "Currency", value=code, hint="Such as KES.")


def _fee_fields(view: View, rules: rule_file.Rules) -> tuple[Field, ...]:
    return (
        Field(
            "source", "Source", choices=tuple((each, each) for each in sorted(view.context.sources))
        ),
        _currency_field(),
        Field("percent", "Percent of the payment", value="0", hint="Such as 2.9."),
        Field("fixed", "And for each payment", value="0", hint="Such as 0.30."),
    )


def _tolerance_fields(view: View, rules: rule_file.Rules) -> tuple[Field, ...]:
    hint = "Such as 1.00. Empty: amounts may not differ."
    return (
        _currency_field(),
        Field("amount", "Amounts may differ by", hint=hint, required=False),
    )


def _methods_fields(view: View, rules: rule_file.Rules) -> tuple[Field, ...]:
    return tuple(
        Field(
            name,
            label,
            kind="area",
            value="\n".join(getattr(rules.match.methods, name)),
            hint="Names as the order book has them, one a line; case and blanks do not matter.",
            required=False,
        )
        for name, label in METHODS.items()
    )


_FIELDS: Final[Mapping[str, Callable[[View, rule_file.Rules], tuple[Field, ...]]]] = {
    "limit": _limit_fields,
    "fee": _fee_fields,
    "tolerance": _tolerance_fields,
    "methods": _methods_fields,
}


async def do_add_rule(view: View, reason: str) -> str:
    """Add the form's rule, and preview the effect."""
    kind = stated("rule", view.choice("rule", RULE_FORMS))
    saved = await match_rules.current_rules(view.context)
    toml = "" if saved is None else saved.toml
    given = {name: value.strip() for name, value in view.given.items()}
    return await _tried(view, _with_rule(toml, kind, given, match_rules.rules_of(saved)))


def _with_rule(toml: str, kind: str, given: Mapping[str, str], rules: rule_file.Rules) -> str:
    if kind == "methods":
        for name in METHODS:
            names = [each.strip() for each in given.get(name, "").splitlines() if each.strip()]
            if tuple(names) != getattr(rules.match.methods, name):
                toml = rule_text.with_setting(toml, f"methods.{name}", names)
        return toml
    currency = rule_text.known_currency(given.get("currency", ""))
    if kind == "limit":
        for name in rule_text.LIMITS:
            toml = rule_text.with_setting(toml, f"{name}.{currency}", given.get(name) or None)
        return toml
    if kind == "tolerance":
        return rule_text.with_setting(toml, f"tolerance.{currency}", given.get("amount") or None)
    source = given.get("source", "")
    block = rule_text.fee_block(
        source=source,
        currency=currency,
        percent=given.get("percent") or "0",
        fixed=given.get("fixed") or "0",
    )
    return rule_text.with_fees(
        toml,
        block,
        replaced=lambda fee: (
            (fee.get("source"), fee.get("currency")) == (source, currency) and not fee.get("where")
        ),
    )


# --- trying rules, and putting them in force ------------------------------------------------------


async def tried_as(view: View, rules: str) -> str:
    """Return the text that identifies a preview's job."""
    saved = await match_rules.current_rules(view.context)
    return f"{0 if saved is None else saved.number} {rules}"


def rules_tried(job: Job) -> str:
    """Return the text of the rules that a job previewed."""
    return job.mark.partition(" ")[2]


def preview_of(view: View, name: str) -> Job:
    """Return the job of a rules preview. Raises NotFoundError for an unknown job."""
    job = view.console.jobs.job(name)
    if job is None or job.kind != "preview":
        raise NotFoundError("this preview is no longer stored: try the rules again")
    return job


async def preview_document(view: View) -> Document:
    """Return the content of `GET /previews/{job}`: the changes that the previewed rules would
    make."""
    job = preview_of(view, view.subject)
    nothing: Document = {"as_of": None, "rules": [], "totals": [], "changes": [], "not_told": 0}
    result = job.result or nothing
    changes = [
        {"effect": each["effect"], **(each["after"] or each["before"])}
        for each in result["changes"][: None if view.format == "csv" else view.rows]
    ]
    return {
        "preview": job.name,
        "job": job_document(job),
        "rules": rules_tried(job),
        "as_of": result["as_of"],
        "differ": result["rules"],
        "totals": result["totals"],
        "changes": changes,
        "not_told": result["not_told"] + len(result["changes"]) - len(changes),
    }


async def fees_document(view: View) -> Document:
    """Return the fee rules that statement lines suggest."""
    found = await _suggested_fees(view)
    calendar = Calendar(view.context.calendar_zone)
    days = {
        "from": calendar.day_of(found.since),
        "to": calendar.day_of(Instant(found.until - TICK)),
    }
    return found.document() | days


async def _text_rule(view: View, line: str) -> tuple[str, str]:
    key = view.choice("as", ("bank_payers", "other_business")) or "other_business"
    if not view.person.may("bank"):
        raise UsageError("your role may not read what the bank wrote")
    booked = (await bank_match.named_lines(view.context, [line])).get(name_of(line))
    words = "" if booked is None else (booked.counterparty or booked.text or booked.reference or "")
    if len(words.strip()) < 3:
        raise UsageError("the text of this bank line is too short for a rule")
    return key, words.strip()[:80]


async def _suggested_fees(view: View) -> fee_suggestions.FeeSuggestions:
    zone, calendar = view.context.calendar_zone, Calendar(view.context.calendar_zone)
    this_month = calendar.month(calendar.day_of(view.context.clock.now())[:7]).start
    last_day = calendar.day_of(Instant(this_month - TICK))
    since = day(view.word("from") or f"{last_day[:7]}-01", "From", zone=zone)
    until = day(view.word("to") or last_day, "To", zone=zone, after=True)
    if since is None or until is None or since >= until:
        raise UsageError("the first day must not lie after the last one")
    return await fee_suggestions.suggest_fees(view.context, since=since, until=until)


async def ask_preview_rules(view: View) -> Form:
    saved = await match_rules.current_rules(view.context)
    rules = "" if saved is None else saved.toml
    if view.word("from") is not None:  # including the suggested fees
        rules = await fee_suggestions.rules_with(view.context, await _suggested_fees(view))
    elif (line := view.word("bank")) is not None:
        rules = rule_text.with_names(rules, *await _text_rule(view, line))
    return Form(
        "matching rules",
        "/rules",
        "Everything is matched under the rules in force and under these. You see which matches "
        "would be new, lost or changed, with money. Nothing is stored.",
        "After that you may put these rules in force, or propose them.",
        reason=False,
        fields=(
            Field(
                "rules",
                "Rules (TOML)",
                kind="area",
                value=rules,
                hint='Such as date_window = "2 days". At most 12,000 characters.',
                required=False,
            ),
        ),
    )


async def do_preview_rules(view: View, reason: str) -> str:
    return await _tried(view, view.given.get("rules", "").replace("\r\n", "\n"))


async def _tried(view: View, rules: str) -> str:
    work = partial(view.console.reads_rules, match_rules.previewed_rules, rules)
    mark = await tried_as(view, rules)
    job = await view.job("preview", view.person.name, work=work, mark=mark)
    return address("previews", job.name)


async def ask_save_rules(view: View) -> Form:
    job = preview_of(view, view.needed("preview"))
    back, subject = address("previews", job.name), "the rules that were tried"
    if job.ended is None or job.problem is not None:
        lines: tuple[str, ...] = ("It is not known what they would change: look at the preview.",)
        return Form(subject, back, *lines, ready=False)
    if not await _still_against(view, job):
        lines = ("Other rules were put in force since these were tried: try them again.",)
        return Form(subject, back, *lines, ready=False)
    count = sum(each["count"] for each in job.result["totals"])
    changes = [match_rules.RuleChange(**each) for each in job.result["rules"]]
    alone = await match_rules.may_save_alone(view.context)
    return Form(
        subject,
        back,
        match_rules.limits_sentence(changes),
        f"They would change {counted(count, 'match or break', 'matches and breaks')}, as the "
        "preview shows."
        if count
        else "They would change no match and no break.",
        "The next run uses them; earlier runs and closed months stay as they are.",
        "You put them in force in your name."
        if alone
        else "The rules in force limit what one person may do alone: you propose these, and "
        "they are in force when another operator approves them.",
        button="" if alone else PROPOSE,
    )


async def do_save_rules(view: View, reason: str) -> str | ActionResult:
    """Save the previewed rules. If a second person must approve, make a proposal."""
    job = preview_of(view, view.needed("preview"))
    if job.ended is None or job.problem is not None or not await _still_against(view, job):
        raise UsageError("there is no up-to-date preview of these rules: try the rules again")
    done = await view.console.reads_rules(
        match_rules.save_rules, rules_tried(job), by=view.person.name, reason=reason
    )
    return proposed(done) if isinstance(done, Proposal) else "/rules"


async def _still_against(view: View, job: Job) -> bool:
    return job.mark == await tried_as(view, rules_tried(job))


ACTS: Final = (
    Act("A rule", "rules_saved", ask_add_rule, do_add_rule, button="Compare"),
    Act("Try rules", "rules_saved", ask_preview_rules, do_preview_rules, button="Compare"),
    Act(
        "Put rules in force",
        "rules_saved",
        ask_save_rules,
        do_save_rules,
        button="Put them in force",
        done="The rules are in force; the next run uses them.",
    ),
)
