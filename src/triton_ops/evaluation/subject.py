"""The subject of a measurement: executables on private arguments, ready to be launched, timed and checked.

This is the one place where an executable becomes something that can be timed. Tuning, its last comparison, `compare`,
`time_ms` and `TritonAutoTuner` all stand on it; checking results is built on top (`verify.py`), and timing needs no
checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeAlias

from triton_ops._optional import require
from triton_ops.backend import Arguments, Executable, Protection, is_tensor, place_of, private_copy, with_canaries
from triton_ops.evaluation.poison import poison
from triton_ops.hardware import DeviceSpec
from triton_ops.hardware.state import free_bytes
from triton_ops.measure import Launch, Timer, choose_timer, sets_needed, timer_of

Choose: TypeAlias = Callable[..., Timer]
"""Gives the timer of a race; called as `choose_timer`, which it is but in simulations."""


class ArgumentSet:
    """Arguments that one measurement owns, with everything that tells what a launch did to them.

    Args:
        arguments: Nobody else may write them.
        outputs: Names of the arguments that launches write; they get canaries around them.
        protected: Whether changed inputs are to be found and put back.

    Attributes:
        arguments: The same values, with the outputs moved in between their canaries.
        outputs: The tensors that launches write.

    Cost: a copy of every output in between its canaries, and of every input if protected.
    """

    def __init__(self, arguments: Arguments, outputs: Sequence[str] = (), *, protected: bool = True) -> None:
        self.arguments, self._canaries = with_canaries(arguments, outputs)
        self.outputs = [t for name in outputs for t in Arguments((self.arguments.keyword.get(name),)).tensors()]
        written = {place_of(tensor) for tensor in self.outputs}
        self._inputs = {name: t for name, t in _named(self.arguments) if place_of(t) not in written}
        self._before = Protection(self._inputs.values() if protected else ())

    @property
    def input_dtypes(self) -> list[str]:
        """Long names."""
        return [str(tensor.dtype).removeprefix("torch.") for tensor in self._inputs.values()]

    def written_by(self, executable: Executable) -> list[Any]:
        """The values of the arguments that an executable writes; empty if it returns its result."""
        return [self.arguments.keyword[name] for name in executable.outputs]

    def poison(self, pattern: int) -> None:
        """Fill the outputs with what no right result holds; there are two patterns, 0 and 1."""
        for tensor in self.outputs:
            poison(tensor, pattern)

    def missed(self) -> str | None:
        """Which output a launch wrote beside, and by how many bytes; None if all canaries are whole."""
        return self._canaries.missed()

    def changed(self) -> dict[str, Any]:
        """The inputs that are not as they were, by name."""
        places = self._before.differing()
        return {name: tensor for name, tensor in self._inputs.items() if place_of(tensor) in places}

    def inputs(self, names: Sequence[str]) -> dict[str, Any]:
        """Inputs by name."""
        return {name: self._inputs[name] for name in names}

    def restore(self) -> None:
        """Put the inputs back."""
        self._before.restore()


class Clock:
    """The timer of one race: chosen by the first launch that is timed, and the same for all that follow.

    Args:
        device: What the launches run on.
        device_name: Its torch name.
        cold: On a GPU, whether L2 holds nothing of the arguments when a launch starts.
        mode: The mode of times that were taken before, which new ones must be comparable with; None leaves the choice.
        choose: Gives the timer; `choose_timer` but in simulations.

    Attributes:
        timer: None until it is chosen.
    """

    def __init__(
        self,
        device: DeviceSpec,
        device_name: str,
        *,
        cold: bool = True,
        mode: str | None = None,
        choose: Choose = choose_timer,
    ) -> None:
        self.device, self.device_name, self.cold = device, device_name, cold
        self.timer: Timer | None = None
        self._mode, self._choose = mode, choose

    @property
    def mode(self) -> str | None:
        """Of the timer, or the one that is asked for; None while both are open."""
        return self._mode if self.timer is None else self.timer.mode

    def start(self, launch: Launch) -> Timer:
        """The timer, chosen by `launch` if it is still to be chosen."""
        if self.timer is None and self._mode is not None:
            self.timer = timer_of(self._mode, self.device_name)
        if self.timer is None:
            self.timer = self._choose(self.device, self.device_name, launch, cold=self.cold)
        return self.timer

    def change(self, launch: Launch) -> Timer:
        """Another timer for all, which captures nothing: `launch` could not be captured."""
        self.timer = self._choose(self.device, self.device_name, launch, cold=self.cold, capture=False)
        return self.timer

    def sets(self, arguments: Arguments) -> int:
        """How many argument sets keep L2 cold: 1 on a CPU, where L2 may be warm, and where more would not fit."""
        return sets_for(self.device, self.device_name, arguments) if self.cold else 1


@dataclass
class Subject:
    """One argument set that executables are launched and timed on, and further sets of equal content.

    Attributes:
        first: The set that is launched on and checked.
        sets: How many sets launches rotate through, told from the arguments; asked when the first launch is timed.
        restores: Whether launches change what they read: then the arguments are put back before every launch, outside
            the timed region, and there is a single set.
    """

    first: ArgumentSet
    sets: Callable[[Arguments], int] = lambda _: 1
    restores: bool = False
    _further: list[Arguments] | None = None

    @property
    def arguments(self) -> Arguments:
        """Of the first set."""
        return self.first.arguments

    def launch(self, executable: Executable, outputs: Sequence[Any] | None = None) -> Launch:
        """A launch that is ready to be timed.

        Args:
            executable: What is launched.
            outputs: Tensors of the first set that it writes; None takes what the executable names.

        Raises:
            RuntimeError, MemoryError: There is no room for the further argument sets.
        """
        call = executable.bind(self.arguments)
        if outputs is None:
            outputs = tuple(Arguments(tuple(self.first.written_by(executable))).tensors())
        if self.restores:
            return Launch(call, self.first.restore, outputs=tuple(outputs))
        return Launch(call, None, tuple(executable.bind(arguments) for arguments in self.further()), tuple(outputs))

    def further(self) -> list[Arguments]:
        """The argument sets after the first; none where launches change what they read."""
        if self.restores:
            return []
        if self._further is None:
            self._further = [private_copy(self.arguments) for _ in range(self.sets(self.arguments) - 1)]
        return self._further


def run_once(launch: Launch) -> Launch:
    """The launch, after it has run once: what it loads or builds lazily is there."""
    if launch.reset is not None:
        launch.reset()
    launch.call()
    return launch


def sets_for(device: DeviceSpec, device_name: str, arguments: Arguments) -> int:
    """How many argument sets keep L2 cold on a device; 1 on a CPU, and where more would not fit."""
    if device.kind == "cpu":
        return 1
    touched = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in arguments.tensors()}
    free = free_bytes(device, device_name)
    return sets_needed(sum(touched.values()), device.l2_bytes, free) or 1


def synchronize(arguments: Arguments) -> None:
    """Wait for the devices that the arguments are on: what a launch did wrong is then known."""
    for device in {tensor.device for tensor in arguments.tensors() if tensor.device.type != "cpu"}:
        require("torch", "waiting for the GPU").cuda.synchronize(device)


@contextmanager
def on_device_of(arguments: Arguments) -> Iterator[None]:
    """Inside, the GPU that the arguments are on is the current one; no change for those on a CPU."""
    device = next((tensor.device for tensor in arguments.tensors() if tensor.device.type != "cpu"), None)
    with nullcontext() if device is None else require("torch", "choosing the GPU").cuda.device(device):
        yield


def _named(arguments: Arguments) -> Iterator[tuple[str, Any]]:
    """Every tensor with a name: its argument's, numbered inside containers."""
    given = [*((f"argument {i}", value) for i, value in enumerate(arguments.positional)), *arguments.keyword.items()]
    for name, value in given:
        for number, tensor in enumerate(Arguments((value,)).tensors()):
            yield (name if is_tensor(value) else f"{name}[{number}]"), tensor
