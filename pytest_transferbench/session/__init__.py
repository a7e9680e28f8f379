"""What one pytest process keeps between hooks: the run's settings, node and engine, and one item's measuring."""
