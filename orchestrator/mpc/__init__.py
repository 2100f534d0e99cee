"""Computing on additive shares: rings, fixed point, openings, multiplication and comparison."""
