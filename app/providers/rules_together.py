"""Rules between several keys of a profile file, and defaults that depend on other keys."""

import re
from collections.abc import Iterable, Set
from contextlib import suppress
from typing import Any, Final
from urllib.parse import urlsplit

from app.core.toml_file import TomlMistake, Values
from app.providers import encodings, keys, kit, paths, questions, schemes, template
from reconcile.ledger.events import PART_KINDS

# --- which locations of a profile its signature covers --------------------------------------------


_WHOLE_BODY: Final = frozenset({"body", "body_or_query", "form_received", "form_joined"})
_WHOLE_QUERY: Final = frozenset({"url"})
"""Names of template references that cover the whole query, also beside a body."""
_PREFIXES: Final = frozenset({"compact", "canonical"})
_OF_BODY: Final = frozenset({"json", "root", "form", "digest"})
_OF_ITEM: Final = frozenset({"json", "digest"})

PRICES: Final[dict[str, tuple[str, ...]]] = {
    "payment": ("payment_currency",),
    "refund": ("refund_currency",),
    "refunded_total": ("refund_currency", "payment_currency"),
    "won": ("refund_currency",),
    "order": ("order_currency",),
    **dict.fromkeys(PART_KINDS, ("parts_currency", "payment_currency")),
}


class SignatureCoverage:
    """Parts of a request that a profile's signature covers.

    signed  template of the signed content; None if a verifier in `named/` covers the body
    items  path of the events; None if the body is the event
    per_item  whether each event has its own signature
    beside  further covered parts: `query`, `header:NAME`
    """

    def __init__(
        self,
        signed: str | None,
        *,
        items: str | None,
        per_item: bool,
        beside: Set[str] = frozenset(),
    ) -> None:
        found = [] if signed is None else template.references(template.read_template(signed))
        self._named = signed is None
        # An item's signature does not cover the rest of the body.
        self._of_body = _OF_ITEM if per_item else _OF_BODY
        self._beside = beside
        self._signed = found
        self._items: paths.JsonPath = (
            paths.compile_path(items, each=True) if items and not per_item else ()
        )

    def covers(self, location: str) -> bool:
        """Return whether every change of the value at this location makes the signature invalid."""
        if "{" in location:
            named = template.references(template.read_template(location))
            return all(self._covers(each.name, each.argument) for each in named)
        kind, _, name = location.partition(":")
        return self._covers(kind, name)

    def covers_body(self) -> bool:
        """Return whether the signature covers the whole body."""
        return self._named or any(
            each.name in _WHOLE_BODY or (each.name in _PREFIXES and not each.argument)
            for each in self._signed
        )

    def _covers(self, kind: str, name: str) -> bool:
        if kind == "text" or (kind in self._of_body and self.covers_body()):
            return True
        if kind in self._beside or f"{kind}:{name}" in self._beside:
            return True
        if kind in self._of_body & {"json", "root"}:
            path = paths.compile_path(name)
            return self._covers_path(self._items + path if kind == "json" else path)
        if kind == "query" and any(
            each.name in _WHOLE_QUERY or (each.name == "query" and not each.argument)
            for each in self._signed
        ):
            return True
        return any(each.name == kind and each.argument == name for each in self._signed)

    def _covers_path(self, path: paths.JsonPath) -> bool:
        if paths.EACH in path:
            return False
        for place, step in enumerate(path):
            if isinstance(step, paths.Where) and not self._is_signed(path):
                # The member in the search condition and the value taken from the object must both
                # be signed.
                asked = (*path[:place], step.name)
                return self._covers_path(asked) and self._covers_path(
                    path[:place] + path[place + 1 :]
                )
        return self._is_signed(path)

    def _is_signed(self, path: paths.JsonPath) -> bool:
        for each in self._signed:
            if each.name in _PREFIXES | {"json"} and each.argument:
                signed = paths.compile_path(each.argument)
                if path == signed or (each.name in _PREFIXES and path[: len(signed)] == signed):
                    return True
        return False


def what_counts(values: dict[str, Any]) -> Iterable[tuple[str, tuple[str, ...]]]:
    """Yield the keys that decide meaning and money, with locations."""
    for key in ("kind", "order", "session", "payment", "movement", "capture", "agreement"):
        yield f"event.{key}", values["event"][key]
    for amount, currencies in PRICES.items():
        if values["amounts"][amount]:
            for key in (amount, *currencies):
                yield f"amounts.{key}", values["amounts"][key]
    for key in ("method", "since", "expires"):
        if values["slow"][key]:
            yield f"slow.{key}", values["slow"][key]


