"""What the parties of a run agree on: who they are, and what every round is. No data, no learning, no behaviour."""
