"""The peer of runnerd: issues tickets, leases, commands and ACKs, and keeps what was committed."""
