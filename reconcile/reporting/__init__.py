"""Report of a period: figures, lists, ties, journal, and what prevents closing the period."""
