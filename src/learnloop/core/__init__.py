"""Records, ids, clock, seeding, errors and protocols: the words that every other room uses.

Nothing in here does I/O or imports anything heavy; import from the modules directly.
"""
