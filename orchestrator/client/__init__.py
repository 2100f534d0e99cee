"""What runs at a client: its runtime, what leaves it and what comes back. Nothing here knows servers or coordinator."""
