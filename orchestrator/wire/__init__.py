"""What crosses between the parties, byte by byte: layouts and envelopes, no behaviour."""
