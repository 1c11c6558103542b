"""The GPUs of this machine that somebody chooses by their indices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from triton_ops.exceptions import DeviceError, SettingsError
from triton_ops.hardware.probe import gpus_here

_FORMS = "give 'all', or the indices, such as 0,2"


def chosen_gpus(given: Any) -> tuple[str, ...]:
    """Torch's names of the GPUs that measure.

    Args:
        given: `all`, indices as a list or as text such as `0,2`, or None for no choice, which is empty.

    Raises:
        SettingsError: It is none of these, names no GPU, or names one twice.
        DeviceError: There is no GPU, or none of that index, or the GPUs are of different models.
    """
    if given is None:
        return ()
    wanted = None if given == "all" else _indices(given)
    found = gpus_here()
    indices = range(len(found)) if wanted is None else wanted
    for index in indices:
        if index >= len(found):
            raise DeviceError(
                f"there is no GPU {index}; this process sees {len(found)}", f"cuda:{index}",
                hint="use a smaller index, or check CUDA_VISIBLE_DEVICES",
            )  # fmt: skip
    models = {found[index].name: index for index in indices}
    if len(models) > 1:
        named = " and ".join(f"GPU {index} is a {name}" for name, index in models.items())
        raise DeviceError(
            f"one run is for GPUs of one model: {named}", hint="start a run for each model, with the same cache folder"
        )
    return tuple(f"cuda:{index}" for index in indices)


def _indices(given: Any) -> list[int]:
    parts: Sequence[Any] = ()
    if isinstance(given, str):
        parts = given.split(",") if given.strip() else []
    elif isinstance(given, Iterable) and not isinstance(given, (bytes, Mapping)):
        parts = list(given)
    else:
        raise SettingsError(f"gpus is {given!r}", hint=_FORMS)
    if not parts:
        raise SettingsError("gpus names no GPU", hint=_FORMS)
    indices = [_index(part, given) for part in parts]
    if twice := sorted({index for index in indices if indices.count(index) > 1}):
        raise SettingsError(f"gpus names GPU {twice[0]} twice", hint="name each once")
    return indices


def _index(part: Any, given: Any) -> int:
    word = str(part).strip()
    if isinstance(part, bool) or not (word.isascii() and word.isdigit()):
        raise SettingsError(f"gpus is {given!r}, and {word or 'an empty word'} is no index of a GPU", hint=_FORMS)
    return int(word)
