"""What a person types is answered on a server as on SQLite."""

from __future__ import annotations

import pytest

from tests.postgres.test_erasures import Run, run

__all__ = ("run",)

pytestmark = pytest.mark.postgres


def test_bytes_of_another_encoding_are_refused_without_asking_the_server(run: Run) -> None:
    for words in (("orders", "show", "\udcff"), ("tokens", "revoke", "\udcff")):
        code, _, err = run(*words)
        assert (code, err) == (
            2,
            "tallyhook: a word of the command is not UTF-8 text: type it again\n",
        )
