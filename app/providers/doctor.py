"""Find out why a request was refused.

Each trial corrects one known mistake. Sentences never contain a secret or text of the request.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from app.core.errors import ConfigurationError
from app.core.reading import Unreadable
from app.core.strict_json import parse
from app.providers.dates import UNITS
from app.providers.encodings import SECRET_ENCODINGS, WHSEC
from app.providers.profile import load_profile, shipped_profiles
from app.providers.request import Incoming, Refusal
from app.providers.schemes import UNSIGNED
from app.providers.sections import Profile
from app.providers.source import Source
from reconcile.instants import Instant

_MARK: Final = "\ue000"

_MARKED: Final = re.compile(r'"(?:\ue000|\\ue000)([^"\\]*?)(?:\ue000|\\ue000)"')

_WHOLE: Final = re.compile(r"(?<=[0-9])\.0+(?=[,\]}\s]|\Z)")


def respellings(body: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the JSON body in other spellings, with descriptions."""
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


def _escaped(document: Any) -> str:
    text = _compact(document)
    for character, escape in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026")):
        text = text.replace(character, escape)
    return text


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
    ("with < > & escaped", _escaped),
    ("without blanks, 2.00 written as 2", lambda document: _WHOLE.sub("", _compact(document))),
    ("without blanks, 2.00 written as 2.0", lambda document: _WHOLE.sub(".0", _compact(document))),
)


ANY_AGE_S: Final = 100 * 365 * 24 * 3600
"""Very long tolerance in seconds for trials."""

PORTS: Final = (":80", ":443", ":8080", ":8443")


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Configuration of one source, of which each trial changes a copy."""

    name: str
    profile: Profile
    secrets: Sequence[str] | Mapping[str, str] = field(repr=False)
    address: str = ""
    """Scheme and host under which the provider knows this service; "" if not configured."""
    ends: Mapping[str, Instant] = field(default_factory=dict, repr=False)
    """Expiry of each secret that expires, by secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """One mistake that would explain why a request was refused."""

    mistake: str
    """Name from a fixed list."""
    sentence: str
    """Explanation for people."""


class _Trial(NamedTuple):
    mistake: str
    sentence: str
    account: Account
    request: Incoming


def diagnose(
    account: Account, others: Sequence[Account], request: Incoming, *, now: Instant
) -> list[Diagnosis]:
    """Return the mistakes that could explain a refusal, likeliest first.

    others  the other sources, whose secrets are tried, too
    now  time at which the request arrived
    """
    found = []
    trials = chain(
        [_Trial("none", _AS_CONFIGURED, account, request)],
        _secrets(account, others, request),
        _encodings(account, request),
        _bodies(account, request),
        _units(account, request),
        _addresses(account, request),
        _profiles(account, request),
    )
    for mistake, sentence, tried, changed in trials:
        rule = tried.profile.timestamp
        ageless = tried
        if rule is not None:
            wide = replace(rule, past_s=ANY_AGE_S, future_s=ANY_AGE_S)
            ageless = replace(tried, profile=replace(tried.profile, timestamp=wide))
        if _refusal(ageless, changed, now) is not None:
            continue
        aged = _refusal(tried, changed, now)
        if mistake != "none":
            beside = "" if aged is None else f" And: {aged.sentence}"
            found.append(Diagnosis(mistake=mistake, sentence=f"{sentence}{beside}"))
            continue
        if aged is not None:
            mistake = "clock_skew"
            sentence = (
                f"The signature is right, but the time is off: {aged.sentence} Compare the clocks "
                "of both sides; a request that was kept and sent again later is refused in the "
                "same way."
            )
        found.append(Diagnosis(mistake=mistake, sentence=sentence))
        break  # genuine as configured now: the other trials would only repeat that
    if not found and account.profile.request.body == "json" and _is_form(request):
        sentence = (
            f"It came as a form, but profile {account.profile.name} reads JSON: have the provider "
            "send JSON (at Adyen it is the webhook's method)."
        )
        found.append(Diagnosis(mistake="form_encoded", sentence=sentence))
    return found


def _is_form(request: Incoming) -> bool:
    return any(
        name == b"content-type" and b"application/x-www-form-urlencoded" in value.lower()
        for name, value in request.headers
    )


_AS_CONFIGURED: Final = (
    "The request passes with the present settings: run `deliveries reverify` to judge it again."
)
_UNUSABLE: Final = Refusal("signature_mismatch", "The secret cannot be read like this.")


def _refusal(account: Account, request: Incoming, now: Instant) -> Refusal | None:
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
    return source.verify(request, now=now)


