"""Metrics of a model, on the whole graph or by every client on its own nodes."""
