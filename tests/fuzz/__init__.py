"""Every decoder against spoiled input: a value or a typed refusal, and nothing else."""
