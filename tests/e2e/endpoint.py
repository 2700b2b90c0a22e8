"""An HTTP endpoint to which services under test send."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.waiting import PATIENCE_S


@contextmanager
def listening(take: Callable[[str, dict[str, Any]], int], *, port: int = 0) -> Iterator[int]:
    """Answer each webhook with the status that `take(id, document)` returns. Yields the port."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            self.send_response(take(self.headers["webhook-id"], json.loads(body)))
            self.end_headers()

        def log_message(self, *words: object) -> None:
            """Log nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads, request_queue_size = True, 64

        def handle_error(self, request: Any, address: Any) -> None:
            """Ignore a caller that hung up or was killed."""

    server = Server(("127.0.0.1", port), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join(PATIENCE_S)
