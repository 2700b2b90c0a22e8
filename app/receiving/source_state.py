"""What each source delivered last, and since when all of it is refused."""

from collections.abc import Mapping

from app.context.context import AppContext
from app.receiving.source_state_store import SourceArrivals, arrivals_of


async def source_arrivals(context: AppContext) -> Mapping[str, SourceArrivals]:
    """Return what came of every configured source."""
    return await context.database.on_snapshot(arrivals_of, list(context.sources))
