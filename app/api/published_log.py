"""Public answers about the log: keys, signed checkpoints, and proofs."""

from typing import Any, Final

from anyio import CapacityLimiter
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from app.context.context import AppContext
from app.core.errors import NotFoundError, UsageError
from app.core.problems import problem
from app.evidence.keys import PublicKey, public_key_line
from app.evidence.prove_sealed import cosigned_checkpoint, prove_growth, shown_checkpoint
from app.evidence.seal import known_log, verifier_key
from app.evidence.witnesses import witnesses_of

PLACE: Final = "/.well-known/tallyhook"

AT_ONCE: Final = 2
"""Maximum number of requests that read the log at a time."""

MAX_DIGITS: Final = 18
"""Maximum digits of a log size in an address."""

_CACHE: Final = {"Cache-Control": "public, max-age=10"}


class PublishedLog:
    """Endpoints that publish the log's checkpoints and proofs to everyone."""

    def __init__(self, context: AppContext) -> None:
        self._context = context
        self._witnesses = witnesses_of(context.settings)
        self._limiter = CapacityLimiter(AT_ONCE)

    def routes(self) -> list[Route]:
        """Return the routes of the published log."""
        return [
            Route(f"{PLACE}/", self.overview),
            Route(f"{PLACE}/checkpoint", self.checkpoint),
            Route(f"{PLACE}/cosigned", self.cosigned),
            Route(f"{PLACE}/consistency/{{old}}/{{new}}", self.consistency),
        ]

    async def overview(self, request: Request) -> Response:
        """Return the log's name, the answers' addresses, and every key."""
        async with self._limiter:
            known = await known_log(self._context)
        if known is None:
            return problem(404, "not_found", "The log has no sealed entries yet.")
        found = [PublicKey(bytes.fromhex(each)) for each in known.keys]
        keys: list[dict[str, Any]] = [
            {
                "note": verifier_key(known.origin, public),
                "minisign": public_key_line(public),
                "ed25519": public.raw.hex(),
                "endorsement": endorsement,
            }
            for public, endorsement in zip(found, known.endorsements, strict=True)
        ]
        return JSONResponse(
            {
                "log": known.origin,
                "earlier": [{"log": each.origin, "leaves": each.size} for each in known.earlier],
                "keys": keys,
                "checkpoint": f"{PLACE}/checkpoint",
                "cosigned": f"{PLACE}/cosigned",
                "witnesses": [] if self._witnesses is None else self._witnesses.names,
                "consistency": f"{PLACE}/consistency/{{old}}/{{new}}",
            },
            headers=_CACHE,
        )

    async def checkpoint(self, request: Request) -> Response:
        """Return the newest signed checkpoint, in the format C2SP tlog-checkpoint."""
        try:
            async with self._limiter:
                found = await shown_checkpoint(self._context)
        except NotFoundError:
            return problem(404, "not_found", "The log has no sealed entries yet.")
        return PlainTextResponse(found.note, headers=_CACHE)

    async def cosigned(self, request: Request) -> Response:
        """Return the newest checkpoint that enough witnesses have signed."""
        try:
            async with self._limiter:
                note = await cosigned_checkpoint(self._context)
        except NotFoundError:
            return problem(
                404, "not_found", "No checkpoint has been cosigned by enough witnesses yet."
            )
        return PlainTextResponse(note, headers=_CACHE)

    async def consistency(self, request: Request) -> Response:
        """Return a proof that a longer log contains a shorter log unchanged. The path gives both
        sizes."""
        old, new = request.path_params["old"], request.path_params["new"]
        if not all(_is_number(each) for each in (old, new)):
            return problem(
                404, "not_found", "Give the sizes of two checkpoints, such as 100 and 200."
            )
        try:
            async with self._limiter:
                found = await prove_growth(self._context, old=int(old), new=int(new))
        except (NotFoundError, UsageError) as error:
            return problem(404, "not_found", f"{str(error)[:1].upper()}{str(error)[1:]}.")
        return JSONResponse(found, headers=_CACHE)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS
