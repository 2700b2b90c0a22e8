"""Tests of databases as large as years make them."""
