"""Services and helpers that jobs share."""
