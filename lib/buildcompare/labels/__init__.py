"""Label tables: levels, noise, traffic mix."""
