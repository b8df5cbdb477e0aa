"""Tests of the daemon's adapters."""
