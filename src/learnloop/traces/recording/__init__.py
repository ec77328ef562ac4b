"""Records what an agent does while it runs: by hand, by decorators and through the clients that it uses."""
