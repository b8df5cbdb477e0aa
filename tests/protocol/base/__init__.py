"""Tests of the primitives below the protocol."""
