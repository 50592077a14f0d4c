"""Secrets, timeouts and network interfaces."""
