"""Faults on purpose: small programs that kill, crowd, cut and flip, and count what came of it."""
