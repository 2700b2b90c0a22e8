"""Tests of keeping, pruning and erasing."""
