"""A witness made from the published format alone (C2SP tlog-witness, tlog-cosignature): it shares
no line with the product that asks it."""

import base64
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

import httpx2
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route


class BadProof(Exception):
    """A consistency proof that does not verify."""


def node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()


def consistent(old: int, old_root: bytes, size: int, root: bytes, proof: list[bytes]) -> bool:
    """RFC 6962, 2.1.2, read backwards: the proof's last hash is the one at the top."""
    rest = list(proof)

    def roots(first: int, whole: int, known: bool) -> tuple[bytes, bytes]:
        if first == whole:
            found = old_root if known else _popped(rest)
            return found, found
        split = 1 << ((whole - 1).bit_length() - 1)
        beside = _popped(rest)
        if first <= split:
            before, after = roots(first, split, known)
            return before, node(after, beside)
        before, after = roots(first - split, whole - split, False)
        return node(beside, before), node(beside, after)

    if old == 0:
        return not proof
    try:
        return roots(old, size, True) == (old_root, root) and not rest
    except BadProof:
        return False


def _popped(rest: list[bytes]) -> bytes:
    if not rest:
        raise BadProof
    return rest.pop()


@dataclass
class TestWitness:
    """Cosigns for logs whose keys it was given.

    logs      the public keys, 32 bytes each, that it trusts for each origin
    seen      size and root of the latest checkpoint that it has cosigned of each
    asked     sizes that were asked for, old and new
    answers   what it says instead, if set: another's bad answers
    """

    __test__ = False

    name: str
    seconds: Callable[[], int]
    logs: dict[str, list[bytes]] = field(default_factory=dict)
    seen: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    asked: list[tuple[int, int]] = field(default_factory=list)
    answers: Callable[[Response], Response] = lambda answer: answer

    def __post_init__(self) -> None:
        secret = hashlib.sha256(self.name.encode()).digest()
        self.private = Ed25519PrivateKey.from_private_bytes(secret)
        self.app = Starlette(routes=[Route("/w/add-checkpoint", self._asked, methods=["POST"])])

    @property
    def id(self) -> bytes:
        public = self.private.public_key().public_bytes_raw()
        return hashlib.sha256(self.name.encode() + b"\n\x04" + public).digest()[:4]

    @property
    def key(self) -> str:
        public = self.private.public_key().public_bytes_raw()
        return f"{self.name}+{self.id.hex()}+{base64.b64encode(bytes([4]) + public).decode()}"

    def cosignature(self, body: str) -> str:
        """Return the line of a note, with its newline."""
        time = self.seconds()
        signed = self.private.sign(f"cosignature/v1\ntime {time}\n{body}".encode())
        blob = self.id + time.to_bytes(8, "big") + signed
        return f"— {self.name} {base64.b64encode(blob).decode()}\n"

    async def _asked(self, request: Request) -> Response:
        return self.answers(self.judge((await request.body()).decode()))

    def judge(self, text: str) -> Response:
        """Answer a request's body."""
        head, _, note = text.partition("\n\n")
        first, *hashes = head.split("\n")
        body = note.partition("\n\n")[0] + "\n"
        origin, number, encoded = body.split("\n")[:3]
        old, size, root = int(first.removeprefix("old ")), int(number), base64.b64decode(encoded)
        proof = [base64.b64decode(each) for each in hashes]
        self.asked.append((old, size))
        if origin not in self.logs:
            return PlainTextResponse("unknown log\n", 404)
        if not any(self._signed(note, body, origin, raw) for raw in self.logs[origin]):
            return PlainTextResponse("no trusted signature\n", 403)
        if old > size or len(proof) > 63:
            return PlainTextResponse("old size is larger\n", 400)
        known, known_root = self.seen.get(origin, (0, b""))
        if old != known:
            return Response(f"{known}\n", 409, media_type="text/x.tlog.size")
        if old == size and old and root != known_root:
            return PlainTextResponse("another root\n", 409)
        if not consistent(old, known_root, size, root, proof):
            return PlainTextResponse("inconsistent\n", 422)
        self.seen[origin] = (size, root)
        return PlainTextResponse(self.cosignature(body))

    def _signed(self, note: str, body: str, origin: str, raw: bytes) -> bool:
        wanted = hashlib.sha256(origin.encode() + b"\n\x01" + raw).digest()[:4]
        for line in note.partition("\n\n")[2].splitlines():
            dash, name, encoded = line.split(" ")
            blob = base64.b64decode(encoded)
            if (dash, name, blob[:4]) != ("—", origin, wanted):
                continue
            try:
                Ed25519PublicKey.from_public_bytes(raw).verify(blob[4:], body.encode())
            except InvalidSignature:
                continue
            return True
        return False


class Houses(httpx2.AsyncBaseTransport):
    """Transport to several witnesses, each reached by its host. An absent one is down."""

    def __init__(self, witnesses: list[TestWitness]) -> None:
        self.there = {each.name.partition("/")[0]: each for each in witnesses}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        witness = self.there.get(request.url.host)
        if witness is None:
            raise httpx2.ConnectError("nobody is there")
        return await httpx2.ASGITransport(app=witness.app).handle_async_request(request)
