"""What the driver says about the card: names, clocks, temperature, power, memory in use.

Reads only; nothing here changes a setting. pynvml (package nvidia-ml-py) is used where it is
installed, else nvidia-smi, else every answer is None, which is what a machine without a GPU gives.
Units: hertz, bytes, watts, degrees Celsius.
"""
import os
import re
import subprocess

# Marketing name as the driver gives it -> the name this project's device files use (model-memory).
NAMES = {
    "NVIDIA H200": "h200-sxm-141gb",
    "NVIDIA H100 80GB HBM3": "h100-sxm-80gb",
    "NVIDIA A100-SXM4-80GB": "a100-sxm-80gb",
    "NVIDIA A100-SXM4-40GB": "a100-sxm-40gb",
    "NVIDIA GeForce RTX 4090": "rtx-4090-24gb",
    "NVIDIA L4": "l4-24gb",
    "Tesla T4": "t4-16gb",
}
FIELDS = ("clocks.sm", "clocks.mem", "temperature.gpu", "power.draw", "pstate",
          "clocks_event_reasons.active", "memory.used")


def device_name(marketing_name, stand_in=False):
    """The DEVICE of a results file's name. A stand-in can never be taken for a card."""
    if stand_in:
        return "stand-in-sm90"
    if marketing_name in NAMES:
        return NAMES[marketing_name]
    return re.sub(r"[^a-z0-9]+", "-", (marketing_name or "unknown").lower()).strip("-")


class Nvml:
    """One open NVML connection to GPU 0; every method returns None where NVML cannot answer."""

    def __init__(self):
        self.lib = self.gpu = None
        try:
            import pynvml
            pynvml.nvmlInit()
            self.lib, self.gpu = pynvml, pynvml.nvmlDeviceGetHandleByIndex(0)
        except Exception:
            self.lib = None

    def _ask(self, function, *args):
        try:
            return getattr(self.lib, function)(self.gpu, *args)
        except Exception:
            return None

    def device_used_bytes(self):
        """Bytes in use on the whole card, all processes and the driver's own share."""
        info = self._ask("nvmlDeviceGetMemoryInfo") if self.lib else None
        return int(info.used) if info is not None else None

    def process_used_bytes(self, pid=None):
        """Bytes NVML books to one process (this one by default); None where it does not say."""
        for p in (self._ask("nvmlDeviceGetComputeRunningProcesses") if self.lib else None) or []:
            if p.pid == (pid or os.getpid()):
                return int(p.usedGpuMemory) if p.usedGpuMemory is not None else None
        return None

    def driver(self):
        try:
            v = self.lib.nvmlSystemGetDriverVersion()
            return v.decode() if isinstance(v, bytes) else v
        except Exception:
            return (smi("driver_version") or [None])[0]

    def conditions(self):
        """Clocks, temperature and power at this instant; None for each that is unknown."""
        if not self.lib:
            return smi_conditions()
        watts, sm, mem = (self._ask("nvmlDeviceGetPowerUsage"), self._ask("nvmlDeviceGetClockInfo", 1),
                          self._ask("nvmlDeviceGetClockInfo", 2))    # 1 SM, 2 memory (nvmlClockType_t)
        used = self.device_used_bytes()
        return {"sm_clock_hz": sm * 10**6 if sm is not None else None,
                "memory_clock_hz": mem * 10**6 if mem is not None else None,
                "temperature_c": self._ask("nvmlDeviceGetTemperature", 0),
                "power_w": watts / 1000 if watts is not None else None,
                "performance_state": self._ask("nvmlDeviceGetPerformanceState"),
                "clock_limit_reasons": self._ask("nvmlDeviceGetCurrentClocksThrottleReasons"),
                "device_used_bytes": used}

    def limits(self):
        """The card's own limits, as found: power limit (W) and largest clocks (Hz)."""
        if not self.lib:
            return {}
        watts = self._ask("nvmlDeviceGetEnforcedPowerLimit")
        sm, mem = self._ask("nvmlDeviceGetMaxClockInfo", 1), self._ask("nvmlDeviceGetMaxClockInfo", 2)
        return {"power_limit_w": watts / 1000 if watts else None,
                "sm_clock_hz_max": sm * 10**6 if sm else None,
                "memory_clock_hz_max": mem * 10**6 if mem else None,
                "persistence_mode": self._ask("nvmlDeviceGetPersistenceMode"),
                "ecc_enabled": (self._ask("nvmlDeviceGetEccMode") or [None])[0],
                "pcie_generation": self._ask("nvmlDeviceGetCurrPcieLinkGeneration"),
                "pcie_width": self._ask("nvmlDeviceGetCurrPcieLinkWidth")}


def smi(fields):
    """One line of nvidia-smi as a list of strings, or None."""
    try:
        r = subprocess.run(["nvidia-smi", "-i", "0", "--query-gpu=" + fields, "--format=csv,noheader,nounits"],
                           capture_output=True, text=True, timeout=10)
        return [x.strip() for x in r.stdout.strip().split(",")] if r.returncode == 0 else None
    except (OSError, subprocess.TimeoutExpired):
        return None


def smi_conditions():
    got = smi(",".join(FIELDS)) or [None] * len(FIELDS)

    def number(text, scale=1):
        try:
            return float(text) * scale
        except (TypeError, ValueError):
            return None
    return {"sm_clock_hz": number(got[0], 1e6), "memory_clock_hz": number(got[1], 1e6),
            "temperature_c": number(got[2]), "power_w": number(got[3]), "performance_state": got[4],
            "clock_limit_reasons": got[5], "device_used_bytes": number(got[6], 2**20)}


def host():
    """The machine around the card: cores this process may use, memory, processor name."""
    facts = {"cores": len(os.sched_getaffinity(0)), "memory_bytes": None, "processor": None}
    try:
        with open("/proc/meminfo") as f:
            facts["memory_bytes"] = int(f.readline().split()[1]) * 1024
        with open("/proc/cpuinfo") as f:
            facts["processor"] = next((l.split(":", 1)[1].strip() for l in f if l.startswith("model name")), None)
    except OSError:
        pass
    return facts
