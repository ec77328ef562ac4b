"""Writes episodes in formats of others: ATIF, and dated folders of ExecutionTrace files.

What a format has no place for is not written, and what is not known is left out: nothing is made up to fill a field.
"""
