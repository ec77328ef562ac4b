"""Results in notebooks: what was found is in them, and what others named stays text."""

from __future__ import annotations

from learnloop.core.records import Verdict
from learnloop.evaluation import Comparison, Interval, Verification
from learnloop.evaluation.tables import html_table
from learnloop.evaluation.verification import Arm
from learnloop.training.proof import ReturnTest, TrainingProof

INTERVAL = Interval(low=-0.5, high=1.5, level=0.95, num_units=40)


def test_nothing_is_said_so() -> None:
    assert html_table([]) == "<p>nothing yet</p>"
    assert html_table([], "<none>") == "<p>&lt;none&gt;</p><p>nothing yet</p>"


def test_a_comparison_shows_its_interval() -> None:
    found = Comparison(
        baseline="best-fixed (<a>)",
        mean=0.75,
        baseline_mean=0.25,
        difference=0.5,
        interval=INTERVAL,
        p_value=0.01,
        num_units=40,
    )
    assert "<td>best-fixed (&lt;a&gt;)</td><td>0.25</td><td>0.5</td><td>-0.5</td><td>1.5</td>" in found._repr_html_()


def test_verdicts_show_their_reasons_above_their_figures() -> None:
    verification = Verification(
        verdict=Verdict.LEARNED,
        reasons=["better than <i>", "and more"],
        policy=None,
        arms={"trained": Arm(mean=0.75, interval=None, num_units=9)},
        num_samples=9,
        num_training_units=9,
        num_units=9,
        seed=0,
        alpha=0.05,
    )
    shown = verification._repr_html_()
    assert shown.startswith("<p>learned: better than &lt;i&gt;; and more</p><table>")
    assert "<td>trained</td><td>0.75</td><td></td><td></td>" in shown
    test = ReturnTest(
        against="random",
        mean=1.0,
        difference=2.0,
        interval=INTERVAL,
        effect=3.0,
        p_value=0.001,
        p_value_worse=0.9,
        p_adjusted=0.01,
    )
    proof = TrainingProof(
        verdict=Verdict.NO_SIGNAL, reasons=["<none>"], mean=3.0, num_episodes=20, seed_means=[3.0], tests=[test]
    )
    shown = proof._repr_html_()
    assert shown.startswith("<p>no_signal: &lt;none&gt;</p>")
    assert "<td>random</td><td>1</td><td>2</td><td>-0.5</td><td>1.5</td><td>0.001</td>" in shown
