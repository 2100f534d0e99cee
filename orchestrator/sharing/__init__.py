"""How a client turns plaintext into shares: fixed point, rings, share types, randomness, sealed envelopes."""
