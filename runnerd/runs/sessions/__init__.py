"""Conversations that outlive a process: a versioned log, its legacy import, two backends."""
