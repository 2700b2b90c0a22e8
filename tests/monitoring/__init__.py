"""Tests of alarms and preflight checks."""
