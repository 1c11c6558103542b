"""The facts of a device: its spec, limits, rooflines, its vendor's software, and turns to measure on it."""

from triton_ops._faces import lazy_face

TYPE_CHECKING = False
if TYPE_CHECKING:
    from triton_ops.device.datasheets import DeviceSpec as DeviceSpec
    from triton_ops.device.datasheets import Residents as Residents
    from triton_ops.device.datasheets import Target as Target
    from triton_ops.device.datasheets import named_devices as named_devices
    from triton_ops.device.datasheets import named_target as named_target
    from triton_ops.device.datasheets import spec_called as spec_called
    from triton_ops.device.datasheets import spec_named as spec_named
    from triton_ops.device.datasheets import target_of as target_of
    from triton_ops.device.machine import Calibration as Calibration
    from triton_ops.device.machine import Machine as Machine
    from triton_ops.device.machine import load_calibration as load_calibration
    from triton_ops.device.machine import machine_of as machine_of
    from triton_ops.device.probing import CpuLoad as CpuLoad
    from triton_ops.device.probing import chosen_gpus as chosen_gpus
    from triton_ops.device.probing import current_device as current_device
    from triton_ops.device.probing import current_gpu as current_gpu
    from triton_ops.device.probing import device_named as device_named
    from triton_ops.device.probing import device_spec as device_spec
    from triton_ops.device.probing import free_bytes_of as free_bytes_of
    from triton_ops.device.probing import gpu_missing as gpu_missing
    from triton_ops.device.probing import gpus_here as gpus_here
    from triton_ops.device.probing import probe as probe
    from triton_ops.device.probing import stay_on as stay_on
    from triton_ops.device.rooflines import Ceiling as Ceiling
    from triton_ops.device.rooflines import Placed as Placed
    from triton_ops.device.rooflines import Roofline as Roofline
    from triton_ops.device.rooflines import roofline as roofline
    from triton_ops.device.turns import Others as Others
    from triton_ops.device.turns import Turns as Turns
    from triton_ops.device.turns import turn_key as turn_key
    from triton_ops.device.vendors import VENDORS as VENDORS
    from triton_ops.device.vendors import Reading as Reading
    from triton_ops.device.vendors import Sensors as Sensors
    from triton_ops.device.vendors import gpus_without_torch as gpus_without_torch
    from triton_ops.device.vendors import graph_nodes as graph_nodes
    from triton_ops.device.vendors import make_ready as make_ready
    from triton_ops.device.vendors import sensors_of as sensors_of
else:
    __getattr__, __dir__, __all__ = lazy_face(__spec__)
