"""The revisions, oldest first; each is frozen once it is released."""
