"""The facts of a device: its spec, limits, rooflines, its vendor's software, and turns to measure on it."""

from triton_ops._faces import lazy_face

with lazy_face(__name__):
    from triton_ops.device.allowance import Allowance as Allowance
    from triton_ops.device.calibration import Calibration as Calibration
    from triton_ops.device.limits import Residents as Residents
    from triton_ops.device.machine import Ceiling as Ceiling
    from triton_ops.device.machine import Machine as Machine
    from triton_ops.device.machine import Placed as Placed
    from triton_ops.device.machine import Roofline as Roofline
    from triton_ops.device.probing import CpuLoad as CpuLoad
    from triton_ops.device.probing import Others as Others
    from triton_ops.device.probing import TorchDevice as TorchDevice
    from triton_ops.device.probing import Turns as Turns
    from triton_ops.device.probing import device_spec as device_spec
    from triton_ops.device.probing import gpu_missing as gpu_missing
    from triton_ops.device.probing import probe as probe
    from triton_ops.device.specs import DeviceSpec as DeviceSpec
    from triton_ops.device.specs import Target as Target
    from triton_ops.device.vendors import VENDORS as VENDORS
    from triton_ops.device.vendors import Reading as Reading
    from triton_ops.device.vendors import Sensors as Sensors
    from triton_ops.device.vendors import gpus_without_torch as gpus_without_torch