# --- signed content in which the boundary between two fields is not visible ---------------------


_FIXED_LENGTH: Final = ("sha256_hex", "sha512_hex", "sha256_base64", "sha512_base64")
_DOCUMENTS: Final = frozenset({"body", "compact", "canonical"})
_WHOLE: Final = _DOCUMENTS | {"body_or_query", "form_received", "ts"}
_NOT_DIGITS_FIRST: Final = frozenset({"path", "url"})


class FieldBoundaries:
    """Checker that the fields of the signed content have clear boundaries.

    Unclear boundaries let somebody move signed characters between fields.
    """

    def __init__(self, values: dict[str, Any]) -> None:
        self._json = values["request"]["body"] == "json"
        timestamp = values["timestamp"]
        self._digits = timestamp is not None and timestamp["unit"] not in ("iso8601", "any")
        # The references whose values decide what an event is worth, as signed content names them.
        counting: set[str] = set()
        for _, locations in what_counts(values):
            for location in locations:
                if "{" in location:
                    inner = template.references(template.read_template(location))
                    counting |= {each.text for each in inner}
                else:
                    counting.add(location)
        self._counting = counting

    def ambiguous(self, signed: str) -> str | None:
        """Return two fields with an ambiguous boundary, if any."""
        tokens = template.read_template(signed)
        for each in template.references(tokens):
            if each.name == "form_joined":  # the names and ends of its fields are not signed
                return f"the fields of {{{each.text}}}"
        pairs: list[tuple[template.TemplateReference, template.TemplateReference]] = []
        _collect_neighbours(tokens, set(), pairs)
        for left, right in pairs:
            if (self._counts(left) or self._counts(right)) and not self._bounded(left, right):
                return f"{{{left.text}}} and {{{right.text}}}"
        return None

    def _bounded(self, left: template.TemplateReference, right: template.TemplateReference) -> bool:
        if self._is_closed(left) or self._is_closed(right) or left.name == "method":
            return True
        return left.name == "ts" and self._digits and right.name in _NOT_DIGITS_FIRST

    def _is_closed(self, reference: template.TemplateReference) -> bool:
        if reference.filters:
            return reference.filters[-1] in _FIXED_LENGTH
        document = self._json and reference.name in _DOCUMENTS and not reference.argument
        return reference.name == "secret" or document

    def _counts(self, reference: template.TemplateReference) -> bool:
        if reference.name in _PREFIXES and reference.argument:
            return True
        return reference.name in _WHOLE or reference.text in self._counting


def _collect_neighbours(
    tokens: tuple[template.Token, ...],
    before: set[template.TemplateReference],
    found: list[tuple[template.TemplateReference, template.TemplateReference]],
) -> set[template.TemplateReference]:
    for token in tokens:
        if isinstance(token, str):
            before = set()
        elif isinstance(token, template.TemplateGroup):  # it may vanish as a whole
            before = before | _collect_neighbours(token.tokens, before, found)
        else:
            found.extend((each, token) for each in sorted(before, key=lambda each: each.text))
            before = {token} | (before if token.optional else set())
    return before


# --- the rules of [fetch_back] and [setup] --------------------------------------------------------


_REFERENCE: Final = re.compile(r"\{([^{}]*)\}")
_CREDENTIAL: Final = re.compile(r"credential:[a-z0-9_]{1,40}")
_AUTH: Final = re.compile(r"none|bearer|basic|oauth|header:[a-z0-9-]{1,100}")


