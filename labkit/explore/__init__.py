"""The explorer: every crash, every lost reply, every interleaving of a recovery program, on real SQLite."""
