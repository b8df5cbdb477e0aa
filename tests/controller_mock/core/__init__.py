"""Tests of the controller's core: pure steps, driven as the shell drives them."""