def fetch_back_is_safe(values: Values) -> Iterable[TomlMistake]:
    """Yield the mistakes in the section [fetch_back]: host, credential and needed fields."""
    rule = values["fetch_back"]
    if (rule is None) != (values["confirm"] is None):
        yield TomlMistake("fetch_back", 'must be given if confirm = "fetch_back", and only then')
    if rule is None:
        return
    for key in ("url", "sandbox_url", "token_url", "sandbox_token_url"):
        several = rule[key] if type(rule[key]) is tuple else (rule[key],)
        for address in several:
            if address is not None and (fault := _address_fault(address, key)):
                yield TomlMistake(f"fetch_back.{key}", fault)
    texts = {"body": rule["body"] or "", "token_body": rule["token_body"]}
    texts |= {f'headers."{name}"': value for name, value in rule["headers"]}
    for key, text in texts.items():
        if fault := _reference_fault(text, credentials=True):
            yield TomlMistake(f"fetch_back.{key}", fault)
    if rule["body"] is not None and rule["method"] != "POST":
        yield TomlMistake("fetch_back.body", "has no effect with method GET")
    if not _AUTH.fullmatch(rule["auth"]):
        yield TomlMistake("fetch_back.auth", "must be none, bearer, basic, header:NAME or oauth")
    # The request for an access token may contain the credentials in its body.
    in_body = rule["auth"] == "oauth" and "{credential:" in rule["token_body"]
    if not in_body and (rule["credential"] is None) != (rule["auth"] == "none"):
        yield TomlMistake("fetch_back.credential", "must be given with every auth except none")
    if (rule["token_url"] is None) != (rule["auth"] != "oauth"):
        yield TomlMistake("fetch_back.token_url", "must be given if auth is oauth, and only then")
    if rule["dated_as_event"] and (rule["occurred_at"] or not values["event"]["occurred_at"]):
        yield TomlMistake(
            "fetch_back.dated_as_event", "needs event.occurred_at, and no fetch_back.occurred_at"
        )
    if values["signature"]["mac"] == schemes.UNSIGNED and values["event"]["items"]:
        yield TomlMistake(
            "event.items", "must be left out, or one request by anyone would cause many questions"
        )
    for key in ("order", "session"):
        # If every question contains this reference, the answer is about no other.
        reference, addresses = f"{{{key}}}", (*rule["url"], *rule["sandbox_url"])
        asked = all(reference in each for each in addresses) or reference in (rule["body"] or "")
        known = rule[key] or asked or _signed_for_us(values, key)
        if values["event"][key] and not known:
            yield TomlMistake(
                f"fetch_back.{key}",
                f"is missing: anyone could write another {key} beside a genuine payment",
            )
    priced = ("amount", "refund", "refunded_total", "states_refunded", "states_charged_back")
    for key in priced:
        if rule[key] and not rule["currency"]:
            yield TomlMistake("fetch_back.currency", f"is missing; fetch_back.{key} needs it")


def _signed_for_us(values: Values, key: str) -> bool:
    return (
        values["signature"]["key"] == "merchant"
        and all(map(_coverage(values).covers, values["event"][key]))
        and FieldBoundaries(values).ambiguous(values["signature"]["signed"] or "") is None
    )


def _address_fault(text: str, key: str) -> str | None:
    try:
        parts = urlsplit(text)
        fixed = bool(parts.hostname) and "{" not in parts.netloc and "@" not in parts.netloc
    except ValueError:
        return "is not an address"
    if parts.scheme != "https" or not fixed:
        return "must begin with https:// and a fixed host"
    if "token" in key and "{" in text:
        return "must be a fixed address"
    return _reference_fault(text)


def _reference_fault(text: str, *, credentials: bool = False) -> str | None:
    # A JSON body has braces of its own; a reference is one of our words in braces. Addresses are
    # stored and shown, so they contain no credential.
    for name in _REFERENCE.findall(text):
        if name.startswith("credential:"):
            if not credentials:
                return "must not hold a credential; put it into a header or the body"
            if not _CREDENTIAL.fullmatch(name):
                return "has a credential whose name is not lower case letters, digits or _"
        if re.fullmatch(r"[a-z_]+", name) and name not in questions.REFERENCES:
            return f"has an unknown reference; known are {{{'}, {'.join(questions.REFERENCES)}}}"
    return None


def slow_claims_are_pending(values: Values) -> Iterable[TomlMistake]:
    """Yield the mistakes in the section [slow]: only pending claims, and a window."""
    slow, rule = values["slow"], values["fetch_back"]
    claims = dict((rule and rule["claims"]) or values["claims"])
    for word in slow["claims"]:
        if claims.get(word) != "pending":
            yield TomlMistake("slow.claims", f"names {word!r}, which no claim maps to pending")
    if slow["claims"] and not any(days for _, days in slow["windows"]):
        yield TomlMistake(
            "slow.windows", "is missing: give the business days that a payment may take"
        )
    if bool(slow["expires"]) != bool(slow["vouchers"]):
        yield TomlMistake("slow.vouchers", "must be given with slow.expires, and only then")
    known = dict((*slow["windows"], *slow["vouchers"]))
    for method, _ in slow["revocable"]:
        if not known.get(method):
            yield TomlMistake(f"slow.revocable.{method}", "is not a slow method of this profile")


