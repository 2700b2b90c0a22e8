"""The demo: its shop's calls to a busy service, and the ports of its servers."""

import socket
from contextlib import ExitStack

import httpx2
import pytest

from app.cli import demo
from app.cli.demo import address_of, call, inherited, listener_on
from app.core.errors import UnreachableError, UsageError


class Server:
    """Answers in turn; the last answer again and again."""

    def __init__(self, *answers: httpx2.Response | Exception) -> None:
        self.answers, self.asked = list(answers), 0

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        """Return the next answer."""
        self.asked += 1
        answer = self.answers[min(self.asked, len(self.answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer


async def ask(server: Server, **words: object) -> httpx2.Response:
    """Make one call as the demo's shop."""
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(server)) as http:
        return await call(http, "PUT", "http://service/", **words)  # type: ignore[arg-type]


async def test_a_call_is_made_again_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a 503 or a 429 as long after it as Retry-After says, after a broken connection soon."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr("app.cli.demo.asyncio.sleep", sleep)
    server = Server(
        httpx2.Response(503, headers={"Retry-After": "5"}),
        httpx2.Response(429),
        httpx2.ReadTimeout("planned"),
        httpx2.Response(202, headers={"Retry-After": "2"}),
        httpx2.Response(200),
    )
    assert (await ask(server, again=(202, 429, 503))).status_code == 200
    assert slept == [5, demo.LOOK_S, demo.LOOK_S, 2]


async def test_a_call_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one sentence, at once where a repetition changes nothing, else when the time is over."""
    with pytest.raises(UnreachableError, match="PUT http://service/ got the answer 422 no"):
        await ask(Server(httpx2.Response(422, text="no")))
    monkeypatch.setattr(demo, "PATIENCE_S", 0.2)
    busy = Server(httpx2.Response(503, text="busy"))
    with pytest.raises(UnreachableError, match=r"did not succeed within 0\.2 s: 503 busy"):
        await ask(busy)
    assert busy.asked > 1


def test_a_port_that_was_taken_is_nobody_elses() -> None:
    """Whoever wants the same gets another; both are open to callers from now on."""
    with ExitStack() as stack:
        first = stack.enter_context(listener_on(0))
        others = [stack.enter_context(listener_on(address_of(first)[1])) for _ in range(9)]
        ports = {address_of(each)[1] for each in (first, *others)}
        assert len(ports) == 10
        for port in ports:
            stack.enter_context(socket.create_connection(("127.0.0.1", port), 5))


def test_a_number_that_is_no_listening_socket_is_refused() -> None:
    """Nothing was handed over, or something else."""
    with socket.socket() as mute:
        for number in (987_654, mute.fileno()):
            with pytest.raises(UsageError, match="is not a listening socket"):
                inherited(number)
