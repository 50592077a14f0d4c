"""What jobs on Spark share: who runs functions on ranks (backend), and where files lie (store)."""
