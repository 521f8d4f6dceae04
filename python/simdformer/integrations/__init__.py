"""Adapters for the base classes of other packages. Each module imports its package."""
