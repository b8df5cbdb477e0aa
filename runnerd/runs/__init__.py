"""One agent run as a durable record: its log, operation, effects, checkpoints and resumption."""
