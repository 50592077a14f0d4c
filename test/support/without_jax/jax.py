"""In front of the real one it looks as if that were not installed: jobs.without()."""

raise ImportError("jax is hidden from this process")
