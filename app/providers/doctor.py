"""The signature doctor: tries the known mistakes on a refused request and names what would pass.

    request, source as configured ──trials──▶ what would have passed ──▶ diagnoses

Nothing is accepted here. Each trial changes one thing: the secret, how it is read, the profile,
the body's spelling, the address, the unit of the time. That the time is off is reported beside it,
so two mistakes at once (a wrong secret, and an old request) are both found. Sentences name sources,
profiles and our own numbers; never a secret, nor text of the request.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit, urlunsplit

from app.core.errors import ConfigurationError
from app.core.reading import Unreadable
from app.core.strict_json import parse
from app.providers.dates import UNITS
from app.providers.encodings import SECRET_ENCODINGS
from app.providers.profile import load_profile, shipped_profiles
from app.providers.request import Headers, Incoming, Refusal
from app.providers.schemes import UNSIGNED
from app.providers.sections import Profile
from app.providers.source import Source
from reconcile.instants import Instant

_ESCAPED: Final = (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026"))
"""What some encoders write for characters that mean something in HTML."""

_MARK: Final = "\ue000"
"""Stands around a number with a fraction, so that it is written again digit for digit."""

_MARKED: Final = re.compile(r'"(?:\ue000|\\ue000)([^"\\]*?)(?:\ue000|\\ue000)"')

_WHOLE: Final = re.compile(r"(?<=[0-9])\.0+(?=[,\]}\s]|\Z)")


def respellings(body: bytes) -> Iterator[tuple[str, bytes]]:
    """(how it is spelled, the bytes), each different from `body`; none where it is not JSON."""
    try:
        parse(body)
        document = json.loads(body, parse_float=lambda digits: f"{_MARK}{digits}{_MARK}")
    except (Unreadable, ValueError, RecursionError):
        return
    seen = {body}
    for name, write in _SPELLINGS:
        spelled = write(document).encode("utf-8", "surrogatepass")
        if spelled not in seen:
            seen.add(spelled)
            yield name, spelled


def _dumped(**options: Any) -> Callable[[Any], str]:
    def write(document: Any) -> str:
        return _MARKED.sub(r"\1", json.dumps(document, **{"ensure_ascii": False, **options}))

    return write


_compact = _dumped(separators=(",", ":"))
_spaced = _dumped(ensure_ascii=True)

_SPELLINGS: Final[tuple[tuple[str, Callable[[Any], str]], ...]] = (
    ("without blanks", _compact),
    ("with a blank after each comma and colon", _dumped()),
    ("indented by two", _dumped(indent=2)),
    ("indented by four", _dumped(indent=4)),
    ("without blanks, in ASCII", _dumped(separators=(",", ":"), ensure_ascii=True)),
    ("with blanks, in ASCII", _spaced),
    (
        "with blanks, in ASCII, 2.00 written as 2.0",
        lambda document: _WHOLE.sub(".0", _spaced(document)),
    ),
    ("without blanks, its keys sorted", _dumped(separators=(",", ":"), sort_keys=True)),
    ("with blanks, its keys sorted", _dumped(sort_keys=True)),
    ("with its slashes escaped", lambda document: _compact(document).replace("/", "\\/")),
    ("with < > & escaped", lambda document: _replaced(_compact(document))),
    ("without blanks, 2.00 written as 2", lambda document: _WHOLE.sub("", _compact(document))),
    ("without blanks, 2.00 written as 2.0", lambda document: _WHOLE.sub(".0", _compact(document))),
)


def _replaced(text: str) -> str:
    for sign, escape in _ESCAPED:
        text = text.replace(sign, escape)
    return text


ANY_AGE_S: Final = 100 * 365 * 24 * 3600
"""Tolerance of a trial, in seconds: whether the time is off is asked apart."""

PORTS: Final = (":80", ":443", ":8080", ":8443")
"""Ports that a proxy may have added to the address, or taken from it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A source as configured: what the doctor varies.

    address  scheme and host under which the provider knows us, if anybody said
    ends     when those of the secrets end that do
    """

    name: str
    profile: Profile
    secrets: Sequence[str] | Mapping[str, str] = field(repr=False)
    address: str = ""
    ends: Mapping[str, Instant] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patient:
    """A refused request. `now`: when it arrived; `url`: path and query as they came."""

    headers: Headers
    body: bytes = field(repr=False)
    method: str
    url: str
    now: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """One mistake that would explain the refusal. `mistake` from a closed list."""

    mistake: str
    sentence: str


@dataclass(frozen=True, slots=True)
class _Trial:
    mistake: str
    sentence: str
    account: Account
    patient: Patient


def diagnose(account: Account, others: Sequence[Account], patient: Patient) -> list[Diagnosis]:
    """Every single mistake that would have let the request pass, the likeliest first."""
    found = []
    for trial in _trials(account, others, patient):
        diagnosis = _tried(trial)
        if diagnosis is not None:
            found.append(diagnosis)
            if trial.mistake == "none":
                break  # as it is configured now it is genuine: the rest would say so again
    return found


def _tried(trial: _Trial) -> Diagnosis | None:
    if _refusal(_ageless(trial.account), trial.patient) is not None:
        return None
    aged = _refusal(trial.account, trial.patient)
    if trial.mistake != "none":
        sentence = trial.sentence if aged is None else f"{trial.sentence} And: {aged.sentence}"
        return Diagnosis(mistake=trial.mistake, sentence=sentence)
    if aged is None:
        return Diagnosis(mistake="none", sentence=trial.sentence)
    return Diagnosis(
        mistake="clock_skew",
        sentence=f"The signature is right, and only the time is off: {aged.sentence} Compare the "
        "clocks of both sides; a request that was kept and sent again is refused like this too.",
    )


def _refusal(account: Account, patient: Patient) -> Refusal | None:
    try:
        source = Source(
            name=account.name,
            profile=account.profile,
            secrets=account.secrets,
            address=account.address,
            ends=account.ends,
        )
    except ConfigurationError:
        return _UNUSABLE
    request = Incoming(patient.headers, patient.body, patient.method, patient.url)
    return source.verify(request, now=patient.now)


_UNUSABLE: Final = Refusal("signature_mismatch", "The secret cannot be read like this.")


def _ageless(account: Account) -> Account:
    rule = account.profile.timestamp
    if rule is None:
        return account
    wide = replace(rule, past_s=ANY_AGE_S, future_s=ANY_AGE_S)
    return replace(account, profile=replace(account.profile, timestamp=wide))


def _trials(account: Account, others: Sequence[Account], patient: Patient) -> Iterator[_Trial]:
    yield _Trial(
        "none",
        "As it is configured now, the request passes: have it judged again with "
        "`deliveries reverify`.",
        account,
        patient,
    )
    yield from _secrets(account, others, patient)
    yield from _beginnings(account, patient)
    yield from _readings(account, patient)
    yield from _bodies(account, patient)
    yield from _units(account, patient)
    yield from _addresses(account, patient)
    yield from _profiles(account, patient)


def _secrets(account: Account, others: Sequence[Account], patient: Patient) -> Iterable[_Trial]:
    if account.ends:
        yield _Trial(
            "secret_ended",
            "It was signed with a secret that had ended: have the provider sign with the newer "
            "one, or move the older one's end and run `deliveries reverify`.",
            replace(account, ends={}),
            patient,
        )
    for other in others:
        if other.secrets and other.name != account.name:
            yield _Trial(
                "other_secret",
                f"It was signed with a secret of {other.name}: the provider sends with that "
                "endpoint's secret, or to the wrong address.",
                replace(account, secrets=other.secrets),
                patient,
            )


WHSEC: Final = "whsec_"
"""With which many providers' secrets begin, where it is a part of the secret or is none."""


