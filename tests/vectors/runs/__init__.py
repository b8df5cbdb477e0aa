"""The vectors of durable runs, each group through the public API by a small adapter."""
