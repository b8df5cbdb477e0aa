"""Tests of the controller's adapters."""
