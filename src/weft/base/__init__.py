"""What every layer may use: devices, errors, environment switches. Needs only the standard library."""
