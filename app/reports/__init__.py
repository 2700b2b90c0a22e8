"""The period report in every format, one module a format, and the journal of its money."""
