"""Several runs beside each other: engines, methods, privacy settings, costs."""
