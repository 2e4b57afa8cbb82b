"""Label tables (API handlers, database methods): levels, noise, traffic mix."""
