"""What NVIDIA's own Python client reads of a machine with two GPUs and a process on the first.

Arguments: the pid of the process, which uses 1,500 MiB and 40 % of the SMs.
"""
import sys
import time

import pynvml as n

pid = int(sys.argv[1])
n.nvmlInit()
assert n.nvmlSystemGetDriverVersion() == "615.71.05"
assert n.nvmlSystemGetCudaDriverVersion() == 13050
assert n.nvmlDeviceGetCount() == 2
gpu, other = (n.nvmlDeviceGetHandleByIndex(index) for index in range(2))
assert n.nvmlDeviceGetName(gpu) == "NVIDIA H100 80GB HBM3"
assert n.nvmlDeviceGetName(other) == "Tesla T4"
uuid = n.nvmlDeviceGetUUID(gpu)
assert n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByUUID(uuid)) == 0
bus = n.nvmlDeviceGetPciInfo(other).busId
assert n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByPciBusId(bus)) == 1

first = n.nvmlDeviceGetMemoryInfo(gpu)
second = n.nvmlDeviceGetMemoryInfo(gpu, version=n.nvmlMemory_v2)
assert first.total == second.total == 81559 << 20
assert second.used == 1500 << 20, second.used
assert first.used == second.used + second.reserved

for read in (n.nvmlDeviceGetComputeRunningProcesses, n.nvmlDeviceGetComputeRunningProcesses_v2):
    processes = read(gpu)
    assert [(p.pid, p.usedGpuMemory) for p in processes] == [(pid, 1500 << 20)], processes
assert n.nvmlDeviceGetComputeRunningProcesses(other) == []
assert n.nvmlDeviceGetUtilizationRates(gpu).gpu == 40
assert [(s.pid, s.smUtil) for s in n.nvmlDeviceGetProcessUtilization(gpu, 0)] == [(pid, 40)]
assert b"sleep" in n.nvmlSystemGetProcessName(pid).encode()

# Counters with a clock.
before = n.nvmlDeviceGetTotalEnergyConsumption(gpu)
time.sleep(0.05)
after = n.nvmlDeviceGetTotalEnergyConsumption(gpu)
watts = n.nvmlDeviceGetPowerUsage(gpu) / 1000
assert 40 * watts <= after - before <= 1000 * watts, (before, after, watts)
fields = n.nvmlDeviceGetFieldValues(gpu, [n.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION, 9999])
assert fields[0].value.ullVal >= after
assert [field.nvmlReturn for field in fields] == [0, n.NVML_ERROR_NOT_SUPPORTED]

# Finer counters: there on Hopper, not on Turing.
samples = []
for _ in range(2):
    sample = n.nvmlGpmSampleAlloc()
    n.nvmlGpmSampleGet(gpu, sample)
    samples.append(sample)
    time.sleep(0.11)
asked = n.c_nvmlGpmMetricsGet_t()
asked.version = n.NVML_GPM_METRICS_GET_VERSION
asked.numMetrics, asked.sample1, asked.sample2 = 1, samples[0], samples[1]
asked.metrics[0].metricId = n.NVML_GPM_METRIC_SM_UTIL
n.nvmlGpmMetricsGet(asked)
assert asked.metrics[0].value == 40.0
assert n.nvmlGpmQueryDeviceSupport(gpu).isSupportedDevice == 1
assert n.nvmlGpmQueryDeviceSupport(other).isSupportedDevice == 0

# How near the two are.
assert n.nvmlDeviceGetTopologyCommonAncestor(gpu, other) == n.NVML_TOPOLOGY_SINGLE
assert n.nvmlDeviceGetP2PStatus(gpu, other, n.NVML_P2P_CAPS_INDEX_NVLINK) != 0
n.nvmlShutdown()
print("ok")
