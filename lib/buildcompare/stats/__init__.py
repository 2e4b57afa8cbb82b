"""Statistics that know no load test: noise, effects, changepoints, autocorrelation."""
