"""The durable record of one run."""
