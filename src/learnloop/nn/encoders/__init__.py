"""From contexts and observations to vectors: fitted once, then frozen and stored with a policy."""
