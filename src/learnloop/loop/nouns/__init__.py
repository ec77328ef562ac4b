"""The nouns of a workspace: what can be done with what it keeps, by one name in Python, commands and routes."""
