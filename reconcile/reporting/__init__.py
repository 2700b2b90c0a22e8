"""A period as a report: figures, lists, ties, journal, and what prevents its closing."""
