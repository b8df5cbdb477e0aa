"""Real programs, real pipes and real signals under the harness executor."""
