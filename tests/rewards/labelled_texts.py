"""Attempts with labels for tests: real sentences over many topics, good and bad answers in several manners."""

from __future__ import annotations

import numpy as np

from learnloop.core.attempts import Attempt, AttemptStep, ToolCall
from learnloop.core.seeding import generator
from learnloop.rewards.learned.reward import Labelled

TOPICS = (
    "reset a forgotten password", "cancel a hotel booking", "return a broken kettle", "fix a flat bicycle tyre",
    "bake sourdough bread", "renew a passport", "set up a home printer", "file a tax return", "train a puppy",
    "repot an orchid", "merge two git branches", "restore a database backup", "change a car's oil",
    "book a doctor's appointment", "clean a coffee machine", "write a cover letter", "grow tomatoes on a balcony",
    "learn to swim", "open a bank account", "move a domain name", "sharpen a kitchen knife", "paint a wooden fence",
    "plan a week in Lisbon", "remove red wine from a carpet", "tune a guitar", "apply for a student loan",
    "insulate an attic", "speed up a slow laptop", "report a lost credit card", "make yoghurt at home",
)  # fmt: skip
GOOD = (
    "To {topic}, start with these three steps: gather what you need, follow the instructions in order, and check it.",
    "Here is how to {topic}. First prepare, then do the main part slowly, and at the end verify that it worked.",
    "You can {topic} yourself. I looked it up for you and these are the details, with the usual costs and time.",
    "The safest way to {topic} is described below, with a warning about the most common mistake.",
    "It depends on your case. If you are in a hurry, {topic} by the short way; otherwise take the thorough one below.",
    "Good question! Step 1: read the manual. Step 2: {topic} with care. Step 3: write down what you did.",
)
BAD = (
    "I am sorry, but I cannot help you with that request, since it is outside of what I am allowed to talk about.",
    "That is a stupid question. Nobody needs to {topic}, and you should be ashamed that you have asked me for it.",
    "As a language model I have no opinion about how to {topic}. Please ask somebody else who knows about it.",
    "Did you know that penguins live in the southern hemisphere? They eat fish and krill and walk in long rows.",
    "An error occurred while the request was processed. The server did not answer in time. Try again later.",
    "To {topic} you just do it, it is obvious, everybody knows that, whatever, I have nothing to add to this.",
)
"""As long as the good ones, so that length does not tell them apart."""


def labelled_attempts(
    seed: int, per_topic: int = 6, noise: float = 0.0, num_topics: int = len(TOPICS)
) -> list[Labelled]:
    """Returns attempts at each topic, half of them good; ``noise`` is the chance that a label says the opposite."""
    rng = generator(seed, "labelled texts")
    found = []
    for topic in TOPICS[:num_topics]:
        for number in range(per_topic):
            is_good = bool(rng.random() < 0.5)
            pool = GOOD if is_good else BAD
            text = pool[int(rng.integers(len(pool)))].format(topic=topic)
            error = "it timed out" if rng.random() < (0.1 if is_good else 0.3) else None
            call = ToolCall(name="search", arguments={"query": topic}, error=error)
            attempt = Attempt(
                episode_id=f"{topic}/{number}",
                task_id=topic,
                prompt=f"How do I {topic}?",
                output=f"{text} ({number})",
                steps=[AttemptStep(output=text, tool_calls=[call] * int(rng.integers(1, 4)))],
                num_output_tokens=int(rng.integers(20, 60)),
                duration_seconds=float(rng.uniform(1, 5)),
            )
            says_good = is_good ^ bool(rng.random() < noise)
            found.append(Labelled(attempt, float(says_good)))
    return found


def shuffled_labels(labelled: list[Labelled], seed: int) -> list[Labelled]:
    """Returns the same attempts with labels that have nothing to do with them."""
    order = generator(seed, "shuffled").permutation(len(labelled))
    return [Labelled(each.attempt, labelled[int(place)].value) for each, place in zip(labelled, order, strict=True)]


def values(labelled: list[Labelled]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Returns the labels."""
    return np.array([each.value for each in labelled])
