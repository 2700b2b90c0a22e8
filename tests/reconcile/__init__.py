"""The laws, the scenarios and the unit tests of the pure engine."""
