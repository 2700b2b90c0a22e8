"""Tests of the forms of reports."""
