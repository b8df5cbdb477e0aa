"""One contract suite for every store, and what is particular to each of them."""
