"""Every question to the database, and every change of rows, that is more than to write records: one file a noun.

Each function takes a connection inside a transaction, which ``Store.read`` and ``Store.run`` give, and is named for
what it returns. No other room writes SQL, so a renamed column touches this one alone.
"""
