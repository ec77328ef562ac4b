"""What a proof from a log takes for granted, and what the log itself says of it.

Each check is a pure function of logged samples. None of them can show that an assumption holds; they show that it does
not, or that nothing speaks against it, and say what cannot be seen from a log at all.
"""
