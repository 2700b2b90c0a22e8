"""Tests of the provider engine."""
