"""Tests of who may come in."""
