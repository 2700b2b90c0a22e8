"""Made-up profiles with every kind of scheme that providers have, for laws that hold for all."""

import tempfile
from pathlib import Path
from typing import Final

from app.providers.profile import load_profile
from app.providers.sections import Profile

_TOP: Final = "verifies_only = true\n[signature]\n"

KINDS: Final[dict[str, str]] = {
    "time_beside_the_signature": """
        mac = "hmac-sha256"
        where = "header:x-signature"
        format = "kv"
        label = "v1"
        separator = ","
        signed = "{ts}.{body}"
        [timestamp]
        where = "signature:t"
    """,
    "milliseconds": """
        mac = "hmac-sha512"
        where = "header:x-signature"
        signed = "v1.{ts}.{body}"
        [timestamp]
        where = "header:x-time"
        unit = "ms"
    """,
    "address_and_digest": """
        mac = "rsa-pkcs1-sha256"
        where = "header:x-signature"
        encoding = "base64"
        signed = "{method}:{path}:{compact|sha256_hex|lower}:{ts}"
        [timestamp]
        where = "header:x-timestamp"
        unit = "iso8601"
    """,
    "address_and_body": """
        mac = "hmac-sha256"
        where = "header:x-signature"
        encoding = "base64"
        signed = "{url}{body}"
    """,
    "hash_of_members": """
        mac = "hash-sha512"
        where = "json:signature_key"
        signed = "{json:order_id}{json:status}{json:total}{secret}"
    """,
    "hash_of_a_form": """
        mac = "hash-md5"
        where = "form:signature"
        signed = "{form_received:-signature}&passphrase={secret|urlencode}"
        [request]
        body = "form"
    """,
    "sorted_form": """
        mac = "hmac-sha256"
        where = "form:signature"
        signed = "{form_joined:-signature}"
        [request]
        body = "form"
    """,
    "in_the_query": """
        mac = "hmac-sha512"
        where = "query:hmac"
        signed = "{json:obj.amount}{json:obj.success}{json:obj.data.pan?}"
    """,
    "manifest": """
        mac = "hmac-sha256"
        where = "header:x-signature"
        format = "kv"
        label = "v1"
        separator = ","
        signed = "id:{query:data.id};[request-id:{header:x-request-id};]ts:{ts};"
        [timestamp]
        where = "signature:ts"
    """,
    "each_item": """
        mac = "hmac-sha256"
        where = "json:additionalData.hmacSignature"
        encoding = "base64"
        per_item = true
        signed = "{json:pspReference}:{json:amount.value}:{json:success?}"
        [secret]
        encoding = "hex"
        [event]
        items = "notificationItems[*].NotificationRequestItem"
    """,
    "two_schemes": """
        mac = "hmac-sha256"
        where = "header:webhook-signature,svix-signature"
        format = "list"
        label = "v1"
        encoding = "base64"
        signed = "{header:webhook-id,svix-id}.{ts}.{body}"
        [signature.also]
        mac = "ed25519"
        label = "v1a"
        secret_prefixes = ["whpk_", "whsk_"]
        [secret]
        encoding = "whsec"
        [timestamp]
        where = "header:webhook-timestamp,svix-timestamp"
    """,
    "key_by_id": """
        mac = "ecdsa-p256-sha256-raw"
        where = "header:x-signature"
        signed = "{compact:payload}"
        [secret]
        key_id = "header:x-key-id"
    """,
    "der_with_time": """
        mac = "ecdsa-p256-sha256"
        where = "header:x-signature"
        encoding = "base64"
        signed = "{ts}{body}"
        [timestamp]
        where = "header:x-timestamp"
    """,
    "ed25519": """
        mac = "ed25519"
        where = "header:x-signature"
        signed = "{header:x-id}.{body|sha256_base64}"
    """,
    "pss": """
        mac = "rsa-pss-sha512"
        where = "header:x-signature"
        format = "prefix"
        prefix = "sig="
        signed = "{canonical}"
    """,
    "token_in_the_body": """
        mac = "token"
        where = "json:challenge"
    """,
    "basic": """
        mac = "basic"
    """,
}


def kinds() -> dict[str, Profile]:
    """Load each made-up profile."""
    loaded = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, text in KINDS.items():
            path = Path(folder) / f"{name}.toml"
            path.write_text(_TOP + text, encoding="utf-8")
            loaded[name] = load_profile(str(path))
    return loaded
