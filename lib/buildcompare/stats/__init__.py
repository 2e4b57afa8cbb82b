"""Statistics that do not depend on load tests: noise, effects, changepoints, autocorrelation."""