def _beginnings(account: Account, patient: Patient) -> Iterable[_Trial]:
    if isinstance(account.secrets, Mapping):
        return
    without = [each for each in account.secrets if not each.startswith(WHSEC)]
    if without:
        yield _Trial(
            "secret_beginning",
            f"It was signed with the secret that begins with {WHSEC}, and here that is missing: "
            "copy the whole of it.",
            replace(account, secrets=[WHSEC + each for each in without], ends={}),
            patient,
        )


def _readings(account: Account, patient: Patient) -> Iterable[_Trial]:
    configured = account.profile.secret.encoding
    for encoding in SECRET_ENCODINGS:
        if encoding != configured:
            secret = replace(account.profile.secret, encoding=encoding)
            yield _Trial(
                "secret_encoding",
                f"The secret is to be read as {encoding}, and the profile reads it as "
                f"{configured}: change secret.encoding, or copy the secret again.",
                replace(account, profile=replace(account.profile, secret=secret)),
                patient,
            )


def _bodies(account: Account, patient: Patient) -> Iterable[_Trial]:
    body = patient.body
    ends = {
        "with a line feed at its end": body + b"\n",
        "with a carriage return and a line feed at its end": body + b"\r\n",
        "without the line end that came with it": body.rstrip(b"\r\n"),
        "without the byte order mark that came with it": body.removeprefix(b"\xef\xbb\xbf"),
    }
    for how, changed in ends.items():
        if changed != body:
            yield _Trial(
                "body_ends_differently",
                f"The body was signed {how}: something on its way adds or takes line ends.",
                account,
                replace(patient, body=changed),
            )
    for how, changed in respellings(body):
        yield _Trial(
            "body_respelled",
            f"The body was signed {how}, and came spelled otherwise: something on its way parses "
            "the JSON and writes it anew; let it pass the bytes on as they are.",
            account,
            replace(patient, body=changed),
        )


