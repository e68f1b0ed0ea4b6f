"""Running a step list on a device: memory, copies in and out, one launch after another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from softq.artifact.abi import numpy_dtype
from softq.artifact.device.starting import MOST_BLOCKS, Start
from softq.artifact.device.steps import Launch, Steps
from softq.artifact.program import Step, Tensor, evaluate
from softq.errors import InputError

Array = NDArray[np.generic]


class Device(Protocol):
    """A device; memory is whatever `allocate` returns.

    Attributes:
        shared_bytes: Most shared memory per block, in bytes.
    """

    shared_bytes: int

    def allocate(self, size: int) -> Any:
        """Return so many bytes of its memory, at least 256-byte aligned."""

    def free(self, memory: Any) -> None:
        """Give memory back."""

    def write(self, memory: Any, array: Array) -> None:
        """Copy an array to memory."""

    def read(self, memory: Any, array: Array) -> None:
        """Wait for all launches, then copy memory to an array."""

    def launch(self, module: str, start: Start, blocks: int, arguments: Sequence[Any]) -> None:
        """Start a kernel; arguments are memory and NumPy numbers."""


class Executor:
    """A built model on a device; memory is kept from call to call while it is large enough.

    Args:
        steps: The launches.
        weights: The contents of the weights file.
        device: The device.
    """

    def __init__(self, steps: Steps, weights: Array, device: Device) -> None:
        self.steps, self._device = steps, device
        self._weights: dict[int, Any] = {}
        self._memory: dict[tuple[str, int], tuple[int, Any]] = {}
        self._planned: tuple[dict[str, int], list[_Launched]] = ({}, [])
        try:
            for at, size in steps.weights.items():
                self._weights[at] = device.allocate(max(size, 1))
                device.write(self._weights[at], weights[at : at + size])
        except BaseException:
            self.close()
            raise

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Return the outputs by name.

        Raises:
            InputError: a shape contradicts another or a limit, or an index lies outside its axis.
        """
        steps, dims = self.steps, self._dims(inputs)
        for k, number in enumerate(steps.inputs):
            array = np.ascontiguousarray(inputs[steps.tensors[number].name])
            self._device.write(self._room("input", k, array.nbytes), array)
        for k, size in enumerate(steps.slots):
            self._room("arena", k, evaluate(size, dims))
        results: dict[str, Array] = {}
        for k, number in enumerate(steps.outputs):
            tensor = steps.tensors[number]
            results[tensor.name] = np.empty([evaluate(s, dims) for s in tensor.shape], numpy_dtype(tensor.dtype))
            self._room("output", k, results[tensor.name].nbytes)
        for launched in self._plan(dims):
            self._run(launched)
        for number in steps.outputs:
            # An output may be an input, a weight, or what another output is too.
            array = results[steps.tensors[number].name]
            if array.nbytes:
                self._device.read(self._where(steps.tensors[number]), array)
        return results

    def start_again(self) -> None:
        """Start the launches of the last call once more, on its inputs; the results stay on the device."""
        for launched in self._planned[1]:
            self._run(launched)

    def close(self) -> None:
        """Give all memory back."""
        for memory in (*self._weights.values(), *(memory for _, memory in self._memory.values())):
            self._device.free(memory)
        self._weights.clear()
        self._memory.clear()

    def _dims(self, inputs: Mapping[str, Array]) -> dict[str, int]:
        dims: dict[str, int] = {}
        for number in self.steps.inputs:
            tensor = self.steps.tensors[number]
            for size, there in zip(tensor.shape, inputs[tensor.name].shape, strict=True):
                wanted = dims.setdefault(size, there) if isinstance(size, str) else evaluate(size, dims)
                if wanted != there:
                    raise InputError(
                        f"input {tensor.name!r} has shape {list(inputs[tensor.name].shape)}; expected {wanted} "
                        f"where it has {there}"
                    )
        for limit in self.steps.limits:
            value = evaluate(limit.size, dims)
            if not limit.low <= value <= limit.high:
                raise InputError(f"{limit.because}: it is {value}")
        return dims

    def _room(self, place: str, at: int, size: int) -> Any:
        old = self._memory.get((place, at))
        if old is not None and old[0] >= size:
            return old[1]
        if old is not None:
            del self._memory[place, at]  # also where there is no room for more
            self._device.free(old[1])
        memory = self._device.allocate(max(size, 1))
        self._memory[place, at] = (size, memory)
        return memory

    def _where(self, tensor: Tensor) -> Any:
        return self._weights[tensor.at] if tensor.place == "weight" else self._memory[tensor.place, tensor.at][1]

    def _plan(self, dims: dict[str, int]) -> Sequence[_Launched]:
        """Return the launches for these dimensions; those of the last call are kept."""
        if not self._planned[1] or self._planned[0] != dims:
            launches = self.steps.launches
            shared = self._device.shared_bytes
            wanted = [step for step in self.steps.steps if evaluate(step.items, dims) > 0]
            found = [_launched(launches[step.kernel], step, dims, shared) for step in wanted]
            # There are none where something is empty.
            self._planned = (dims, [launched for launched in found if launched.blocks > 0])
        return self._planned[1]

    def _run(self, launched: _Launched) -> None:
        step = launched.step
        tensors = [self.steps.tensors[number] for number in step.tensors]
        memory = [*map(self._where, tensors)]
        flag = np.zeros(1, np.int32)
        if step.error is not None:
            self._device.write(memory[0], flag)
        arguments = [*memory, *launched.numbers]
        self._device.launch(launched.module, launched.start, launched.blocks, arguments)
        if step.error is not None:
            self._device.read(memory[0], flag)
            if flag[0]:
                raise InputError(step.error)


@dataclass(frozen=True)
class _Launched:
    """A step's launch for some dimensions."""

    step: Step
    module: str
    start: Start
    blocks: int
    numbers: Sequence[np.generic]


def _launched(launch: Launch, step: Step, dims: Mapping[str, int], shared_bytes: int) -> _Launched:
    # Code runs on devices of less shared memory than that which it was made for, too.
    there = (one for one in launch.starts(step) if one.shared <= shared_bytes)
    fitting = (one for one in there if all(condition.holds(dims) for condition in one.when))
    start = next(fitting, None)
    if start is None:
        raise InputError(f"no kernel of {step.kernel!r} fits for these dimensions: {dict(dims)}")
    blocks = evaluate(start.blocks, dims)
    if blocks > MOST_BLOCKS:
        raise InputError(f"a launch of {start.symbol!r} has {blocks} blocks; a GPU takes at most {MOST_BLOCKS}")
    numbers: list[np.generic] = []
    for one in launch.numbers(step):
        value, limits = evaluate(one.size, dims), np.iinfo(one.dtype)
        if not limits.min <= value <= limits.max:
            raise InputError(f"a launch of {start.symbol!r} has a number of {limits.bits} bits that is {value}")
        numbers.append(np.dtype(one.dtype).type(value))
    return _Launched(step, launch.module, start, blocks, numbers)