def setup_is_of_this_profile(values: Values) -> Iterable[TomlMistake]:
    """Yield the mistakes in the section [setup]."""
    setup, rule = values["setup"], values["fetch_back"]
    if setup["secret"] and values["signature"]["mac"] == schemes.UNSIGNED:
        yield TomlMistake(
            "setup.secret", "has no effect with signature.mac none, which has no secret"
        )
    known = questions.credentials_named(rule) if rule is not None else set()
    for name, _ in setup["credentials"]:
        if name not in known:
            has = f"asks with {', '.join(sorted(known))}" if known else "asks with none"
            yield TomlMistake(
                f"setup.credentials.{name}", f"is not a credential: the profile {has}"
            )


# --- the rules of the other sections, and the defaults that depend on other keys ------------------


_BASIC: Final = {"where": "header:authorization", "format": "scheme", "prefix": "Basic"}


def settle(values: Values) -> None:
    """Fill in the defaults that depend on other keys of the profile."""
    with suppress(KeyError):
        signature, scheme = values["signature"], schemes.SCHEMES.get(values["signature"]["mac"])
        if signature["mac"] == "basic":
            signature.update(_BASIC)
        if not signature["encoding"]:
            signature["encoding"] = scheme.encoding if scheme else "hex"
        if not values["secret"]["encoding"]:
            values["secret"]["encoding"] = "public_key" if scheme and scheme.asymmetric else "text"
    with suppress(KeyError):
        signature, mac = values["signature"], values["signature"]["mac"]
        published = keys.takes_keys(mac) and not values["verifies_only"]
        if signature["key"] is None and mac != schemes.UNSIGNED and not published:
            signature["key"] = "merchant"
    with suppress(KeyError):
        if not values["amounts"]["unit"] and not _priced(values):
            values["amounts"]["unit"] = "major"
    with suppress(KeyError):
        if values["verifies_only"]:
            values["event"]["id"] = values["event"]["id"] or ("digest:body",)
            values["event"]["kind"] = values["event"]["kind"] or ("text:delivery",)


def _priced(values: Values) -> bool:
    return any(values["amounts"][key] for key in PRICES)


def _scheme_has_its_keys(values: Values) -> Iterable[TomlMistake]:
    signature = values["signature"]
    mac = signature["mac"]
    scheme = schemes.SCHEMES.get(mac)
    if signature["options"] and kit.named_scheme(mac) is None:
        yield TomlMistake("signature.options", "has an effect only with mac named:NAME")
    if scheme is None or mac == "basic":
        return
    if signature["where"] is None:
        yield TomlMistake("signature.where", f"is missing; mac {mac} needs it")
    if scheme.covers and signature["signed"] is None:
        yield TomlMistake("signature.signed", f"is missing; mac {mac} needs it")
    if not scheme.covers and signature["signed"] is not None:
        yield TomlMistake("signature.signed", f"has no effect with mac {mac}, which signs nothing")


def _unsigned_has_no_keys(values: Values) -> Iterable[TomlMistake]:
    signature = values["signature"]
    if signature["mac"] in schemes.SCHEMES:
        return
    for key in ("where", "signed", "label", "prefix", "separator"):
        if signature[key] is not None:
            yield TomlMistake(f"signature.{key}", f"has no effect with mac {signature['mac']}")
    if values["timestamp"] is not None:
        yield TomlMistake("timestamp", f"has no effect with mac {signature['mac']}")


def _key_says_whose_it_is(values: Values) -> Iterable[TomlMistake]:
    key, account = values["signature"]["key"], values["account"]
    stated = [account["where"], account["undocumented"], values["confirm"]]
    if key is None and values["signature"]["mac"] != schemes.UNSIGNED:
        yield TomlMistake(
            "signature.key",
            "is missing: write merchant if the provider made this key only for your account, "
            "provider if all its merchants share it",
        )
    elif key == "provider" and not any(stated):
        yield TomlMistake(
            "account",
            "is missing: the provider signs every merchant's events with this key. Write "
            "[account] where = the signed member that names the account, or confirm = "
            '"fetch_back", or [account] undocumented = true, with which no event counts by itself',
        )
    if account["undocumented"] and (account["where"] or values["confirm"]):
        yield TomlMistake("account.undocumented", "cannot go with account.where or confirm")


