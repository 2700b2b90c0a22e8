"""Tests of provider profiles, signatures and reading."""
