"""Helpers under the names that integrations import: docs/api/runner.md."""
