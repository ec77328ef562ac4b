"""Goals that are reached by actions with effects: the environment, and what executes its actions."""
