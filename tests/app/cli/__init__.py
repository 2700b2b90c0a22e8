"""Tests of the command line: what it prints, where, and what it ends with."""
