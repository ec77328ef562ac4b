"""Any ``torch.nn.Module`` as a network. The only module that imports torch; importing it without torch raises."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from learnloop.core.arrays import F32, I64
from learnloop.core.errors import MissingExtraError, UsageError

try:
    import torch
except ImportError as error:
    raise MissingExtraError("TorchNetwork", "torch") from error


_TRIAL_ROWS = 3
_TOLERANCE = 1e-3
"""How far the output for a row may depend on the other rows of its batch, by rounding."""
_NORMS_OVER_ROWS = (torch.nn.modules.batchnorm._BatchNorm,)
_DROPOUTS = (torch.nn.modules.dropout._DropoutNd,)


class TorchNetwork:
    """A module that maps ``(batch, input_size)`` float32 to ``(batch, output_size)``, as the protocol ``Network``.

    On the CPU the module's parameters become views of ``parameters``: what is written there is what it computes with.
    On another device they are views of a flat tensor there, ``refresh`` copies ``parameters`` to it, and outputs and
    gradients are copied back. Parameters with ``requires_grad=False`` are not among ``parameters`` and stay as they
    are. Nothing global is set; say ``torch.set_num_threads(1)`` yourself where networks are small.

    Attributes:
        module: which is changed in place.
        parameters: shape ``(num_parameters,)``; call ``refresh`` after writing to them.
        gradients: what the last ``backward`` found, shape ``(num_parameters,)``.
    """

    num_masks = 0

    def __init__(self, module: torch.nn.Module, *, input_size: int, output_size: int, device: str = "cpu") -> None:
        """Takes over ``module``, which is changed in place.

        Args:
            module: not copied.
            input_size: how many numbers one input has.
            output_size: how many numbers one output has.
            device: ``cpu``, ``cuda``, ``cuda:1``, ...

        Raises:
            UsageError: the module does not map such inputs to such outputs, has parameters that are not float32 or
                none that learn, depends on the other rows of a batch or on chance, changes its buffers, or cannot be
                copied; or there is no such device.
        """
        self.module = module
        self.input_size = input_size
        self.output_size = output_size
        self._device = _device(device)
        check_module(module, input_size, output_size, self._device)
        self._slices: dict[str, slice] = {}
        self._trained = self._flatten()
        self._inputs: torch.Tensor | None = None
        self._outputs: torch.Tensor | None = None

    def _flatten(self) -> list[torch.nn.Parameter]:
        """Moves the parameters into one flat tensor; returns those that learn."""
        named = [(name, each) for name, each in self.module.named_parameters() if each.requires_grad]
        if not named:
            raise UsageError("the module has no parameter that requires a gradient; there is nothing to learn")
        self.parameters: F32 = np.empty(sum(each.numel() for _, each in named), dtype=np.float32)
        self.gradients: F32 = np.zeros_like(self.parameters)
        host = torch.from_numpy(self.parameters)
        self._flat = host if self._is_on_cpu else torch.empty_like(host, device=self._device)
        self._flat_gradient = torch.from_numpy(self.gradients)
        start = 0
        for name, each in named:
            part = slice(start, start + each.numel())
            view = self._flat[part].view(each.shape)
            view.copy_(each.detach())
            each.data = view
            self._slices[name] = part
            start = part.stop
        if not self._is_on_cpu:
            host.copy_(self._flat)
        return [each for _, each in named]

    @property
    def _is_on_cpu(self) -> bool:
        return self._device.type == "cpu"

    def layers(self) -> Mapping[str, slice]:
        """Returns where each parameter lies in ``parameters``, by the module's own names."""
        return dict(self._slices)

    def refresh(self) -> None:
        """Copies ``parameters`` to the device; on the CPU there is nothing to copy."""
        if not self._is_on_cpu:
            self._flat.copy_(torch.from_numpy(self.parameters))

    def forward(self, inputs: F32, masks: I64 | None = None) -> F32:
        """Returns the outputs, shape ``(batch, output_size)``, and keeps their graph until the next ``forward``."""
        tensor = self._tensor(inputs, masks).requires_grad_()
        with torch.enable_grad():
            outputs: torch.Tensor = self.module(tensor)
        self._inputs, self._outputs = tensor, outputs
        return _array(outputs.detach())

    def backward(self, output_gradient: F32, *, parameters: bool = True, inputs: bool = False) -> F32 | None:
        """Writes the gradient of the loss into ``gradients``; returns that of the inputs of the last ``forward``."""
        if self._outputs is None or self._inputs is None:
            raise UsageError("backward was called without forward; it goes back through what forward computed")
        wanted = [*(self._trained if parameters else []), *([self._inputs] if inputs else [])]
        if not wanted:
            return None
        given = _as_tensor(output_gradient).to(self._device)
        found = torch.autograd.grad(
            self._outputs, wanted, given, retain_graph=True, allow_unused=True, materialize_grads=True
        )
        if parameters:
            self._keep_gradients(found[: len(self._trained)])
        return _array(found[-1]) if inputs else None

    def _keep_gradients(self, found: tuple[torch.Tensor, ...]) -> None:
        self._flat_gradient.copy_(torch.cat([each.reshape(-1) for each in found]))

    def predict(self, inputs: F32, masks: I64 | None = None) -> F32:
        """Returns what ``forward`` would; what ``backward`` needs stays as it is."""
        with torch.no_grad():  # not inference_mode: what a module keeps of a call may be learned from in the next
            return _array(self.module(self._tensor(inputs, masks)))

    def copy(self) -> Self:
        """Returns a network over a copy of the module."""
        other = copy.copy(self)  # not built again: a subclass may be built from something else
        other._inputs = other._outputs = None
        other.module = copy.deepcopy(self.module)
        other._slices = {}
        other._trained = other._flatten()
        other.parameters[:] = self.parameters
        other.refresh()
        return other

    def to_config(self) -> dict[str, Any]:
        """Returns which class the module is of, and its sizes; the module itself is kept by who wrote it."""
        kind = type(self.module)
        return {
            "kind": "torch",
            "module": f"{kind.__module__}.{kind.__qualname__}",
            "input_size": self.input_size,
            "output_size": self.output_size,
        }

    def _tensor(self, inputs: F32, masks: I64 | None) -> torch.Tensor:
        if masks is not None:
            raise UsageError("dropout masks were given to a TorchNetwork, which has none; leave them out")
        if inputs.ndim != 2 or inputs.shape[1] != self.input_size or inputs.dtype != np.float32:
            raise UsageError(
                f"a network got inputs of shape {inputs.shape} and type {inputs.dtype}; "
                f"(batch, {self.input_size}) of float32 is needed"
            )
        return _as_tensor(inputs).to(self._device)


