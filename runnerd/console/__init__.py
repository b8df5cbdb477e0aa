"""What a person asks of the program beside the daemon."""
