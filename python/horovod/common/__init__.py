"""What every framework module shares: the basics, exceptions, process sets and helpers (public module paths)."""
