"""Which tests cover which fault of the catalogue, and what is still open."""
