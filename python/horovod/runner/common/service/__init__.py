"""Services that processes of several jobs meet at."""
