"""Makes better versions of policies from the log, and judges them on what was held out."""
