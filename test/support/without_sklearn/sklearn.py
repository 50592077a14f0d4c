"""In front of the real one it looks as if that were not installed: jobs.without()."""

raise ImportError("sklearn is hidden from this process")
