"""The curve of connected users: windows, ramp, waves, supported users."""
