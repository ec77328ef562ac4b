"""Models as judges: what they are asked, what they answered, and how far they agree with people."""
