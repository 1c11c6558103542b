"""The loss of a language model's head, in chunks: tune it on any CPU.

`cross_entropy(hidden @ weight.T, labels)` for all tokens at once writes a matrix of tokens x vocabulary; in chunks of
tokens it stays in the cache. Too small a chunk starves the matrix product, too large a one spills to memory, and how
many threads pay off depends on both. The best choice differs from machine to machine by a factor.

    triton-ops tune examples/chunked_cross_entropy.py:cross_entropy --shape 1024x256x8192
"""

import torch

from triton_ops import ConfigSpace, TensorSpec, Work, operation

cores = torch.get_num_threads()


def arguments(tokens: int = 1024, hidden: int = 256, vocabulary: int = 8192, dtype: str = "float32") -> dict:
    """Hidden states, the head's weight, and one label per token (0 to 127)."""
    return {
        "states": TensorSpec((tokens, hidden), dtype),
        "weight": TensorSpec((vocabulary, hidden), dtype),
        "labels": TensorSpec((tokens,), "int64"),
    }


def reference(states: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The same in one piece."""
    return torch.nn.functional.cross_entropy((states @ weight.T).float(), labels)


def work(problem) -> Work:
    """The matrix product; what else there is is small beside it."""
    tokens, hidden = problem["states"].shape
    vocabulary = problem["weight"].shape[0]
    return Work(flops=2.0 * tokens * hidden * vocabulary)


space = ConfigSpace(
    {"chunk": [8, 32, 128, 256, 512, 1024], "threads": sorted({1, 2, max(1, cores // 2), cores})},
    default={"chunk": 1024, "threads": cores},
)


@operation(
    space=space,
    arguments=arguments,
    reference=reference,
    work=work,
    dtypes=("float32", "bfloat16"),
    device="cpu",
)
def cross_entropy(states, weight, labels, *, chunk, threads):
    """Mean cross entropy over all tokens, `chunk` tokens at a time on `threads` threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        total = torch.zeros((), dtype=torch.float32)
        for some, right in zip(states.split(chunk), labels.split(chunk), strict=True):
            logits = (some @ weight.T).float()
            total += torch.nn.functional.cross_entropy(logits, right, reduction="sum")
        return total / len(states)
    finally:
        torch.set_num_threads(before)
