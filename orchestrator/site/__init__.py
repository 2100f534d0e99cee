"""What runs at a hospital or bank while it takes part: one resident process that holds the graph and trains."""
