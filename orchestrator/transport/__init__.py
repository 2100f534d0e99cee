"""Connections between the parties: mutual TLS, messages with deadlines, the start of a process."""
