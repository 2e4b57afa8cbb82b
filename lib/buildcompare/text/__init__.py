"""Every number, code and reason in words."""
