"""Honest candidates of `conv2d`."""

import torch
from torch.nn import functional


def in_float64(x, weight):
    """In float64, rounded once."""
    return functional.conv2d(x.double(), weight.double(), padding=1).to(x.dtype)


def channels_last(x, weight):
    """Channels last; the result has other strides than the reference's."""
    return functional.conv2d(x.to(memory_format=torch.channels_last), weight, padding=1)


def padded_first(x, weight):
    """Zeros are laid around it first."""
    return functional.conv2d(functional.pad(x, (1, 1, 1, 1)), weight)


def unfolded(x, weight):
    """A product with unfolded windows."""
    windows = functional.unfold(x.float(), weight.shape[-2:], padding=1)
    return (weight.flatten(1).float() @ windows).view(len(x), -1, *x.shape[2:]).to(x.dtype)


def by_einsum(x, weight):
    """By einsum over windows that are views."""
    windows = functional.pad(x.float(), (1, 1, 1, 1)).unfold(2, 3, 1).unfold(3, 3, 1)
    return torch.einsum("nchwij,ocij->nohw", windows, weight.float()).to(x.dtype)


def nine_products(x, weight):
    """One product of channels for each of nine places, added in float32."""
    height, width = x.shape[2:]
    around = functional.pad(x.float(), (1, 1, 1, 1))
    total = torch.zeros(len(x), len(weight), height, width, device=x.device)
    for i in range(3):
        for j in range(3):
            part = around[:, :, i : i + height, j : j + width]
            total += torch.einsum("nchw,oc->nohw", part, weight[:, :, i, j].float())
    return total.to(x.dtype)


def image_by_image(x, weight):
    """One image at a time."""
    return torch.cat([functional.conv2d(image[None], weight, padding=1) for image in x])


def in_groups(x, weight):
    """Half of the results at a time."""
    return torch.cat([functional.conv2d(x, part, padding=1) for part in weight.chunk(2)], 1)


def transposed_back(x, weight):
    """The transposed convolution with a turned weight."""
    return functional.conv_transpose2d(x, weight.flip(2, 3).transpose(0, 1), padding=1)
