"""The tables. Private to this folder: `mapping` turns rows into values of `reconcile` and back.

SQLModel validates nothing in a table model, so every value that enters has been checked before:
events by the provider's profile, records by the operation that makes them.

    truth   deliveries  records  revisions  rejections  tokens  signoffs
            operators  audit  imports  book_lines  statement_lines  bank_lines  closings
            closing_prints
            match_rules  runs  breaks  break_versions  break_seen  break_turns  break_deeds
            erasures  credentials  proposals  proposal_decisions  bookmarks
            attachments  attachment_files  log_departures
    index   events  links  contested        rebuilt from deliveries by `reindex`
            phones                           added to by `reindex`: of some the bodies are gone
    cache   ledgers  order_listings         rebuilt by `refold --all`
            takings                         and by the next run
    marks   order_due  unanswered  notifications  meta  counters  arrivals
            invitations  sessions  used_forms  alarm_owners  alarm_messages
            scheduled_runs  log_witnesses
"""

from app.database.tables import core, finance, people
from app.database.tables.core import metadata

__all__ = ["core", "finance", "metadata", "people"]
