"""What an aggregation server runs: with `mpc`, `wire` and `transport` all that must be audited to trust one."""
