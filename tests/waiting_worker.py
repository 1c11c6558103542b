"""The program of a worker process that says that it waits for others, and answers later than a step may take."""

import time

from triton_ops.processes import Child


def main() -> None:
    """Answer each question by what it asks for: wait for others so long, then work so long."""
    child = Child()

    def answer(question):
        for step, seconds in question:
            child.send(Child.step(step))
            time.sleep(seconds)
        return "done"

    for question in child.messages():
        child.send(answer(question))
