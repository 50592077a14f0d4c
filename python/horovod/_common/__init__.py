"""Internals shared by the framework adapters. Nothing here is a public name."""