def _account_is_signed(values: Values) -> Iterable[TomlMistake]:
    where = values["account"]["where"]
    if values["account"]["connected"] and not where:
        yield TomlMistake("account.connected", "has no effect without account.where")
    if values["confirm"]:
        return  # unsigned members then decide nothing
    if not all(map(_coverage(values).covers, where)):
        yield TomlMistake("account.where", f"is not covered by {_what_covers(values)}")


def _hash_holds_the_secret(values: Values) -> Iterable[TomlMistake]:
    signature = values["signature"]
    if signature["mac"].startswith("hash-") and "secret" not in _signed_names(values):
        yield TomlMistake(
            "signature.signed", "must hold {secret}, or anyone could compute the hash"
        )


def _format_has_its_words(values: Values) -> Iterable[TomlMistake]:
    signature = values["signature"]
    name = signature["format"]
    for key in ("label", "prefix", "separator"):
        needed = key in encodings.FORMATS[name].needs
        if needed and signature[key] is None:
            yield TomlMistake(f"signature.{key}", f"is missing; format {name} needs it")
        if not needed and signature[key] is not None and signature["mac"] in schemes.SCHEMES:
            yield TomlMistake(f"signature.{key}", f"has no effect with format {name}")


def _second_scheme_has_a_label(values: Values) -> Iterable[TomlMistake]:
    also = values["signature"]["also"]
    if also is None:
        return
    if "label" not in encodings.FORMATS[values["signature"]["format"]].needs:
        yield TomlMistake(
            "signature.also", "needs a format with labels, or nothing tells them apart"
        )
    for key, rule in (("signature.mac", values["signature"]), ("signature.also.mac", also)):
        if rule["mac"] not in schemes.SCHEMES or not schemes.SCHEMES[rule["mac"]].covers:
            yield TomlMistake(key, "must be a scheme that signs content, beside [signature.also]")
    if also["label"] == values["signature"]["label"]:
        yield TomlMistake("signature.also.label", "must differ from signature.label")


def _items_carry_signatures(values: Values) -> Iterable[TomlMistake]:
    signature, items = values["signature"], values["event"]["items"]
    if not signature["per_item"]:
        return
    if items is None:
        yield TomlMistake("signature.per_item", "has no effect without event.items")
    if not str(signature["where"]).startswith("json:"):
        yield TomlMistake("signature.where", "must be json:PATH within an item with per_item")


def _time_is_signed(values: Values) -> Iterable[TomlMistake]:
    timestamp, names = values["timestamp"], _signed_names(values)
    if timestamp is None:
        if "ts" in names:
            yield TomlMistake("timestamp", "is missing; signature.signed refers to {ts}")
        return
    where = timestamp["where"]
    if where.startswith("signature:"):
        if values["signature"]["format"] != "kv":
            yield TomlMistake("timestamp.where", "may be signature:LABEL with format kv only")
    elif "ts" not in names and _coverage(values).covers(where):
        return
    if "ts" not in names:
        yield TomlMistake(
            "signature.signed", "must cover {ts}, or an old request could be given a new time"
        )


def _event_has_its_keys(values: Values) -> Iterable[TomlMistake]:
    event = values["event"]
    for key in ("id", "kind"):
        if not event[key]:
            yield TomlMistake(f"event.{key}", "is missing")
    if values["verifies_only"]:
        return
    if not any(event[key] for key in ("order", "session", "payment")):
        yield TomlMistake(
            "event.order", "is missing, as are event.session and event.payment; one is needed"
        )


def _words_have_meanings(values: Values) -> Iterable[TomlMistake]:
    if not values["claims"] and not values["verifies_only"]:
        yield TomlMistake("claims", "must be a section that gives the provider's words a meaning")


