"""Tests of operations on a store that the door has filled."""
