"""Tests of the protocol package, one module for each of its modules."""
