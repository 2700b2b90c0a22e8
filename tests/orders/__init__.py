"""Tests of folding, publishing and searching."""
