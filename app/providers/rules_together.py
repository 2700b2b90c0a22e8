"""What must hold between keys of a profile file, and the defaults that depend on other keys."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from app.providers.coverage import Coverage, what_counts
from app.providers.formats import FORMATS
from app.providers.rules import Mistake, Values
from app.providers.rules_fetch_back import fetch_back_is_safe, handshake_is_safe
from app.providers.schemes import NAMED, SCHEMES
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
        if values["amounts"]["unit"] is None and not _priced(values):
            values["amounts"]["unit"] = "major"
    with suppress(KeyError):
        if values["verifies_only"]:
            values["event"]["id"] = values["event"]["id"] or ("digest:body",)
            values["event"]["kind"] = values["event"]["kind"] or ("text:delivery",)


def _priced(values: Values) -> bool:
    return any(values["amounts"][key] for key in ("payment", "refund", "order"))


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
    for key in ("where", "signed", "label", "prefix", "separator"):
        if signature[key] is not None:
            yield Mistake(f"signature.{key}", f"means nothing with mac {signature['mac']}")
    if values["timestamp"] is not None:
        yield Mistake("timestamp", f"means nothing with mac {signature['mac']}")


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
    elif "ts" not in names and _coverage(values).covers(where):
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
    for key in ("payment", "refund", "order"):
        if amounts[key] and not (amounts[f"{key}_currency"] or amounts["order_currency"]):
            yield Mistake(f"amounts.{key}_currency", f"is missing; amounts.{key} needs it")
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
    if values["verifies_only"] or values["confirm"]:
        return
    coverage = _coverage(values)
    unsigned = [
        key
        for key, locations in what_counts(values)
        if not all(coverage.covers(location) for location in locations)
    ]
    if unsigned:
        signed = values["signature"]["signed"] is not None
        yield Mistake(
            "signature.signed" if signed else "signature.mac",
            f"does not cover {', '.join(unsigned)}, which anyone could then write: "
            'say confirm = "fetch_back", or verifies_only = true',
        )


def _coverage(values: Values) -> Coverage:
    signature = values["signature"]
    named = signature["mac"].startswith(NAMED)
    return Coverage(
        None if named else signature["signed"] or "",
        items=values["event"]["items"],
        per_item=signature["per_item"],
    )


def _signed_names(values: Values) -> frozenset[str]:
    signed = values["signature"]["signed"]
    return compile_template(signed).names if signed else frozenset()


_TOGETHER: Final = (
    _scheme_has_its_keys,
    _unsigned_has_no_keys,
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
