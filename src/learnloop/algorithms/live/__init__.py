"""Steps of live agents: episodes by name, whose rewards and observations come when they come."""
