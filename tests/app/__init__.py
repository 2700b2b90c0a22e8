"""Tests of what touches the world, module by module."""
