"""Tests of sessions: lines, trees, legacy files, layouts, backends."""
