"""Tests of the simulated provider."""