def _units(account: Account, patient: Patient) -> Iterable[_Trial]:
    rule = account.profile.timestamp
    if rule is None:
        return
    for unit in UNITS:
        if unit != rule.unit:
            changed = replace(account.profile, timestamp=replace(rule, unit=unit))
            yield _Trial(
                "timestamp_unit",
                f"The timestamp counts {unit}, and the profile reads {rule.unit}: change "
                "timestamp.unit.",
                replace(account, profile=changed),
                patient,
            )


def _addresses(account: Account, patient: Patient) -> Iterable[_Trial]:
    for how, url in _other_addresses(account, patient):
        yield _Trial(
            "other_address",
            f"It was signed for {how}: a proxy changes the address on its way, or the provider has "
            "another; let TALLYHOOK_PUBLIC_URL and what is registered there be the same.",
            account,
            replace(patient, url=url),
        )


def _other_addresses(account: Account, patient: Patient) -> Iterable[tuple[str, str]]:
    own = account.address if patient.url.startswith("/") else ""
    split = urlsplit(own + patient.url)
    hosts = {split.netloc, urlsplit(account.address).netloc, *_named_hosts(patient.headers)} - {""}
    for scheme in ("https", "http"):
        for host in sorted({each for name in hosts for each in _with_ports(name)}):
            for path, slash in _paths(split):
                url = urlunsplit((scheme, host, path, split.query, ""))
                if url != own + patient.url:
                    yield f"{scheme}, host {host}{slash}", url
    if split.query:
        yield "the address without its query", urlunsplit(split._replace(query=""))


def _named_hosts(headers: Headers) -> list[str]:
    wanted = (b"host", b"x-forwarded-host", b"x-original-host")
    found = [value for name, value in headers if name in wanted]
    return [text.decode("ascii") for text in found if text.isascii() and len(text) <= 255]


def _with_ports(host: str) -> list[str]:
    bare = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    return [bare or host, host, *(f"{bare or host}{port}" for port in PORTS)]


def _paths(split: SplitResult) -> list[tuple[str, str]]:
    """The path as it came, and with or without a slash at its end, with what is said of that."""
    path = split.path or "/"
    if path.endswith("/"):
        return [(path, ""), (path.rstrip("/"), ", without the slash at the path's end")]
    return [(path, ""), (f"{path}/", ", with a slash at the path's end")]


def _profiles(account: Account, patient: Patient) -> Iterable[_Trial]:
    for name in shipped_profiles():
        profile = load_profile(name)
        # What is not signed at all passes whatever came: that says nothing about the request.
        if name != account.profile.name and profile.signature.mac != UNSIGNED:
            yield _Trial(
                "other_profile",
                f"It is signed as profile {name} says, not {account.profile.name}: name that "
                "profile for this source.",
                replace(account, profile=profile),
                patient,
            )
