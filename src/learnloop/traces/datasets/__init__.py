"""From stored traces to what learners take: episodes with steps, observations, rewards and groups."""
