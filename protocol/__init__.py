"""What a runner and its controller must agree on byte for byte; pure but for base.posix_fs."""
