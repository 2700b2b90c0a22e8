"""The yardstick: an endpoint that reads a webhook's body and does nothing, on the same server.

`python -m tests.bench.donothing PORT`. What the service takes beyond this is its own cost."""

import sys

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from app.config.settings import Settings
from app.wiring.serving import BACKLOG

ANSWER = b'{"verdict":"accepted","delivery":"dlv_000000000000000000000000000000"}'


async def receive(request: Request) -> Response:
    await request.body()
    return Response(ANSWER, media_type="application/json")


def application() -> Starlette:
    return Starlette(routes=[Route("/webhooks/{source}", receive, methods=["POST"])])


if __name__ == "__main__":
    uvicorn.run(
        application(),
        port=int(sys.argv[1]),
        loop="uvloop",
        http="httptools",
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=Settings().idle_deadline_s,
    )
