"""What must hold between keys of a profile file, and the defaults that depend on other keys."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from app.core.toml_file import Mistake, Values
from app.providers.ambiguity import Joins
from app.providers.coverage import PRICES, Coverage, what_counts
from app.providers.formats import FORMATS
from app.providers.rules_fetch_back import fetch_back_is_safe, handshake_is_safe
from app.providers.schemes import NAMED, SCHEMES, UNSIGNED
from app.providers.template import compile_template

_BASIC: Final = {"where": "header:authorization", "format": "scheme", "prefix": "Basic"}
_ENCODINGS: Final = {"token": "text", "basic": "base64"}


def settle(values: Values) -> None:
    """Fill in the defaults that depend on other keys."""
    with suppress(KeyError):
        signature, mac = values["signature"], values["signature"]["mac"]
        if mac == "basic":
            signature.update(_BASIC)
        if signature["encoding"] is None:
            signature["encoding"] = _ENCODINGS.get(mac, "hex")
        if values["secret"]["encoding"] is None:
            asymmetric = mac in SCHEMES and SCHEMES[mac].asymmetric
            values["secret"]["encoding"] = "public_key" if asymmetric else "text"
    with suppress(KeyError):
        signature, mac = values["signature"], values["signature"]["mac"]
        published = _is_public(signature) and not values["verifies_only"]
        if signature["key"] is None and mac != UNSIGNED and not published:
            signature["key"] = "merchant"
    with suppress(KeyError):
        if values["amounts"]["unit"] is None and not _priced(values):
            values["amounts"]["unit"] = "major"
    with suppress(KeyError):
        if values["verifies_only"]:
            values["event"]["id"] = values["event"]["id"] or ("digest:body",)
            values["event"]["kind"] = values["event"]["kind"] or ("text:delivery",)


_PUBLIC_NAMED: Final = frozenset({"named:paypal", "named:plaid", "named:rfc9421"})


def _is_public(signature: Values) -> bool:
    """Whether requests are verified with a key that the provider publishes."""
    scheme = SCHEMES.get(signature["mac"])
    return signature["mac"] in _PUBLIC_NAMED or (scheme is not None and scheme.asymmetric)


def _priced(values: Values) -> bool:
    return any(values["amounts"][key] for key in PRICES)


def _scheme_has_its_keys(values: Values) -> Iterable[Mistake]:
    signature = values["signature"]
    mac = signature["mac"]
    scheme = SCHEMES.get(mac)
    if signature["options"] and not mac.startswith(NAMED):
        yield Mistake("signature.options", "means something with mac named:NAME only")
    if scheme is None or mac == "basic":
        return
    if signature["where"] is None:
        yield Mistake("signature.where", f"is missing; mac {mac} needs it")
    if scheme.covers and signature["signed"] is None:
        yield Mistake("signature.signed", f"is missing; mac {mac} needs it")
    if not scheme.covers and signature["signed"] is not None:
        yield Mistake("signature.signed", f"means nothing with mac {mac}, which signs nothing")


def _unsigned_has_no_keys(values: Values) -> Iterable[Mistake]:
    signature = values["signature"]
    if signature["mac"] in SCHEMES:
        return
    for key in ("where", "signed", "signed_also", "label", "prefix", "separator"):
        if signature[key] is not None:
            yield Mistake(f"signature.{key}", f"means nothing with mac {signature['mac']}")
    if values["timestamp"] is not None:
        yield Mistake("timestamp", f"means nothing with mac {signature['mac']}")


def _key_says_whose_it_is(values: Values) -> Iterable[Mistake]:
    key, account = values["signature"]["key"], values["account"]
    told = [account["where"], account["undocumented"], values["confirm"]]
    if key is None and values["signature"]["mac"] != UNSIGNED:
        yield Mistake(
            "signature.key",
            "is missing: say merchant where the provider made this key for your account alone, "
            "provider where all of its merchants share it",
        )
    elif key == "provider" and not any(told):
        yield Mistake(
            "account",
            "is missing: under the provider's key any other merchant's event is genuine too; say "
            '[account] where = the signed member that names the account, or confirm = "fetch_back",'
            " or [account] undocumented = true, and then no event counts by itself",
        )
    if account["undocumented"] and (account["where"] or values["confirm"]):
        yield Mistake("account.undocumented", "is instead of account.where and confirm")


def _account_is_signed(values: Values) -> Iterable[Mistake]:
    where = values["account"]["where"]
    for signed, coverage in _coverages(values):
        if not all(coverage.covers(location) for location in where):
            yield Mistake("account.where", f"is not covered by signature.{signed}")


def _hash_holds_the_secret(values: Values) -> Iterable[Mistake]:
    signature = values["signature"]
    if signature["mac"].startswith("hash-") and "secret" not in _signed_names(values):
        yield Mistake("signature.signed", "must hold {secret}, or anyone could compute the hash")


def _format_has_its_words(values: Values) -> Iterable[Mistake]:
    signature = values["signature"]
    name = signature["format"]
    for key in ("label", "prefix", "separator"):
        needed = key in FORMATS[name].needs
        if needed and signature[key] is None:
            yield Mistake(f"signature.{key}", f"is missing; format {name} needs it")
        if not needed and signature[key] is not None and signature["mac"] in SCHEMES:
            yield Mistake(f"signature.{key}", f"means nothing with format {name}")


def _second_scheme_has_a_label(values: Values) -> Iterable[Mistake]:
    also = values["signature"]["also"]
    if also is None:
        return
    if "label" not in FORMATS[values["signature"]["format"]].needs:
        yield Mistake("signature.also", "needs a format with labels, or nothing tells them apart")
    for key, rule in (("signature.mac", values["signature"]), ("signature.also.mac", also)):
        if rule["mac"] not in SCHEMES or not SCHEMES[rule["mac"]].covers:
            yield Mistake(key, "must be a scheme that signs content, beside [signature.also]")
    if also["label"] == values["signature"]["label"]:
        yield Mistake("signature.also.label", "must differ from signature.label")


def _items_carry_signatures(values: Values) -> Iterable[Mistake]:
    signature, items = values["signature"], values["event"]["items"]
    if not signature["per_item"]:
        return
    if items is None:
        yield Mistake("signature.per_item", "means nothing without event.items")
    if not str(signature["where"]).startswith("json:"):
        yield Mistake("signature.where", "must be json:PATH within an item with per_item")


def _time_is_signed(values: Values) -> Iterable[Mistake]:
    timestamp, names = values["timestamp"], _signed_names(values)
    if timestamp is None:
        if "ts" in names:
            yield Mistake("timestamp", "is missing; signature.signed refers to {ts}")
        return
    where = timestamp["where"]
    if where.startswith("signature:"):
        if values["signature"]["format"] != "kv":
            yield Mistake("timestamp.where", "may be signature:LABEL with format kv only")
    elif "ts" not in names and all(each.covers(where) for _, each in _coverages(values)):
        return
    if "ts" not in names:
        yield Mistake(
            "signature.signed", "must cover {ts}, or an old request could be given a new time"
        )


def _event_has_its_keys(values: Values) -> Iterable[Mistake]:
    event = values["event"]
    for key in ("id", "kind"):
        if not event[key]:
            yield Mistake(f"event.{key}", "is missing")
    if values["verifies_only"]:
        return
    if not any(event[key] for key in ("order", "session", "payment")):
        yield Mistake(
            "event.order", "is missing, as are event.session and event.payment; one is needed"
        )


def _words_have_meanings(values: Values) -> Iterable[Mistake]:
    if not values["claims"] and not values["verifies_only"]:
        yield Mistake("claims", "must be a section that gives the provider's words a meaning")


def _amounts_have_currencies(values: Values) -> Iterable[Mistake]:
    amounts = values["amounts"]
    if amounts["unit"] is None:
        yield Mistake("amounts.unit", "is missing")
    for key, currencies in PRICES.items():
        if amounts[key] and not any(amounts[each] for each in (*currencies, "order_currency")):
            yield Mistake(f"amounts.{currencies[0]}", f"is missing; amounts.{key} needs it")
    if amounts["decimals"] and amounts["unit"] == "major":
        yield Mistake("amounts.decimals", "means nothing with unit major")


def _nothing_moves_money(values: Values) -> Iterable[Mistake]:
    if not values["verifies_only"]:
        return
    if values["confirm"]:
        yield Mistake("confirm", "means nothing with verifies_only")
    if values["claims"]:
        yield Mistake("claims", "means nothing with verifies_only")
    if _priced(values):
        yield Mistake("amounts", "means nothing with verifies_only")


def _environments_differ(values: Values) -> Iterable[Mistake]:
    if values["environment"]["sandbox"] == values["environment"]["live"]:
        yield Mistake("environment.live", "must differ from environment.sandbox")


def _form_has_its_field(values: Values) -> Iterable[Mistake]:
    request = values["request"]
    if (request["body"] == "form_json") != (request["field"] is not None):
        yield Mistake("request.field", "belongs with body form_json, and with nothing else")


def _answer_is_one_thing(values: Values) -> Iterable[Mistake]:
    answer = values["acknowledgement"]
    if answer["body"] is not None and answer["fields"]:
        yield Mistake("acknowledgement.fields", "is instead of acknowledgement.body, not beside it")


def _what_counts_is_signed(values: Values) -> Iterable[Mistake]:
    if _counts_never_by_itself(values):
        return
    for key, coverage in _coverages(values):
        unsigned = [
            name
            for name, locations in what_counts(values)
            if not all(coverage.covers(location) for location in locations)
        ]
        if unsigned:
            yield Mistake(
                f"signature.{key}",
                f"does not cover {', '.join(unsigned)}, which anyone could then write: "
                'say confirm = "fetch_back", or verifies_only = true',
            )


def _joins_are_told_apart(values: Values) -> Iterable[Mistake]:
    if _counts_never_by_itself(values):
        return
    for key, signed in _forms(values):
        join = Joins(values).ambiguous(signed)
        if join is not None:
            yield Mistake(
                f"signature.{key}",
                f"joins {join} with nothing between, so that who has seen one request can move "
                "characters from one to the other, and the signature still holds: say "
                'confirm = "fetch_back", or verifies_only = true',
            )


def _counts_never_by_itself(values: Values) -> bool:
    return bool(values["verifies_only"] or values["confirm"] or values["account"]["undocumented"])


def _forms(values: Values) -> list[tuple[str, str]]:
    """Each form of the signed content, under its key."""
    signature = values["signature"]
    return [(key, signature[key]) for key in ("signed", "signed_also") if signature[key]]


def _coverages(values: Values) -> list[tuple[str, Coverage]]:
    """What each form of the signed content covers, under its key."""
    signature = values["signature"]
    named = signature["mac"].startswith(NAMED)
    forms = _forms(values) or [("mac", "")]
    items, per_item = values["event"]["items"], signature["per_item"]
    return [
        (key, Coverage(None if named else form, items=items, per_item=per_item))
        for key, form in forms
    ]


def _signed_names(values: Values) -> frozenset[str]:
    """The references that are in every form."""
    names = [compile_template(form).names for _, form in _forms(values)]
    return frozenset.intersection(*names) if names else frozenset()


def _other_form_is_beside_one(values: Values) -> Iterable[Mistake]:
    signature = values["signature"]
    if signature["signed_also"] is not None and signature["signed"] is None:
        yield Mistake("signature.signed_also", "means nothing without signature.signed")


_TOGETHER: Final = (
    _scheme_has_its_keys,
    _unsigned_has_no_keys,
    _other_form_is_beside_one,
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
    _form_has_its_field,
    _answer_is_one_thing,
    _what_counts_is_signed,
    _joins_are_told_apart,
    fetch_back_is_safe,
    handshake_is_safe,
)


def check_together(values: Values) -> list[Mistake]:
    """Every mistake between keys that are each right in themselves."""
    settle(values)
    mistakes: list[Mistake] = []
    for rule in _TOGETHER:
        # A value that is wrong in itself is not among the values, and already reported.
        with suppress(KeyError):
            for mistake in rule(values):
                mistakes.append(mistake)  # those before a missing one count
    return mistakes
