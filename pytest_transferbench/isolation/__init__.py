"""Keeping one item from harming another: what is allowed under pytest-xdist, and deadlines."""
