//! PCIe, NVLink, and how near GPUs are to each other and to CPUs.

use std::ffi::{c_uint, c_ulong};

use fake_machine::{Architecture, Code, Gpu};
use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlEnableState_t, nvmlGpuP2PCapsIndex_t, nvmlGpuP2PStatus_t,
    nvmlGpuTopologyLevel_t, nvmlPciInfo_t, nvmlPcieUtilCounter_t,
};

use crate::calls::{also, nvml};
use crate::pointers::{chars, put, put_all};

/// PCIe generation of a model's cards.
fn generation(gpu: &Gpu) -> Result<c_uint, Code> {
    Ok(match gpu.facts()?.architecture {
        Architecture::Volta | Architecture::Turing => 3,
        Architecture::Ampere | Architecture::Ada => 4,
        Architecture::Hopper | Architecture::Blackwell => 5,
    })
}

fn check_link(gpu: &Gpu, link: c_uint) -> Result<(), Code> {
    match gpu.facts()?.nvlinks {
        0 => Err(Code::NotSupported),
        links if link >= links => Err(Code::InvalidArgument),
        _ => Ok(()),
    }
}

/// Whether two GPUs are joined by NVLink: all of a kind are, through a switch.
fn linked(one: &Gpu, other: &Gpu) -> Result<bool, Code> {
    Ok(one.facts()?.nvlinks > 0 && one.model == other.model && one.uuid != other.uuid)
}

nvml! {
    fn nvmlDeviceGetCurrPcieLinkGeneration(device: nvmlDevice_t, to: *mut c_uint) |call| {
        put(to, generation(call.gpu(device)?.1)?)
    }

    fn nvmlDeviceGetCurrPcieLinkWidth(device: nvmlDevice_t, to: *mut c_uint) |call| {
        call.gpu(device)?;
        put(to, 16)
    }

    fn nvmlDeviceGetPcieThroughput(
        device: nvmlDevice_t, counter: nvmlPcieUtilCounter_t, to: *mut c_uint
    ) |call| {
        let (out, into) = call.gpu(device)?.1.load.pcie_kib;
        match counter {
            0 => put(to, out),
            1 => put(to, into),
            _ => Err(Code::InvalidArgument),
        }
    }

    fn nvmlDeviceGetNvLinkState(
        device: nvmlDevice_t, link: c_uint, to: *mut nvmlEnableState_t
    ) |call| {
        let (_, gpu) = call.gpu(device)?;
        check_link(gpu, link)?;
        let peers = call.state.gpus.iter().any(|other| linked(gpu, other).unwrap_or(false));
        put(to, peers.into())
    }

    fn nvmlDeviceGetNvLinkRemotePciInfo_v2(
        device: nvmlDevice_t, link: c_uint, to: *mut nvmlPciInfo_t
    ) |call| {
        check_link(call.gpu(device)?.1, link)?;
        // Two links go to each switch; the switches stand behind the GPUs on the bus.
        let bus = 0xC0 + link / 2;
        let bus_id = format!("00000000:{bus:02X}:00.0");
        put(to, nvmlPciInfo_t {
            busIdLegacy: chars(bus_id.get(4..).unwrap_or("")),
            domain: 0,
            bus,
            device: 0,
            pciDeviceId: 0x22A3_10DE,
            pciSubSystemId: 0,
            busId: chars(&bus_id),
        })
    }

    fn nvmlDeviceGetTopologyCommonAncestor(
        one: nvmlDevice_t, other: nvmlDevice_t, to: *mut nvmlGpuTopologyLevel_t
    ) |call| {
        let (first, second) = (call.gpu(one)?, call.gpu(other)?);
        let level = if first.0 == second.0 {
            0
        } else if first.1.numa_node != second.1.numa_node {
            50
        } else if first.0 / 2 == second.0 / 2 {
            10
        } else {
            40
        };
        put(to, level)
    }

    fn nvmlDeviceGetP2PStatus(
        one: nvmlDevice_t,
        other: nvmlDevice_t,
        capability: nvmlGpuP2PCapsIndex_t,
        to: *mut nvmlGpuP2PStatus_t,
    ) |call| {
        let (first, second) = (call.gpu(one)?.1, call.gpu(other)?.1);
        let can = match capability {
            // Reads, writes and PCIe between all GPUs.
            0 | 1 | 4 => true,
            2 | 3 => linked(first, second)?,
            _ => return Err(Code::InvalidArgument),
        };
        // `NVML_P2P_STATUS_NOT_SUPPORTED`
        put(to, if can { 0 } else { 5 })
    }

    fn nvmlDeviceGetCpuAffinity(device: nvmlDevice_t, words: c_uint, to: *mut c_ulong) |call| {
        let (_, gpu) = call.device(device)?.physical();
        if words == 0 {
            return Err(Code::InvalidArgument);
        }
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let nodes = if call.state.gpus.iter().any(|gpu| gpu.numa_node > 0) { 2 } else { 1 };
        let near = |cpu: &usize| nodes == 1 || *cpu % 2 == gpu.numa_node as usize % 2;
        let mut set = vec![0; words as usize];
        for cpu in (0..cpus).filter(near) {
            let word: Option<&mut c_ulong> = set.get_mut(cpu / c_ulong::BITS as usize);
            if let Some(word) = word {
                *word |= 1 << (cpu % c_ulong::BITS as usize);
            }
        }
        put_all(to, set)
    }

    fn nvmlDeviceGetNumaNodeId(device: nvmlDevice_t, to: *mut c_uint) |call| {
        put(to, call.device(device)?.physical().1.numa_node)
    }
}

also! {
    fn nvmlDeviceGetMaxPcieLinkGeneration(device: nvmlDevice_t, to: *mut c_uint)
        is nvmlDeviceGetCurrPcieLinkGeneration;
    fn nvmlDeviceGetMaxPcieLinkWidth(device: nvmlDevice_t, to: *mut c_uint)
        is nvmlDeviceGetCurrPcieLinkWidth;
}
