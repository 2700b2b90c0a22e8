"""What can be told and proved again of deliveries that were kept: their bytes, key and age."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from app.core.reading_result import Unreadable
from app.evidence.dossier import Proven, Told
from app.evidence.dossier_store import Arrived
from app.providers.doctor import Account, Patient
from app.providers.fetched import is_answer
from app.providers.fingerprints import covered, signer_of
from app.providers.schemes import NAMED, TOKENS, UNSIGNED
from app.providers.source import Source
from app.receiving.header_codec import read_headers, restored


def retold(rows: Iterable[Arrived], accounts: Mapping[str, Account]) -> list[Told]:
    """Each of an order's deliveries. A repeated one has its body from the first that brought it."""
    rows = list(rows)
    bodies = {(row.source, row.digest): row.body for row in rows if row.body is not None}
    return [
        _told_one(row, bodies.get((row.source, row.digest)), accounts.get(row.source))
        for row in rows
    ]


def _told_one(row: Arrived, body: bytes | None, account: Account | None) -> Told:
    kept = read_headers(row.headers)
    shown = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in kept.headers)
    return Told(
        arrived=row,
        body=body,
        method=kept.method,
        url=("" if account is None else account.address) + (kept.url or f"/webhooks/{row.source}"),
        headers=shown,
        proven=_proven(row, body, account),
    )


def _proven(row: Arrived, body: bytes | None, account: Account | None) -> Proven:
    whole = body if row.envelope is None else row.whole
    if is_answer(row.headers):
        return Proven(sentence="Fetched by us from the provider itself, over TLS: not signed.")
    if account is None:
        return Proven(sentence="Its source is no longer configured: nothing can be checked again.")
    if account.profile.signature.mac == UNSIGNED:
        return Proven(sentence="This provider signs nothing: its own answer, fetched, counts.")
    if whole is None or row.pruned_at is not None:
        return Proven(
            sentence="Its body was let go: its signature was right when it arrived, and cannot be "
            "checked again."
        )
    return _checked(account, _patient(row, whole, account))


def _patient(row: Arrived, body: bytes, account: Account) -> Patient:
    kept = read_headers(row.headers)
    secrets = account.secrets
    texts = secrets.values() if isinstance(secrets, Mapping) else secrets
    token = account.profile.signature.mac in TOKENS
    tokens = [each.encode("utf-8") for each in texts] if token else []
    return Patient(
        headers=restored(kept.headers, tokens),
        body=body,
        method=kept.method,
        url=kept.url or f"/webhooks/{row.source}",
        now=row.received_at,
    )


def _checked(account: Account, patient: Patient) -> Proven:
    rule = account.profile.signature
    signer, over = signer_of(account, patient), covered(account, patient)
    proven = Proven(
        sentence="No secret that is configured now makes it: the one it was signed with was taken "
        "out since. It was right when it arrived.",
        scheme=rule.mac,
        signed=rule.signed,
        where=rule.where,
        content=over.content,
        signed_at=over.signed_at,
    )
    if signer is None:
        return proven
    return replace(
        proven,
        key=signer.fingerprint,
        public=signer.public,
        sentence=_sentence(rule.mac, signer.fingerprint, public=signer.public is not None),
    )


def _sentence(mac: str, key: str, *, public: bool) -> str:
    if mac in TOKENS:
        return f"The request brought the secret {key} itself: that tells who sent it, not what."
    if public:
        return f"Signed with the key {key}; anyone can check it with key-{key}.pem."
    how = "as the provider's own scheme says" if mac.startswith(NAMED) else "over what is told here"
    return f"Signed with the shared secret {key}, {how}; the provider, who has it, can check it."


def phones_told(told: Iterable[Told], sources: Mapping[str, Source]) -> set[str]:
    """Every customer's number that a body names."""
    found: set[str] = set()
    for each in told:
        source = sources.get(each.arrived.source)
        body = each.body if each.arrived.envelope is None else each.arrived.whole
        if source is None or body is None:
            continue
        headers = read_headers(each.arrived.headers).headers
        try:
            found |= set(source.phones(body, headers=headers, method=each.method, url=each.url))
        except Unreadable:
            continue
    return found
