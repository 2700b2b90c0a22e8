"""Tests of the rehearsal and the checklist."""
