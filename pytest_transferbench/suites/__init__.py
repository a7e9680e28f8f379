"""Test modules that come with the plugin: ``pytest --pyargs pytest_transferbench.suites.test_p2p``."""
