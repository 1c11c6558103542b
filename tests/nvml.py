"""A stand-in for NVML whose answers a test sets, because no machine can be made to overheat for a test."""

# ruff: noqa: N802 - the functions have NVML's names

from types import SimpleNamespace

POWER_CAP, HW_SLOWDOWN, SW_THERMAL, HW_THERMAL, POWER_BRAKE = 0x4, 0x8, 0x20, 0x40, 0x80
UUIDS = ("11111111-aaaa", "22222222-bbbb")  # as torch gives them, in the order of NVML's numbers
PLACES = ("00000000:3b:00.0", "0000000a:86:01.0")


class FakeNvml:
    """Two GPUs; `says` holds NVML's answers by name, and an answer that is an exception is raised."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU, NVML_ERROR_NOT_FOUND = 1, 2, 0, 6

    class NVMLError(Exception):
        pass

    class NotSupportedError(NVMLError):
        pass

    class NotFoundError(NVMLError):
        value = 6

    def __init__(self, **says):
        self.says = {"mask": 0, "sm": 1980, "memory": 3201, "mw": 350_500, "c": 45} | says
        self.calls = []
        self.users = 0

    def _say(self, name, default=None):
        answer = self.says.get(name, default)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def nvmlInit(self):
        self._say("init")
        self.users += 1

    def nvmlShutdown(self):
        self.users -= 1
        self._say("shutdown")

    def _by(self, names, name):
        self.calls.append(name)
        if name not in names:
            raise self.NVMLError("Not Found")
        return names.index(name)

    def nvmlDeviceGetHandleByUUID(self, uuid):
        return self._by(self.says.get("uuids", [f"GPU-{end}" for end in UUIDS]), uuid)

    def nvmlDeviceGetHandleByPciBusId(self, place):
        return self._by(PLACES, place)

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle):
        return self._say("mask")

    def nvmlDeviceGetClockInfo(self, handle, kind):
        return self._say({1: "sm", 2: "memory"}[kind])

    def nvmlDeviceGetPowerUsage(self, handle):
        return self._say("mw")

    def nvmlDeviceGetTemperature(self, handle, sensor):
        return self._say("c")

    def nvmlDeviceGetComputeRunningProcesses(self, handle):
        return [SimpleNamespace(pid=pid) for pid in self._say("running", ())]

    def nvmlDeviceSetGpuLockedClocks(self, handle, low, high):
        self._say("lock")
        self.calls.append(("lock", low, high))

    def nvmlDeviceResetGpuLockedClocks(self, handle):
        self.calls.append("unlock")

    def nvmlDeviceGetProcessUtilization(self, handle, since_us):
        self.calls.append(since_us)
        samples = [sample for sample in self._say("uses", ()) if sample.timeStamp > since_us]
        if not samples:
            raise self.NotFoundError("Not Found")
        return samples


def use(pid, percent, at_s):
    """A sample of what a process used of a GPU."""
    return SimpleNamespace(pid=pid, smUtil=percent, memUtil=0, encUtil=0, decUtil=0, timeStamp=int(at_s * 1e6))


def gpu(number=0, **changes):
    """Torch's properties of NVML's GPU `number`."""
    facts = {"uuid": UUIDS[number], "pci_domain_id": (0, 10)[number], "pci_bus_id": (0x3B, 0x86)[number]}
    return SimpleNamespace(**(facts | {"pci_device_id": number} | changes))
