"""Histories of one runner: machine, driver and disk, with a scripted peer that holds the keys."""
