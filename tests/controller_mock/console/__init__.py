"""Tests of the controller's command line."""
