"""Tests of the way of a delivery."""
