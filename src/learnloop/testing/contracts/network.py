"""What a network promises to the algorithms that learn with it."""

from __future__ import annotations

import json
from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np

from learnloop.core.arrays import F32
from learnloop.core.errors import UsageError
from learnloop.core.seeding import generator
from learnloop.nn.network import Network
from learnloop.testing.contracts.contract import Contract, expect, refuses, same, skip

BATCHES = (1, 2, 7, 64)
STEP = 4e-3
"""How far parameters are moved to measure a slope: below, 32 bits round too much, above, it bends."""
SLOPE_TOLERANCE = 0.02
"""Of a slope, relative to the largest that the gradient allows in its direction."""
ROW_TOLERANCE = 1e-4
"""How far the outputs of a row may depend on its batch, by rounding."""


class NetworkContract(Contract):
    """Rules of networks.

    ::

        class TestMine(NetworkContract):
            def make(self, seed):
                return TorchNetwork(my_module(seed), input_size=4, output_size=3)

    Slopes are measured, so make it small and smooth where it can be: a network of rectifiers bends now and then.

    Attributes:
        num_directions: along so many directions is the slope of each named tensor measured.
    """

    num_directions: ClassVar[int] = 3

    @abstractmethod
    def make(self, seed: int) -> Network:
        """Returns a network with parameters of its own, the same for the same seed."""

    def inputs(self, network: Network, batch: int = 7) -> F32:
        """Returns inputs, shape ``(batch, input_size)``."""
        return _normal((batch, network.input_size), "inputs", batch)

    def test_parameters_and_gradients_are_flat(self) -> None:
        """Both are one contiguous float32 vector of the same length, and the same memory each time."""
        network = self.make(0)
        why = "optimisers step over one vector, and checkpoints store it"
        for name in ("parameters", "gradients"):
            found: Any = getattr(network, name)
            is_fine = isinstance(found, np.ndarray) and found.dtype == np.float32 and found.ndim == 1
            expect(is_fine and found.flags.c_contiguous, f"{name} is a contiguous float32 vector", type(found), why)
            expect(found.flags.writeable, f"{name} can be written to", "it is read-only", why)
            again = getattr(network, name)
            expect(np.shares_memory(found, again), f"{name} is the same memory each time", "a copy", why)
        same(network.parameters.shape, network.gradients.shape, "both have one number for each parameter", why)

    def test_layers_cover_the_parameters(self) -> None:
        """Each parameter lies in exactly one named layer."""
        network = self.make(0)
        counts = np.zeros(network.parameters.size, dtype=np.int64)
        for part in network.layers().values():
            counts[part] += 1
        why = "figures of layers and conversions would miss some parameters"
        expect((counts == 1).all(), "each parameter is in one layer", f"{np.count_nonzero(counts != 1)} are not", why)

    def test_outputs_have_their_shape(self) -> None:
        """Outputs are finite float32 of shape (batch, output_size), for any batch, and inputs stay as they are."""
        network = self.make(0)
        why = "losses are written for such outputs"
        for batch in BATCHES:
            inputs = self.inputs(network, batch)
            given = inputs.copy()
            for call in (network.forward, network.predict):
                found = call(inputs)
                wanted = (batch, network.output_size)
                is_fine = found.dtype == np.float32 and found.shape == wanted and bool(np.isfinite(found).all())
                shown = f"{found.dtype} {found.shape}"
                expect(is_fine, f"{call.__name__} returns finite float32 of shape {wanted}", shown, why)
            same(inputs, given, "inputs stay as they are", "they are the caller's, and belong to a rollout")

    def test_predict_says_what_forward_says(self) -> None:
        """Acting and learning see the same outputs, for any batch."""
        network = self.make(0)
        for batch in BATCHES:
            inputs = self.inputs(network, batch)
            learned, acted = network.forward(inputs).copy(), network.predict(inputs).copy()
            why = "the ratio of old and new policy would not be 1 before the first gradient step"
            _close(learned, acted, "predict returns what forward returns", why)

    def test_rows_do_not_depend_on_each_other(self) -> None:
        """A row alone has the outputs that it has in a batch, but for rounding."""
        network = self.make(0)
        inputs = self.inputs(network, 7)
        together = network.predict(inputs).copy()
        alone = np.concatenate([network.predict(inputs[row : row + 1]).copy() for row in range(7)])
        why = "a row that is acted on alone would be learned from as another one; BatchNorm does that"
        _close(together, alone, "rows do not depend on each other", why)

    def test_gradients_are_slopes(self) -> None:
        """``backward`` gives, for each named tensor, the slope that is measured by moving it."""
        network = self.make(0)
        for batch in (1, 7):
            inputs, weights = self.inputs(network, batch), _normal((batch, network.output_size), "weights", batch)
            network.forward(inputs)
            network.backward(weights)
            gradient = network.gradients.copy()
            for name, part in network.layers().items():
                for number in range(self.num_directions):
                    direction = _normal(gradient[part].shape, name, number)
                    self._look_at_slope(network, (inputs, weights), part, direction, gradient[part], name)

    def _look_at_slope(
        self,
        network: Network,
        loss: tuple[F32, F32],
        part: slice,
        direction: F32,
        gradient: F32,
        name: str,
    ) -> None:
        direction /= np.linalg.norm(direction)
        start = network.parameters.copy()
        slopes = []
        for step in (STEP, 2 * STEP):
            values = []
            for sign in (1, -1):
                network.parameters[part] = start[part] + np.float32(sign * step) * direction
                network.refresh()
                values.append(_loss(network, *loss))
            slopes.append((values[0] - values[1]) / (2 * step))
        network.parameters[:] = start
        network.refresh()
        slope = (4 * slopes[0] - slopes[1]) / 3  # what is left bends with the fourth power of the step
        told = float(gradient.astype(np.float64) @ direction)
        allowed = SLOPE_TOLERANCE * (float(np.linalg.norm(gradient)) + abs(slope) + 0.01)
        why = "learning would go another way than down the loss"
        promise = f"the gradient of {name} is the slope of the loss"
        expect(abs(slope - told) <= allowed, promise, f"it says {told:.5g}, measured is {slope:.5g}", why)

    def test_gradients_of_inputs_are_slopes(self) -> None:
        """``backward`` gives the gradient of the inputs where it is asked for, and None where it is not."""
        network = self.make(0)
        inputs, weights = self.inputs(network, 5), _normal((5, network.output_size), "weights")
        network.forward(inputs)
        why = "SAC's actor learns through the critic's inputs"
        same(network.backward(weights), None, "backward returns None where no input gradient is asked for", why)
        found = network.backward(weights, inputs=True)
        is_fine = found is not None and found.shape == inputs.shape
        expect(is_fine, "inputs=True returns a gradient of the shape of the inputs", type(found), why)
        told = np.array(found, dtype=np.float64)
        for number in range(self.num_directions):
            direction = _normal(inputs.shape, "direction", number)
            direction /= np.linalg.norm(direction)
            values = [_loss(network, inputs + np.float32(sign * STEP) * direction, weights) for sign in (1, -1)]
            slope, wanted = (values[0] - values[1]) / (2 * STEP), float((told * direction).sum())
            allowed = SLOPE_TOLERANCE * (float(np.linalg.norm(told)) + abs(slope) + 0.01)
            found_ = f"it says {wanted:.5g}, measured is {slope:.5g}"
            expect(abs(slope - wanted) <= allowed, "the gradient of the inputs is the slope of the loss", found_, why)

    def test_backward_replaces_gradients(self) -> None:
        """``backward`` writes gradients, and adds nothing to those before; parameters=False leaves them alone."""
        network = self.make(0)
        inputs, weights = self.inputs(network), _normal((7, network.output_size), "weights")
        network.forward(inputs)
        network.backward(weights)
        first = network.gradients.copy()
        network.backward(weights)
        why = "updates would add up to one that nobody asked for"
        _close(network.gradients, first, "a second backward replaces the gradients of the first", why)
        network.gradients[:] = 7
        network.backward(weights, parameters=False, inputs=True)
        expect((network.gradients == 7).all(), "parameters=False leaves gradients as they are", "others", why)

    def test_predict_leaves_a_pending_backward_alone(self) -> None:
        """Between forward and backward any number of predictions changes nothing."""
        network = self.make(0)
        inputs, weights = self.inputs(network), _normal((7, network.output_size), "weights")
        network.forward(inputs)
        network.backward(weights)
        wanted = network.gradients.copy()
        network.forward(inputs)
        for batch in BATCHES:
            network.predict(_normal((batch, network.input_size), "others", batch))
        network.backward(weights)
        why = "acting while an update runs would learn from what is acted on"
        _close(network.gradients, wanted, "predict leaves what backward needs alone", why)

    def test_what_is_written_counts(self) -> None:
        """After refresh, outputs are those of the parameters that were written."""
        network, other = self.make(0), self.make(1)
        is_other = not np.array_equal(network.parameters, other.parameters)
        expect(is_other, "another seed gives other parameters", "the same", "seeds would be one sample")
        inputs = self.inputs(network)
        wanted = other.predict(inputs).copy()
        np.copyto(network.parameters, other.parameters)
        network.refresh()
        why = "optimisers, restored checkpoints and target networks write parameters"
        _close(network.predict(inputs), wanted, "outputs are those of the parameters that were written", why)
        _close(network.forward(inputs), wanted, "outputs are those of the parameters that were written", why)

    def test_a_copy_is_apart(self) -> None:
        """A copy says the same, and neither changes with the other."""
        network = self.make(0)
        inputs = self.inputs(network)
        wanted = network.predict(inputs).copy()
        copied = network.copy()
        why = "target networks and policies are copies"
        same(copied.parameters, network.parameters, "a copy has a copy of the parameters", why)
        _close(copied.predict(inputs), wanted, "a copy says the same", why)
        network.parameters[:] += np.float32(1)
        network.refresh()
        _close(copied.predict(inputs), wanted, "a copy stays as it is while the network changes", why)
        is_apart = not np.shares_memory(copied.parameters, network.parameters)
        expect(is_apart, "a copy has parameters of its own", "shared memory", why)

    def test_what_does_not_fit_is_refused(self) -> None:
        """Inputs of another size or type, and backward before forward, are refused."""
        network = self.make(0)
        inputs = self.inputs(network)
        why = "numbers that mean something else would go through"
        refuses(UsageError, "inputs of another size are refused", why, network.predict, np.zeros((2, 99), np.float32))
        refuses(UsageError, "inputs of 64 bits are refused", why, network.forward, inputs.astype(np.float64))
        refuses(UsageError, "inputs without a batch are refused", why, network.predict, inputs[0])
        weights = np.zeros((7, network.output_size), np.float32)
        refuses(UsageError, "backward before forward is refused", why, self.make(0).backward, weights)

    def test_dropout_is_consistent(self) -> None:
        """Seen through the same mask, a row has the same outputs; a network without masks refuses them."""
        network = self.make(0)
        inputs, masks = self.inputs(network), np.arange(7)
        why = "a row would be learned from as another one than it was acted on"
        if network.num_masks == 0:
            refuses(UsageError, "a network without dropout refuses masks", why, network.predict, inputs, masks)
            return
        seen = network.predict(inputs, masks).copy()
        _close(network.forward(inputs, masks), seen, "forward sees through a mask what predict sees", why)
        _close(network.predict(inputs, masks), seen, "a mask is the same each time", why)
        other = network.predict(inputs, masks + 7)
        expect(not np.allclose(other, seen, atol=1e-6), "another mask drops other units", "the same outputs", why)

    def test_its_config_is_json(self) -> None:
        """to_config is JSON, and no parameter is in it."""
        network = self.make(0)
        config = json.dumps(network.to_config())
        same(config, json.dumps(self.make(1).to_config()), "to_config tells the architecture alone", "it is stored")

    def test_the_same_seed_starts_the_same(self) -> None:
        """``make`` gives the same parameters for the same seed."""
        first, second = (self.make(3).parameters for _ in range(2))
        same(first, second, "the same seed starts the same", "results must be had again")

    def test_the_gradient_leads_down(self) -> None:
        """Some steps down the gradient reduce the loss."""
        network = self.make(0)
        inputs = self.inputs(network, 32)
        target = _normal((32, network.output_size), "target")
        losses = []
        for _ in range(40):
            errors = network.forward(inputs).copy() - target
            losses.append(float(np.square(errors).mean()))
            network.backward(errors / np.float32(errors.size))
            if not np.isfinite(network.gradients).all() or not network.gradients.any():
                skip("the gradient is zero or not finite here; another rule says why")
            network.parameters[:] -= np.float32(0.5) * network.gradients
            network.refresh()
        why = "this is all that learning is"
        expect(losses[-1] < losses[0], "steps down the gradient reduce the loss", losses[:: len(losses) - 1], why)


def _normal(shape: tuple[int, ...], *names: object) -> F32:
    return generator(0, "contract", *names).standard_normal(shape).astype(np.float32)


def _loss(network: Network, inputs: F32, weights: F32) -> float:
    outputs = network.predict(np.ascontiguousarray(inputs, dtype=np.float32))
    return float((outputs.astype(np.float64) * weights).sum())


def _close(found: Any, wanted: Any, promise: str, why: str) -> None:
    first, second = np.asarray(found, dtype=np.float64), np.asarray(wanted, dtype=np.float64)
    off = float(np.abs(first - second).max()) if first.shape == second.shape else np.inf
    allowed = ROW_TOLERANCE * max(1.0, float(np.abs(second).max()))
    expect(off <= allowed, promise, f"a difference of {off:.3g}", why)
