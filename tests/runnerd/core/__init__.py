"""Tests of the runner core."""
