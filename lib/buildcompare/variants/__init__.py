"""A matrix of variants beside one baseline: what each factor does, and which variants differ."""
