"""Two servers on additive shares, without any other software; `engine` is what the orchestrator uses."""
