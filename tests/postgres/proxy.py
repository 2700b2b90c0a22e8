"""A way to the server that can be cut at a chosen word of the client's."""

from __future__ import annotations

import select
import shutil
import socket
import tempfile
import threading
from contextlib import closing
from pathlib import Path

from sqlalchemy.engine import make_url

from tests.postgres.server import PORT
from tests.waiting import PATIENCE_S

NAME = f".s.PGSQL.{PORT}"
RECEIVE = 65_536


class Proxy:
    """A proxy in a folder and threads of its own, until it is told to cut."""

    def __init__(self, server: Path) -> None:
        """server: the folder of the server's socket."""
        self._server = server
        self._folder = Path(tempfile.mkdtemp(prefix="tpx", dir="/tmp"))
        self._listener = socket.socket(socket.AF_UNIX)
        self._word: bytes | None = None
        self._arrives = False
        self.cuts = 0

    def __enter__(self) -> Proxy:
        self._listener.bind(str(self._folder / NAME))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        shutil.rmtree(self._folder)

    def url(self, url: str) -> str:
        """Return the URL of the same database by way of the proxy."""
        query = {"host": str(self._folder), "port": str(PORT)}
        return make_url(url).set(query=query).render_as_string(hide_password=False)

    def cut_at(self, word: bytes, *, arrives: bool) -> None:
        """Cut once, when the client says the word: before the server hears it, or before the client
        hears the answer."""
        self._word, self._arrives = word, arrives

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def _pass_on(self, client: socket.socket) -> None:
        with closing(client), closing(socket.socket(socket.AF_UNIX)) as server:
            server.connect(str(self._server / NAME))
            other = {client: server, server: client}
            while True:
                for each in select.select(list(other), [], [])[0]:
                    data = each.recv(RECEIVE)
                    if not data or (each is client and self._cuts(data, server)):
                        return
                    other[each].sendall(data)

    def _cuts(self, data: bytes, server: socket.socket) -> bool:
        if self._word is None or self._word not in data:
            return False
        self._word = None
        self.cuts += 1
        if self._arrives:
            server.sendall(data)
            server.settimeout(PATIENCE_S)
            server.recv(RECEIVE)  # its answer: it has committed
        return True
