"""Workers of which a copy answers each question, so that no answer changes how another question is answered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from triton_ops.base import Host
from triton_ops.processes import IdleProcesses, Surroundings, WorkerLostError, WorkerProcess

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Asked:
    """A question with the surroundings of the process that asks, which the copy that answers takes over."""

    surroundings: Surroundings
    question: Any

    def answered_by(self, answer: Callable[[Any], object]) -> object:
        """What a function answers with these surroundings."""
        self.surroundings.take()
        return answer(self.question)


class Workers:
    """Processes of one program, which import packages and then wait a while for each next question.

    `changes` gives those of their environment; the `main` of the module `program` has copies answer what is `Asked`.
    """

    def __init__(self, program: str, imports: Sequence[str], changes: Callable[[], Mapping[str, str]]) -> None:
        self._program, self._imports, self._changes = program, imports, changes
        self._idle: IdleProcesses[WorkerProcess] = IdleProcesses(WorkerProcess.kill, most=Host.usable_cpus())

    def ask(
        self, question: Any, answer: type[Answer], whole_s: float, limits_s: Mapping[str, float],
        words: Sequence[str] | None = None,
    ) -> Answer:  # fmt: skip
        """The answer of this class to a question, with limits and errors as of `WorkerProcess.ask`.

        A copy takes over the surroundings of this process, with these words in place of `sys.argv`. Raises
        `DeviceError` too, if no process can be started.
        """
        here = Surroundings.here()
        asked = Asked(here if words is None else replace(here, words=tuple(words)), question)
        if (worker := self._idle.take(self._program)) is None:
            worker = WorkerProcess(self._imports, program=self._program, changes=self._changes())
        try:
            found: Answer = worker.ask(asked, whole_s, limits_s, "start", lambda one: isinstance(one, answer))
            return found
        except BaseException as error:
            if not isinstance(error, WorkerLostError):  # which kills it, unless only its copy has ended
                worker.kill()
            raise
        finally:
            if worker.alive:  # its copy has answered, so that it is as it was
                self._idle.put(worker, self._program, worker.pid)