def _as_tensor(array: F32) -> torch.Tensor:
    """Returns a tensor that shares memory where torch can."""
    plain = np.ascontiguousarray(array, dtype=np.float32)
    return torch.from_numpy(plain if plain.flags.writeable else plain.copy())


def _array(tensor: torch.Tensor) -> F32:
    result: F32 = tensor.cpu().numpy()
    return result


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise UsageError(f"torch cannot use the device {name!r} here: {error}. Use device='cpu'") from error
    if device.type == "meta":
        raise UsageError("the device 'meta' holds no numbers; use device='cpu'")
    return device


def check_module(module: torch.nn.Module, input_size: int, output_size: int, device: torch.device) -> None:
    """Moves ``module`` to ``device``, where it must map ``(batch, input_size)`` to ``(batch, output_size)``.

    Raises:
        UsageError: it does not, has parameters that are not float32, or depends on other rows or on chance.
    """
    _check_submodules(module)
    _check_types(module)
    module.to(device)
    _check_trial(module, input_size, output_size, device)


def _check_submodules(module: torch.nn.Module) -> None:
    """Refuses parts that make a row's output depend on other rows or on chance (F1.1).

    Raises:
        UsageError: there is one; the message names it.
    """
    if not isinstance(module, torch.nn.Module):
        raise UsageError(f"a {type(module).__name__} is no torch.nn.Module")
    for name, part in module.named_modules():
        label = f"{type(part).__name__} {name!r}" if name else type(part).__name__
        if isinstance(part, _NORMS_OVER_ROWS):
            raise UsageError(
                f"the module has the {label}: it normalises over the rows of a batch, so that a row that is acted on "
                "and the same row when it is learned from get different outputs. Use torch.nn.LayerNorm instead"
            )
        if isinstance(part, _DROPOUTS) and part.p > 0 and part.training:
            raise UsageError(
                f"the module has the {label}, which drops others when a row is learned from than when it was acted on. "
                "Call module.eval() to switch it off, or use MLP(dropout=...), which keeps its masks"
            )


