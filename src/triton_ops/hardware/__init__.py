"""What the device can do."""

from triton_ops.hardware.calibration import Calibration as Calibration
from triton_ops.hardware.calibration import load_calibration as load_calibration
from triton_ops.hardware.calibration import save_calibration as save_calibration
from triton_ops.hardware.cpus import cpu_threads as cpu_threads
from triton_ops.hardware.cpus import usable_cpus as usable_cpus
from triton_ops.hardware.machine import Costs as Costs
from triton_ops.hardware.machine import Machine as Machine
from triton_ops.hardware.machine import machine_of as machine_of
from triton_ops.hardware.probe import gpu_missing as gpu_missing
from triton_ops.hardware.probe import probe as probe
from triton_ops.hardware.spec import DeviceSpec as DeviceSpec
from triton_ops.hardware.table import A100_BANDWIDTH_GBPS as A100_BANDWIDTH_GBPS
from triton_ops.hardware.table import A100_TFLOPS as A100_TFLOPS
from triton_ops.hardware.table import Peaks as Peaks
from triton_ops.hardware.table import peaks_of as peaks_of
from triton_ops.hardware.table import spec_named as spec_named
from triton_ops.hardware.target import TARGETS as TARGETS
from triton_ops.hardware.target import Target as Target
from triton_ops.hardware.target import named_target as named_target
from triton_ops.hardware.target import target_of as target_of
from triton_ops.hardware.wake import wake as wake
