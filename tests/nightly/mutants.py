"""The seeded bugs of PPO, A2C and what they share; ``ALL`` has those of DQN and SAC too."""

from __future__ import annotations

from tests.nightly.mutants_off_policy import DQN_MUTANTS, REPLAY_MUTANTS, SAC_MUTANTS
from tests.nightly.mutation import Mutant

_PPO = "tests/algorithms/on_policy/test_ppo.py::"
_ON_POLICY = "tests/algorithms/on_policy/test_learner.py::"
_DEALING = "tests/algorithms/base/test_dealing.py::"
_SCALING = "tests/algorithms/base/test_scaling.py::"
_A2C = "tests/algorithms/on_policy/test_a2c.py::"
_GAE = "tests/algorithms/on_policy/test_advantages.py::"
_LIVE = "tests/algorithms/live/test_episodes.py::"
_POLICY = "tests/algorithms/policies/test_network_policy.py::"
_PROBES = "tests/algorithms/test_probes.py::test_actor_critics_with_discrete_actions"
_LOSSES = f"{_PPO}test_the_loss_and_its_gradient_are_those_of_the_paper"
_LOSS = f"{_LOSSES}[False-None-discrete]"
_RATIO = f"{_PPO}test_the_ratio_is_one_before_the_first_gradient_step"
_A2C_LOSS = f"{_A2C}test_the_gradient_is_that_of_the_paper[False-discrete]"