def _secrets(account: Account, others: Sequence[Account], request: Incoming) -> Iterator[_Trial]:
    if account.ends:
        yield _Trial(
            "secret_ended",
            "It was signed with an expired secret: have the provider sign with the newer secret, "
            "or set a later end for the older secret and run `deliveries reverify`.",
            replace(account, ends={}),
            request,
        )
    for other in others:
        if other.secrets and other.name != account.name:
            yield _Trial(
                "other_secret",
                f"It was signed with a secret of {other.name}: the provider sends with that "
                "endpoint's secret, or to the wrong address.",
                replace(account, secrets=other.secrets),
                request,
            )
    if isinstance(account.secrets, Mapping):
        return
    without = [each for each in account.secrets if not each.startswith(WHSEC)]
    if without:
        yield _Trial(
            "secret_beginning",
            f"It was signed with the secret that begins with {WHSEC}, but that beginning is "
            "missing here: copy the whole secret.",
            replace(account, secrets=[WHSEC + each for each in without], ends={}),
            request,
        )


def _encodings(account: Account, request: Incoming) -> Iterator[_Trial]:
    configured = account.profile.secret.encoding
    for encoding in SECRET_ENCODINGS:
        if encoding != configured:
            secret = replace(account.profile.secret, encoding=encoding)
            yield _Trial(
                "secret_encoding",
                f"The secret must be read as {encoding}, but the profile reads it as "
                f"{configured}: change secret.encoding, or copy the secret again.",
                replace(account, profile=replace(account.profile, secret=secret)),
                request,
            )


def _bodies(account: Account, request: Incoming) -> Iterator[_Trial]:
    body = request.body
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
                f"The body was signed {how}: something between the provider and this service "
                "adds or removes line ends.",
                account,
                request._replace(body=changed),
            )
    for how, changed in respellings(body):
        yield _Trial(
            "body_respelled",
            f"The body was signed {how}, but the bytes that arrived differ: something between "
            "the provider and this service parses and rewrites the JSON. Make it pass on the "
            "bytes unchanged.",
            account,
            request._replace(body=changed),
        )


def _units(account: Account, request: Incoming) -> Iterator[_Trial]:
    rule = account.profile.timestamp
    if rule is None:
        return
    for unit in UNITS:
        if unit != rule.unit:
            changed = replace(account.profile, timestamp=replace(rule, unit=unit))
            yield _Trial(
                "timestamp_unit",
                f"The timestamp counts {unit}, but the profile reads {rule.unit}: change "
                "timestamp.unit.",
                replace(account, profile=changed),
                request,
            )


def _addresses(account: Account, request: Incoming) -> Iterator[_Trial]:
    for how, url in _other_addresses(account, request):
        yield _Trial(
            "other_address",
            f"It was signed for {how}: a proxy changes the address, or another address is "
            "registered with the provider. Make TALLYHOOK_PUBLIC_URL and the registered address "
            "the same.",
            account,
            request._replace(url=url),
        )


def _other_addresses(account: Account, request: Incoming) -> Iterator[tuple[str, str]]:
    own = account.address if request.url.startswith("/") else ""
    split = urlsplit(own + request.url)
    named = [
        value.decode("ascii")
        for name, value in request.headers
        if name in (b"host", b"x-forwarded-host", b"x-original-host")
        and value.isascii()
        and len(value) <= 255
    ]
    hosts = set()
    for host in {split.netloc, urlsplit(account.address).netloc, *named} - {""}:
        bare = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        hosts |= {bare or host, host, *(f"{bare or host}{port}" for port in PORTS)}
    path = split.path or "/"
    if path.endswith("/"):
        other = (path.rstrip("/"), ", without the slash at the path's end")
    else:
        other = (f"{path}/", ", with a slash at the path's end")
    for scheme in ("https", "http"):
        for host in sorted(hosts):
            for each, slash in ((path, ""), other):
                url = urlunsplit((scheme, host, each, split.query, ""))
                if url != own + request.url:
                    yield f"{scheme}, host {host}{slash}", url
    if split.query:
        yield "the address without its query", urlunsplit(split._replace(query=""))


def _profiles(account: Account, request: Incoming) -> Iterator[_Trial]:
    for name in shipped_profiles():
        profile = load_profile(name)
        # Under a profile that signs nothing every request passes, which tells nothing.
        if name != account.profile.name and profile.signature.mac != UNSIGNED:
            yield _Trial(
                "other_profile",
                f"It is signed as profile {name} says, not {account.profile.name}: name that "
                "profile for this source.",
                replace(account, profile=profile),
                request,
            )
