"""Tests of what a person asks beside the daemon."""
