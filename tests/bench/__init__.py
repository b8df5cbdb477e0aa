"""Figures of speed and cost, each a ratio measured in one run: `./dev bench`."""