def _probes(algorithm: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{_PROBES}[{algorithm}-{name}]" for name in names)


NOTES_MUTANTS = [
    Mutant(
        "no_discount",
        "learner:OnPolicyAlgorithm.rollout_batch",
        "self.config.gamma",
        "1.0",
        _probes("ppo", "P3", "P7"),
    ),
    Mutant(
        "adv_sign",
        "ppo:PPO._loss",
        "pull *= np.float32(-1 / size)",
        "pull *= np.float32(1 / size)",
        (*_probes("ppo", "P4"), _LOSS),
    ),
    Mutant(
        "ignore_done",
        "learner:OnPolicyAlgorithm.record",
        "rollout.ended[at] = ended",
        "rollout.ended[at] = False",
        _probes("ppo", "P1", "P3"),
    ),
    Mutant(
        "trunc_as_term",
        "learner:OnPolicyAlgorithm.record",
        "cut = np.flatnonzero(step.truncated & ~step.terminated)",
        "cut = np.flatnonzero(step.truncated & step.terminated)",
        _probes("ppo", "P7"),
    ),
    Mutant(
        "stale_obs",
        "learner:OnPolicyAlgorithm.choose",
        "rollout.observations[at] = observations",
        "rollout.observations[at] = rollout.observations[at - 1]",
        (*_probes("ppo", "P2"), f"{_RATIO}[0.0-discrete]"),
    ),
    Mutant(
        "action_perm",
        "learner:OnPolicyAlgorithm.choose",
        "rollout.actions[at] = chosen.actions",
        "rollout.actions[at] = np.roll(chosen.actions, 1, axis=0)",
        (*_probes("ppo", "P4"), f"{_RATIO}[0.0-discrete]"),
    ),
    Mutant(
        "value coef 0",
        "ppo:PPO._value_loss",
        "np.multiply(errors, np.float32(2 * self.config.vf_coef / batch.size), out=gradient)",
        "np.multiply(errors, np.float32(0), out=gradient)",
        (*_probes("ppo", "P1"), _LOSS),
    ),
    Mutant(
        "policy detached",
        "ppo:PPO._loss",
        "gradient[:, :-1] = evaluation.gradient(pull, -config.ent_coef / size)",
        "gradient[:, :-1] = 0",
        (*_probes("ppo", "P4"), _LOSS),
    ),
    Mutant(
        "lr 0",
        "ppo:PPO._update",
        "learning_rate = value_at(config.learning_rate, self.progress)",
        "learning_rate = 0.0",
        _probes("ppo", "P1", "P4"),
    ),
    Mutant(
        "entropy x5000",
        "ppo:PPO._loss",
        "evaluation.gradient(pull, -config.ent_coef / size)",
        "evaluation.gradient(pull, -5000 * max(config.ent_coef, 0.01) / size)",
        (*_probes("ppo", "P8"), _LOSS),
    ),
    Mutant(
        "reward_clip01",
        "learner:OnPolicyAlgorithm.record",
        "rollout.rewards[at] = rewards",
        "rollout.rewards[at] = np.clip(rewards, 0, 1)",
        _probes("ppo", "P2", "P8"),
    ),
    Mutant(
        "returns=advantages",
        "rollout:Rollout.batch",
        "advantages + self.values",
        "advantages",
        _probes("ppo", "P1", "P2"),
    ),
    Mutant(
        "reward_lag",
        "learner:OnPolicyAlgorithm.record",
        "rollout.rewards[at] = rewards",
        "rollout.rewards[(at + 1) % rollout.num_steps] = rewards",
        _probes("ppo", "P2", "P5"),
    ),
    Mutant(
        "no zero_grad",
        "algorithm:Algorithm._find_gradient",
        "network.backward(gradient)",
        "before = network.gradients.copy()\nnetwork.backward(gradient)\nnetwork.gradients[:] += before",
        (*_probes("ppo", "P1", "P6"), f"{_ON_POLICY}test_a_gradient_forgets_the_one_before"),
    ),
    Mutant(
        "lambda0",
        "advantages:gae",
        "carry = np.where(ended, np.float32(0), np.float32(gamma * gae_lambda))",
        "carry = np.zeros(ended.shape, dtype=np.float32)",
        (*_probes("ppo", "P6"), f"{_GAE}test_lambda_one_is_the_n_step_return_minus_the_value"),
    ),
]
"""The fifteen that the notes had measured, in the same order. Our gradients are written anew by each ``backward``; the
bug of a forgotten ``zero_grad`` is one that adds them up."""

PPO_MUTANTS = [
    Mutant(
        "PPO: nothing is clipped",
        "ppo:PPO._loss",
        "counts = np.less_equal(terms.signs * ratios, terms.signed_bounds).astype(np.float32)",
        "counts = np.ones_like(ratios)",
        (_LOSS,),
    ),
    Mutant(
        "PPO: clipped on the wrong side",
        "ppo:PPO._terms",
        "bounds = np.where(gains, np.float32(1 + clip_range), np.float32(1 - clip_range))",
        "bounds = np.where(gains, np.float32(1 - clip_range), np.float32(1 + clip_range))",
        (_LOSS,),
    ),
    Mutant(
        "PPO: the ratio upside down",
        "ppo:PPO._loss",
        "log_ratios = evaluation.log_probs - batch.log_probs",
        "log_ratios = batch.log_probs - evaluation.log_probs",
        (_LOSS,),
    ),
    Mutant(
        "PPO: sign of the entropy",
        "ppo:PPO._loss",
        "evaluation.gradient(pull, -config.ent_coef / size)",
        "evaluation.gradient(pull, config.ent_coef / size)",
        (f"{_ON_POLICY}test_entropy_is_paid_for[ppo]",),
    ),
    Mutant(
        "PPO: advantages not centred",
        "advantages:standardised",
        "rows - means.astype(np.float32)",
        "rows.copy()",
        (_LOSS, f"{_PPO}test_each_minibatch_is_normalised_by_itself", f"{_PPO}test_equal_advantages_say_nothing"),
    ),
    Mutant(
        "PPO: advantages normalised over the whole rollout",
        "ppo:PPO._terms",
        "advantages = _normalised(advantages, starts)",
        "advantages = _normalised(advantages, [0])",
        (f"{_PPO}test_each_minibatch_is_normalised_by_itself",),
    ),
    Mutant(
        "PPO: no gradient where a value is clipped is forgotten",
        "ppo:PPO._value_loss",
        "free = np.abs(moves) <= clip_range",
        "free = np.ones_like(moves)",
        (f"{_LOSSES}[False-0.2-discrete]",),
    ),
    Mutant(
        "PPO: importance weights ignored",
        "ppo:PPO._terms",
        "if weights is not None:\n    advantages = advantages * weights",
        "",
        (f"{_ON_POLICY}test_a_weight_is_that_of_an_advantage[ppo]", f"{_LOSSES}[True-None-discrete]"),
    ),
    Mutant(
        "PPO: an epoch leaves out the last minibatch",
        "ppo:PPO.minibatches",
        "zip(starts, [*starts[1:], batch.size], strict=True)",
        "zip(starts[:-1], starts[1:], strict=True)",
        (f"{_PPO}test_each_epoch_goes_through_each_transition_once",),
    ),
    Mutant(
        "PPO: target_kl ignored",
        "ppo:PPO._update",
        "1.5",
        "1e9",
        (f"{_PPO}test_a_large_move_ends_the_update_early",),
    ),
    Mutant(
        "on-policy: the gradient is not clipped",
        "learner:OnPolicyAlgorithm._step",
        "limit = self.config.max_grad_norm",
        "limit = None",
        (f"{_PPO}test_gradients_are_clipped",),
    ),
    Mutant(
        "on-policy: masks ignored when choosing",
        "learner:OnPolicyAlgorithm._choose_scaled",
        "self.distribution.sample(outputs[:, :-1], self._rng, masks)",
        "self.distribution.sample(outputs[:, :-1], self._rng)",
        (f"{_PPO}test_masked_actions_are_never_drawn_and_have_no_gradient",),
    ),
    Mutant(
        "on-policy: masks ignored in the loss",
        "learner:OnPolicyAlgorithm._evaluate",
        "return outputs, self.distribution.evaluate(outputs[:, :-1], batch.actions, batch.masks)",
        "return outputs, self.distribution.evaluate(outputs[:, :-1], batch.actions)",
        (f"{_ON_POLICY}test_what_is_not_allowed_has_no_gradient",),
    ),
    Mutant(
        "on-policy: a cut episode is worth the first observation of the next one",
        "learner:OnPolicyAlgorithm.record",
        "self.value(step.final_observations[cut])",
        "self.value(step.observations[cut])",
        (f"{_ON_POLICY}test_a_cut_episode_is_worth_its_own_last_observation",),
    ),
    Mutant(
        "on-policy: an interruption forgets the value of the last observation",
        "learner:OnPolicyAlgorithm.interrupt",
        "self._rollout.bootstraps[at, running] = self.value(self._last_observations[running])",
        "self._rollout.bootstraps[at, running] = 0",
        (f"{_PPO}test_interrupting_cuts_running_episodes_with_their_value",),
    ),
    Mutant(
        "on-policy: shuffled controls are not shuffled",
        "learner:OnPolicyAlgorithm._learn_batch",
        "batch = batch._replace(advantages=advantages, returns=deal(batch.returns, self._rng))",
        "batch = batch._replace(returns=deal(batch.returns, self._rng))",
        (f"{_PPO}test_shuffled_credit_learns_nothing",),
    ),
    Mutant(
        "controls: they may keep what is their own",
        "dealing:deal",
        "dealt[order] = values[np.roll(order, 1)]",
        "dealt[order] = values",
        (f"{_DEALING}test_each_goes_to_another_row",),
    ),
    Mutant(
        "controls: they are dealt advantages with a mean",
        "dealing:deal_centred",
        "rng.permutation(advantages - advantages.mean(dtype=np.float64))",
        "rng.permutation(advantages)",
        (f"{_DEALING}test_centred_advantages_give_no_gradient_in_expectation",),
    ),
    Mutant(
        "rollout: an action leads to the observation that it was chosen on",
        "rollout:Rollout.next_values",
        "following = np.concatenate([self.values[1:], last_values[None]])",
        "following = self.values.copy()",
        _probes("ppo", "P3"),
    ),
    Mutant(
        "rollout: values of cut episodes stay for the next rollout",
        "rollout:Rollout.clear",
        "self.bootstraps[:] = 0",
        "",
        (f"{_ON_POLICY}test_a_terminated_episode_is_worth_nothing_where_one_was_cut_before",),
    ),
    Mutant(
        "rollout: envs that only reset themselves are learned from",
        "rollout:Rollout.batch.flat",
        "return joined[self.valid.reshape(-1)] if self.has_invalid else joined",
        "return joined",
        (f"{_PPO}test_lanes_that_only_reset_themselves_are_not_learned_from",),
    ),
    Mutant(
        "rollout: masks are not handed on",
        "rollout:Rollout.batch",
        "flat(self.masks) if self.has_masks else None",
        "None",
        (f"{_ON_POLICY}test_an_action_is_learned_with_the_mask_that_it_was_chosen_with",),
    ),
    Mutant(
        "GAE: carried over the end of an episode",
        "advantages:gae",
        "carry = np.where(ended, np.float32(0), np.float32(gamma * gae_lambda))",
        "carry = np.full(ended.shape, np.float32(gamma * gae_lambda))",
        (f"{_GAE}test_a_zero_reward_step_before_a_cut_gets_nothing_of_the_next_episode",),
    ),
    Mutant(
        "GAE: the value is added, not taken off",
        "advantages:gae",
        "rewards + np.float32(gamma) * next_values - values",
        "rewards + np.float32(gamma) * next_values + values",
        (*_probes("ppo", "P1"), f"{_GAE}test_lambda_zero_is_the_td_error"),
    ),
    Mutant(
        "scales: an observation that nothing is chosen on is taken in",
        "scaling:ObservationScaler.see",
        "self.update(observations if left_out is None else observations[~left_out])",
        "self.update(observations)",
        (f"{_PPO}test_the_last_observation_before_a_reset_of_its_own_is_not_seen_by_the_scale",),
    ),
    Mutant(
        "scales: the last observation of a cut episode is not scaled",
        "learner:OnPolicyAlgorithm.value",
        "observations = self.observation_scaler.apply(observations)",
        "",
        (f"{_ON_POLICY}test_the_last_observation_is_scaled_as_the_others",),
    ),
    Mutant(
        "scales: the return goes on over the end of an episode",
        "scaling:RewardScaler.see",
        "self._returns[ended if valid is None else ended | ~valid] = 0",
        "self._returns[np.zeros_like(ended) if valid is None else ~valid] = 0",
        (f"{_SCALING}test_returns_end_with_their_episodes",),
    ),
    Mutant(
        "scales: the return of an env goes on while it resets itself",
        "scaling:RewardScaler.see",
        "self._returns[ended if valid is None else ended | ~valid] = 0",
        "self._returns[ended] = 0",
        (f"{_SCALING}test_returns_end_with_their_episodes",),
    ),
    Mutant(
        "scales: the return of a live episode goes on over its end",
        "scaling:RewardScaler.see_live",
        "if not ended:\n    self._live[episode] = total",
        "self._live[episode] = total",
        (f"{_LIVE}test_live_rewards_are_scaled_as_those_of_lanes",),
    ),
    Mutant(
        "scales: the policy that is served does not scale",
        "network_policy:NetworkPolicy._outputs",
        "inputs = observations if self._normaliser is None else self._normaliser.apply(observations)",
        "inputs = observations",
        (f"{_POLICY}test_a_policy_scales_what_it_sees",),
    ),
    Mutant(
        "live: a cut episode is worth nothing after its end",
        "rollout:live_steps",
        "segment[-1].terminated",
        "(segment[-1].terminated or segment[-1].truncated)",
        (f"{_LIVE}test_a_truncated_episode_is_worth_its_last_observation",),
    ),
    Mutant(
        "live: actions of an earlier policy count in full",
        "learner:OnPolicyAlgorithm.live_batch",
        "is_own = num_updates == self.num_updates",
        "is_own = num_updates >= 0",
        (f"{_LIVE}test_an_action_in_flight_over_an_update_is_one_of_an_earlier_policy",),
    ),
    Mutant(
        "live: an episode of the same name goes on after its end",
        "live.episodes:LiveSegments.add",
        "del self._running[episode]",
        "pass",
        (f"{_LIVE}test_a_name_can_be_used_again_before_the_update",),
    ),
]

VTRACE_MUTANTS = [
    Mutant(
        "V-trace: weights are not cut",
        "advantages:vtrace",
        "np.minimum(ratios, np.float32(max_rho))",
        "ratios",
        (f"{_GAE}test_vtrace_is_equation_one",),
    ),
    Mutant(
        "V-trace: corrections are not weighted",
        "advantages:vtrace",
        "corrections *= weights",
        "",
        (f"{_GAE}test_vtrace_is_equation_one",),
    ),
    Mutant(
        "V-trace: traces are not cut",
        "advantages:vtrace",
        "np.float32(gamma * gae_lambda) * np.minimum(ratios, np.float32(1))",
        "np.float32(gamma * gae_lambda)",
        (f"{_GAE}test_vtrace_is_equation_one",),
    ),
    Mutant(
        "V-trace: advantages look at the next value, not at its target",
        "advantages:vtrace",
        "ahead[:-1] = np.where(ended[:-1], next_values[:-1], following)",
        "",
        (f"{_GAE}test_vtrace_advantages_look_at_the_next_target",),
    ),
    Mutant(
        "V-trace: history's ratio upside down",
        "correction:corrected",
        "judged.log_probs - log_probs",
        "log_probs - judged.log_probs",
        (f"{_A2C}test_history_is_weighted_by_how_likely_this_policy_is_to_act_so",),
    ),
    Mutant(
        "V-trace: history counts in full",
        "correction:corrected",
        "found.weights",
        "np.ones_like(found.weights)",
        (f"{_A2C}test_history_is_weighted_by_how_likely_this_policy_is_to_act_so",),
    ),
    Mutant(
        "V-trace: history's masks ignored",
        "learner:OnPolicyAlgorithm._judged",
        "self.distribution.evaluate(outputs[:, :-1], steps.actions, steps.masks)",
        "self.distribution.evaluate(outputs[:, :-1], steps.actions)",
        (f"{_ON_POLICY}test_history_is_weighed_over_what_was_allowed",),
    ),
    Mutant(
        "V-trace: history's rewards are not scaled",
        "learner:OnPolicyAlgorithm.historical_batch",
        "self.reward_scaler.apply(steps.rewards).astype(np.float32)",
        "steps.rewards.astype(np.float32)",
        (f"{_A2C}test_historical_rewards_are_scaled_as_those_of_lanes",),
    ),
]

A2C_MUTANTS = [
    Mutant(
        "A2C: sign of the advantage",
        "a2c:A2C._update",
        "advantages * np.float32(-1 / size)",
        "advantages * np.float32(1 / size)",
        (*_probes("a2c", "P4"), _A2C_LOSS),
    ),
    Mutant(
        "A2C: value coef 0",
        "a2c:A2C._update",
        "np.multiply(errors, np.float32(2 * config.vf_coef / size), out=gradient[:, -1])",
        "np.multiply(errors, np.float32(0), out=gradient[:, -1])",
        (*_probes("a2c", "P1"), _A2C_LOSS),
    ),
    Mutant(
        "A2C: sign of the entropy",
        "a2c:A2C._update",
        "-config.ent_coef",
        "config.ent_coef",
        (f"{_ON_POLICY}test_entropy_is_paid_for[a2c]",),
    ),
    Mutant(
        "A2C: policy detached",
        "a2c:A2C._update",
        "evaluation.gradient(advantages * np.float32(-1 / size), -config.ent_coef / size)",
        "0 * evaluation.gradient(advantages * np.float32(-1 / size), -config.ent_coef / size)",
        (*_probes("a2c", "P4"), _A2C_LOSS),
    ),
    Mutant(
        "A2C: lr 0",
        "a2c:A2C._update",
        "self._step(gradient, loss, value_at(config.learning_rate, self.progress))",
        "self._step(gradient, loss, 0.0)",
        _probes("a2c", "P1", "P4"),
    ),
    Mutant(
        "A2C: the value learns advantages",
        "a2c:A2C._update",
        "errors = outputs[:, -1] - batch.returns",
        "errors = outputs[:, -1] - batch.advantages",
        (*_probes("a2c", "P1"), _A2C_LOSS),
    ),
    Mutant(
        "A2C: returns in the place of advantages",
        "a2c:A2C._update",
        "advantages = batch.advantages",
        "advantages = batch.returns",
        (_A2C_LOSS,),
    ),
    Mutant(
        "A2C: importance weights ignored",
        "a2c:A2C._update",
        "if batch.weights is not None:\n    advantages = advantages * batch.weights",
        "",
        (f"{_ON_POLICY}test_a_weight_is_that_of_an_advantage[a2c]",),
    ),
    Mutant(
        "A2C: lambda0",
        "advantages:gae",
        "carry = np.where(ended, np.float32(0), np.float32(gamma * gae_lambda))",
        "carry = np.zeros(ended.shape, dtype=np.float32)",
        _probes("a2c", "P6"),
    ),
    Mutant(
        "A2C: truncation taken for termination",
        "learner:OnPolicyAlgorithm.record",
        "cut = np.flatnonzero(step.truncated & ~step.terminated)",
        "cut = np.flatnonzero(step.truncated & step.terminated)",
        _probes("a2c", "P7"),
    ),
]

_DISTRIBUTIONS = "tests/nn/test_distributions.py::"

DISTRIBUTION_MUTANTS = [
    Mutant(
        "distributions: the width is left out of a density",
        "distributions:_GaussianEvaluation.__init__",
        "np.add.reduce(self._squares, axis=0) * np.float32(-0.5) - sum_of_logs",
        "np.add.reduce(self._squares, axis=0) * np.float32(-0.5)",
        (f"{_DISTRIBUTIONS}test_gaussian_is_that_of_torch",),
    ),
    Mutant(
        "distributions: the first of several choices alone counts",
        "distributions:_JointEvaluation.__init__",
        "self.log_probs += part.log_probs",
        "",
        (f"{_DISTRIBUTIONS}test_multi_categorical_is_the_product", f"{_LOSSES}[False-None-multi_discrete]"),
    ),
    Mutant(
        "distributions: the entropy counts what is not allowed",
        "distributions:_Softmax.__init__",
        "logits = np.where(self.masks, logits, _NEVER)",
        "logits = np.where(self.masks, logits, np.float32(-1))",
        (f"{_DISTRIBUTIONS}test_the_entropy_counts_what_is_allowed",),
    ),
    Mutant(
        "policy: the state's value is taken for an action's",
        "heads:ValuesHead.__init__",
        "slice(int(is_duelling), self.num_outputs)",
        "slice(0, self.num_outputs)",
        (f"{_POLICY}test_one_observation_is_acted_on_as_in_a_batch[duelling]",),
    ),
    Mutant(
        "policy: actions count from 0, whatever the space says",
        "network_policy:NetworkPolicy._act_greedily",
        "return best + self._start",
        "return best",
        (f"{_POLICY}test_one_observation_is_acted_on_as_in_a_batch",),
    ),
]

ALL: list[Mutant] = [
    *NOTES_MUTANTS,
    *PPO_MUTANTS,
    *VTRACE_MUTANTS,
    *A2C_MUTANTS,
    *DQN_MUTANTS,
    *REPLAY_MUTANTS,
    *SAC_MUTANTS,
    *DISTRIBUTION_MUTANTS,
]

SAMPLE = [
    "lambda0",
    "DQN: sign of Huber's slope",
    "SAC: the actor follows the wrong critic",
    "V-trace: weights are not cut",
]
"""Killed in each run of the tests."""
