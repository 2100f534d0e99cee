"""What an organisation that aggregates runs: a service around one of the two servers, with a policy of its own."""
