"""One question per file: settings in a frozen dataclass, one call on series, a frozen result."""
