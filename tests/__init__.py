"""Tests, the demo and the benchmarks; nothing outside imports from here."""
