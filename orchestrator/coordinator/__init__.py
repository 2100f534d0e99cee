"""What the coordinator runs: it samples cohorts, carries envelopes, drives rounds, keeps the run's folder."""
