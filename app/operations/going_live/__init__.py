"""Before real money moves: the rehearsal, the endpoint's trial, the checklist."""
