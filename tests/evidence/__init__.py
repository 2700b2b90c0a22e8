"""Tests of evidence bundles and the log."""
