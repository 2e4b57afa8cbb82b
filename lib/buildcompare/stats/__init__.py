"""Statistics that know nothing of load tests: noise, effects, changepoints, autocorrelation."""