def _check_types(module: torch.nn.Module) -> None:
    lazy: tuple[type, ...] = (torch.nn.UninitializedParameter,)
    if any(not isinstance(each, lazy) and each.is_inference() for each in module.parameters()):
        raise UsageError("the module was built in torch.inference_mode, where nothing learns; build it outside")
    for name, buffer in module.named_buffers():
        if buffer.layout != torch.strided:
            raise UsageError(f"the module's buffer {name!r} has the layout {buffer.layout}; a dense one is needed")
    types = {str(each.dtype).removeprefix("torch.") for each in module.parameters()}
    if types - {"float32"}:
        raise UsageError(f"the module has parameters of {', '.join(sorted(types))}; call module.float() first")


def trial_inputs(input_size: int) -> F32:
    """Returns rows that modules are tried out with, from -1 to 1, shape ``(3, input_size)``."""
    return np.sin(np.arange(_TRIAL_ROWS * input_size, dtype=np.float32)).reshape(_TRIAL_ROWS, input_size)


def _check_trial(module: torch.nn.Module, input_size: int, output_size: int, device: torch.device) -> None:
    """Computes some rows twice, each alone, and as when it learns.

    Raises:
        UsageError: the module refuses the inputs or cannot be copied, or the outputs are of another shape or type, not
            finite, differ from one time to the next, depend on the other rows, or hang on no parameter.
    """
    inputs = torch.from_numpy(trial_inputs(input_size)).to(device)
    try:
        with torch.no_grad():
            first, second = module(inputs), module(inputs)
            rows = [module(inputs[index : index + 1]) for index in range(_TRIAL_ROWS)]
        buffers = {name: each.clone() for name, each in module.named_buffers()}
        with torch.enable_grad():
            learned = module(inputs)
    except Exception as error:  # whatever a module of another's raises
        raise UsageError(
            f"the module cannot map float32 of shape (batch, {input_size}): {type(error).__name__}: {error}"
        ) from error
    for found in (first, second, learned):
        _check_output(found, (_TRIAL_ROWS, input_size), (_TRIAL_ROWS, output_size))
    for found in rows:
        _check_output(found, (1, input_size), (1, output_size))
    if not torch.equal(first, second):
        raise UsageError(
            "the module gives other outputs for the same inputs; remove what draws numbers (dropout, noise)"
        )
    if not torch.allclose(first, torch.cat(rows), rtol=_TOLERANCE, atol=_TOLERANCE):
        raise UsageError("the module's output for a row depends on the other rows of the batch; rows must be apart")
    _check_learning(module, learned, buffers)


def _check_output(found: object, given: tuple[int, int], wanted: tuple[int, int]) -> None:
    if not isinstance(found, torch.Tensor):
        raise UsageError(f"the module gives a {type(found).__name__}; one tensor of shape {wanted} is needed")
    if found.layout != torch.strided:
        raise UsageError(f"the module gives a tensor of layout {found.layout}; a dense one is needed")
    if tuple(found.shape) != wanted or found.dtype != torch.float32:
        raise UsageError(
            f"the module maps float32 of shape {given} to {found.dtype} of shape {tuple(found.shape)}; "
            f"torch.float32 of shape {wanted} is needed"
        )
    if not bool(torch.isfinite(found).all()):
        raise UsageError("the module gives numbers that are not finite for inputs from -1 to 1")


def _check_learning(module: torch.nn.Module, learned: torch.Tensor, buffers: Mapping[str, torch.Tensor]) -> None:
    """Looks at what a forward that is learned from left in the module."""
    if any(each.requires_grad for each in module.parameters()) and not learned.requires_grad:
        raise UsageError("the module's outputs hang on none of its parameters; they are detached from them")
    for name, each in module.named_buffers():
        if name not in buffers or not torch.equal(each, buffers[name]):
            raise UsageError(
                f"the module changes its buffer {name!r} when it is learned from: a row that is acted on and the same "
                "row later get different outputs. Keep buffers as they are"
            )
    try:
        copy.deepcopy(module)
    except Exception as error:  # whatever a module of another's raises
        raise UsageError(
            f"the module cannot be copied ({type(error).__name__}: {error}), as target networks and policies are; keep "
            "no activations, locks or handles in it"
        ) from error
