"""Check many rows of a table in one test, as a test itself costs more than most rows."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any


@contextmanager
def row(name: str) -> Iterator[None]:
    """Name the row in any failure inside."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"in the row: {name}")
        raise


def for_each(
    names: str | Sequence[str], table: Iterable[Any]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Run a test for each row, as `pytest.mark.parametrize` does with these arguments, but as one
    test, whose rows share its fixtures, and which ends at the first row that fails."""
    single, listed = isinstance(names, str), [names] if isinstance(names, str) else list(names)
    rows = [dict(zip(listed, (each,) if single else each, strict=True)) for each in table]

    def decorated(test: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(test)
        def of_all(**others: Any) -> None:
            for given in rows:
                with row(f"{given!r:.300}"):
                    test(**others, **given)

        @wraps(test)
        async def of_all_awaited(**others: Any) -> None:
            for given in rows:
                with row(f"{given!r:.300}"):
                    await test(**others, **given)

        found: Callable[..., Any] = of_all_awaited if inspect.iscoroutinefunction(test) else of_all
        taken = inspect.signature(test)
        left = [each for name, each in taken.parameters.items() if name not in listed]
        vars(found)["__signature__"] = taken.replace(parameters=left)
        return found

    return decorated