def _amounts_have_currencies(values: Values) -> Iterable[TomlMistake]:
    amounts = values["amounts"]
    if not amounts["unit"]:
        yield TomlMistake("amounts.unit", "is missing")
    for key, currencies in PRICES.items():
        if amounts[key] and not any(amounts[each] for each in (*currencies, "order_currency")):
            yield TomlMistake(f"amounts.{currencies[0]}", f"is missing; amounts.{key} needs it")
    if amounts["decimals"] and amounts["unit"] == "major":
        yield TomlMistake("amounts.decimals", "has no effect with unit major")


def _nothing_moves_money(values: Values) -> Iterable[TomlMistake]:
    if not values["verifies_only"]:
        return
    if values["confirm"]:
        yield TomlMistake("confirm", "has no effect with verifies_only")
    if values["claims"]:
        yield TomlMistake("claims", "has no effect with verifies_only")
    if _priced(values):
        yield TomlMistake("amounts", "has no effect with verifies_only")


def _environments_differ(values: Values) -> Iterable[TomlMistake]:
    if values["environment"]["sandbox"] == values["environment"]["live"]:
        yield TomlMistake("environment.live", "must differ from environment.sandbox")
    if values["environment"]["either"] in (
        values["environment"]["sandbox"],
        values["environment"]["live"],
    ):
        yield TomlMistake("environment.either", "must differ from environment.sandbox and .live")


def _answer_is_one_thing(values: Values) -> Iterable[TomlMistake]:
    answer = values["acknowledgement"]
    if answer["body"] is not None and answer["fields"]:
        yield TomlMistake("acknowledgement.fields", "cannot be combined with acknowledgement.body")


def _what_counts_is_signed(values: Values) -> Iterable[TomlMistake]:
    if _counts_never_by_itself(values):
        return
    covers = _coverage(values).covers
    unsigned = [name for name, locations in what_counts(values) if not all(map(covers, locations))]
    if unsigned:
        yield TomlMistake(
            _what_covers(values),
            f"does not cover {', '.join(unsigned)}, which anyone could then write: set confirm = "
            '"fetch_back", or verifies_only = true',
        )


def _joins_are_separable(values: Values) -> Iterable[TomlMistake]:
    if _counts_never_by_itself(values):
        return
    join = FieldBoundaries(values).ambiguous(values["signature"]["signed"] or "")
    if join is not None:
        yield TomlMistake(
            "signature.signed",
            f"joins {join} with nothing between them, so anyone who has seen one request could "
            "move characters from one to the other without breaking the signature: set confirm = "
            '"fetch_back", or verifies_only = true',
        )


def _counts_never_by_itself(values: Values) -> bool:
    return bool(values["verifies_only"] or values["confirm"] or values["account"]["undocumented"])


def _what_covers(values: Values) -> str:
    return "signature.signed" if values["signature"]["signed"] else "signature.mac"


def _coverage(values: Values) -> SignatureCoverage:
    signature = values["signature"]
    named = kit.named_scheme(signature["mac"])
    return SignatureCoverage(
        None if named else signature["signed"] or "",
        items=values["event"]["items"],
        per_item=signature["per_item"],
        beside=named.covers(dict(signature["options"])) if named else frozenset(),
    )


def covers(values: Values, location: str) -> bool:
    """Return whether a profile's signature covers the value at a location."""
    return _coverage(values).covers(location)


def _signed_names(values: Values) -> frozenset[str]:
    return template.compile_template(values["signature"]["signed"] or "").names


_TOGETHER: Final = (
    _scheme_has_its_keys,
    _unsigned_has_no_keys,
    _key_says_whose_it_is,
    _account_is_signed,
    _hash_holds_the_secret,
    _format_has_its_words,
    _second_scheme_has_a_label,
    _items_carry_signatures,
    _time_is_signed,
    _event_has_its_keys,
    _words_have_meanings,
    _amounts_have_currencies,
    _nothing_moves_money,
    _environments_differ,
    _answer_is_one_thing,
    _what_counts_is_signed,
    setup_is_of_this_profile,
    _joins_are_separable,
    fetch_back_is_safe,
    slow_claims_are_pending,
)


def check_together(values: Values) -> list[TomlMistake]:
    """Return every mistake in the combination of keys."""
    settle(values)
    mistakes: list[TomlMistake] = []
    for rule in _TOGETHER:
        # A value that is invalid by itself is missing here, and was reported already.
        with suppress(KeyError):
            for mistake in rule(values):
                mistakes.append(mistake)  # mistakes found before a missing value count
    return mistakes
