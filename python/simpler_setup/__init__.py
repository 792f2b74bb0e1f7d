"""Command-line modules of simpler, and what they share."""
