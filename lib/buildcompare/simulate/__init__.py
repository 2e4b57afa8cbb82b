"""Load tests with known truth: a server model under the load-test coordinator's real feedback rule."""
