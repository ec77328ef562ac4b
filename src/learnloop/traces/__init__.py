"""Record what an agent does, and read what others recorded.

Capture fails open: it never raises into the agent and never waits; what could not be kept is counted.
"""
