"""Tests of starting payments."""
