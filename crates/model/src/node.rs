//! Nodes and the fleet they form: CPU, memory, GPUs and who sits where.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::fingerprint::{Fingerprint, aside_print, mode_print, resident_print, share_print};
use crate::gpu::{Gpu, Tenant};
use crate::id::{GpuId, NodeId, WorkloadId};
use crate::plan::Seat;
use crate::refusal::Refusal;
use crate::sharing::{Share, SharingMode};
use crate::workload::{Demand, Workload};

/// One machine.
#[derive(Clone, Debug)]
pub struct Node {
    name: String,
    cpu_milli: u64,
    memory_mib: u64,
    cpu_free_milli: u64,
    memory_free_mib: u64,
    gpus: Vec<Gpu>,
    residents: Vec<Resident>,
    fingerprint: u64,
}

/// A workload's member on a node, apart from its GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resident {
    /// The workload.
    pub workload: WorkloadId,
    /// Thousandths of vCPUs that it holds.
    pub cpu_milli: u64,
    /// Main memory that it holds.
    pub memory_mib: u64,
    /// When it is expected to leave.
    pub until_ms: u64,
}

impl Node {
    /// An idle node. GPUs are counted in a byte: those past the 255th are left out.
    pub fn idle(name: String, cpu_milli: u64, memory_mib: u64, mut gpus: Vec<Gpu>) -> Self {
        gpus.truncate(usize::from(u8::MAX));
        let mut print = Fingerprint::default();
        print.add(cpu_milli).add(memory_mib).add(gpus.len() as u64);
        for gpu in &gpus {
            let model = gpu.model();
            print.add(u64::from(model.id.0)).add(model.memory_mib).add(model.context_mib);
            print.add(u64::from(gpu.is_set_aside()));
            gpu.offers().iter().for_each(|kind| {
                print.add(kind as u64);
            });
            model.name.bytes().for_each(|byte| {
                print.add(u64::from(byte));
            });
            for profile in model.mig.iter().flat_map(|geometry| &geometry.profiles) {
                let starts = profile.starts.iter().fold(0u64, |set, start| set | 1 << (start & 63));
                let slices = [profile.compute_slices, profile.memory_slices, profile.instances_max];
                print.add(starts).add(u64::from(slices[0])).add(u64::from(slices[1]));
                print.add(u64::from(slices[2])).add(profile.memory_mib);
            }
        }
        for byte in name.bytes() {
            print.add(u64::from(byte));
        }
        Self {
            name,
            cpu_milli,
            memory_mib,
            cpu_free_milli: cpu_milli,
            memory_free_mib: memory_mib,
            gpus,
            residents: Vec::new(),
            fingerprint: print.0,
        }
    }

    /// The same node with nobody on it.
    #[must_use]
    pub fn emptied(&self) -> Self {
        let gpus = self.gpus.iter().map(Gpu::emptied).collect();
        Self::idle(self.name.clone(), self.cpu_milli, self.memory_mib, gpus)
    }

    /// The node's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// All vCPUs, in thousandths.
    pub fn cpu_milli(&self) -> u64 {
        self.cpu_milli
    }

    /// All main memory.
    pub fn memory_mib(&self) -> u64 {
        self.memory_mib
    }

    /// vCPUs not booked, in thousandths.
    pub fn cpu_free_milli(&self) -> u64 {
        self.cpu_free_milli
    }

    /// Main memory not booked.
    pub fn memory_free_mib(&self) -> u64 {
        self.memory_free_mib
    }

    /// The GPUs, by index.
    pub fn gpus(&self) -> &[Gpu] {
        &self.gpus
    }

    /// Thousandths of GPU left, summed over the GPUs.
    pub fn gpu_free_milli(&self) -> u64 {
        self.gpus.iter().map(|gpu| u64::from(gpu.free_milli())).sum()
    }

    /// Two states of a fleet's node with the same fingerprint hold the same tenants until the same
    /// times. A memo may rely on it; nothing else should (64 bits, not cryptographic).
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// The members on the node, in order of admission.
    pub fn residents(&self) -> &[Resident] {
        &self.residents
    }

    /// Whether the node will do for a member and its CPU and memory suffice: the only definition of "fits" for a host.
    ///
    /// # Errors
    /// [`Refusal::NotAccepted`], or [`Refusal::Cpu`] or [`Refusal::NodeMemory`] with amounts.
    pub fn fits_host(&self, demand: &Demand) -> Result<(), Refusal> {
        if !demand.nodes.accepts(&self.name) {
            return Err(Refusal::NotAccepted);
        }
        if demand.cpu_milli > self.cpu_free_milli {
            return Err(Refusal::Cpu {
                asked_milli: demand.cpu_milli,
                offered_milli: self.cpu_free_milli,
            });
        }
        if demand.memory_mib > self.memory_free_mib {
            return Err(Refusal::NodeMemory {
                asked_mib: demand.memory_mib,
                offered_mib: self.memory_free_mib,
            });
        }
        Ok(())
    }

    /// Changes the mode of an idle GPU.
    ///
    /// # Errors
    /// As [`Gpu::set_mode`]; [`Refusal::NoSuchPlace`] if the node has no such GPU.
    pub fn set_mode(&mut self, gpu: u8, mode: SharingMode) -> Result<(), Refusal> {
        let found = self.gpus.get_mut(usize::from(gpu)).ok_or(no_such_gpu(gpu))?;
        let before = found.mode();
        found.set_mode(mode)?;
        let without = self.fingerprint.wrapping_sub(mode_print(gpu, before));
        self.fingerprint = without.wrapping_add(mode_print(gpu, mode));
        Ok(())
    }

    /// See [`Gpu::set_aside`].
    ///
    /// # Errors
    /// [`Refusal::NoSuchPlace`] if the node has no such GPU.
    pub fn set_aside(&mut self, gpu: u8, aside: bool) -> Result<(), Refusal> {
        let found = self.gpus.get_mut(usize::from(gpu)).ok_or(no_such_gpu(gpu))?;
        if found.is_set_aside() != aside {
            found.set_aside(aside);
            let print = aside_print(gpu);
            self.fingerprint = match aside {
                true => self.fingerprint.wrapping_add(print),
                false => self.fingerprint.wrapping_sub(print),
            };
        }
        Ok(())
    }

    /// Seats one member of `workload`, all or nothing.
    ///
    /// * `until_ms` — when it is expected to leave.
    ///
    /// # Errors
    /// The first thing that does not fit; the node is then unchanged.
    pub fn admit(
        &mut self,
        workload: &Arc<Workload>,
        seat: &Seat,
        until_ms: u64,
    ) -> Result<(), Refusal> {
        self.fits_host(&workload.demand)?;
        for (at, (index, share)) in seat.shares.iter().enumerate() {
            let tenant = Tenant { workload: Arc::clone(workload), share: *share };
            let admitted = match self.gpus.get_mut(usize::from(*index)) {
                Some(gpu) => gpu.admit(tenant),
                None => Err(no_such_gpu(*index)),
            };
            if let Err(refusal) = admitted {
                self.undo(&seat.shares[..at]);
                return Err(refusal);
            }
        }
        let resident = Resident {
            workload: workload.id,
            cpu_milli: workload.demand.cpu_milli,
            memory_mib: workload.demand.memory_mib,
            until_ms,
        };
        self.cpu_free_milli -= resident.cpu_milli;
        self.memory_free_mib -= resident.memory_mib;
        self.residents.push(resident);
        self.fingerprint = self.fingerprint.wrapping_add(resident_print(&resident));
        for (index, share) in &seat.shares {
            let print = share_print(workload.id, *index, *share);
            self.fingerprint = self.fingerprint.wrapping_add(print);
        }
        Ok(())
    }

    /// Expects every member of a workload to leave by that time, if not earlier.
    pub fn expect_gone(&mut self, workload: WorkloadId, by_ms: u64) {
        for resident in self.residents.iter_mut().filter(|r| r.workload == workload) {
            let without = self.fingerprint.wrapping_sub(resident_print(resident));
            resident.until_ms = resident.until_ms.min(by_ms);
            self.fingerprint = without.wrapping_add(resident_print(resident));
        }
    }

    /// Takes every member of a workload off the node.
    pub fn release(&mut self, workload: WorkloadId) {
        for resident in self.residents.iter().filter(|r| r.workload == workload) {
            self.cpu_free_milli += resident.cpu_milli;
            self.memory_free_mib += resident.memory_mib;
            self.fingerprint = self.fingerprint.wrapping_sub(resident_print(resident));
        }
        self.residents.retain(|resident| resident.workload != workload);
        for (index, gpu) in (0..=u8::MAX).zip(&mut self.gpus) {
            for tenant in gpu.tenants().iter().filter(|tenant| tenant.workload.id == workload) {
                let print = share_print(workload, index, tenant.share);
                self.fingerprint = self.fingerprint.wrapping_sub(print);
            }
            if gpu.tenants().iter().any(|tenant| tenant.workload.id == workload) {
                gpu.release(workload);
            }
        }
    }

    fn undo(&mut self, shares: &[(u8, Share)]) {
        for (index, _) in shares.iter().rev() {
            self.gpus[usize::from(*index)].turn_away_last();
        }
    }
}

/// The machines, in the order that breaks ties.
#[derive(Clone, Debug, Default)]
pub struct Fleet {
    nodes: Vec<Node>,
    fingerprints: Vec<u64>,
    identity: u64,
}

impl Fleet {
    /// A fleet of the given nodes; their order is the order of preference among equals.
    pub fn new(nodes: Vec<Node>) -> Self {
        let fingerprints: Vec<u64> = nodes.iter().map(Node::fingerprint).collect();
        let mut identity = Fingerprint::default();
        for node in &nodes {
            identity.add(node.emptied().fingerprint());
        }
        Self { nodes, fingerprints, identity: identity.0 }
    }

    /// The nodes; a [`NodeId`] is a position here.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Every node with its id.
    pub fn indexed(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        (0..=u32::MAX).map(NodeId).zip(&self.nodes)
    }

    /// The node at a position.
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id.index())
    }

    /// [`Node::fingerprint`] of every node, by position.
    pub fn fingerprints(&self) -> &[u64] {
        &self.fingerprints
    }

    /// The same for two fleets of the same nodes in the same order, whoever sits on them.
    pub fn identity(&self) -> u64 {
        self.identity
    }

    /// See [`Node::admit`].
    ///
    /// # Errors
    /// As there; [`Refusal::NoSuchPlace`] if there is no such node.
    pub fn admit(
        &mut self,
        workload: &Arc<Workload>,
        seat: &Seat,
        until_ms: u64,
    ) -> Result<(), Refusal> {
        self.change(seat.node, |node| node.admit(workload, seat, until_ms))
    }

    /// See [`Node::set_mode`].
    ///
    /// # Errors
    /// As there; [`Refusal::NoSuchPlace`] if there is no such node.
    pub fn set_mode(&mut self, gpu: GpuId, mode: SharingMode) -> Result<(), Refusal> {
        self.change(gpu.node, |node| node.set_mode(gpu.index, mode))
    }

    /// See [`Node::set_aside`].
    ///
    /// # Errors
    /// As there; [`Refusal::NoSuchPlace`] if there is no such node.
    pub fn set_aside(&mut self, gpu: GpuId, aside: bool) -> Result<(), Refusal> {
        self.change(gpu.node, |node| node.set_aside(gpu.index, aside))?;
        let nodes = self.nodes.iter().map(|node| node.emptied().fingerprint());
        let mut identity = Fingerprint::default();
        nodes.for_each(|print| {
            identity.add(print);
        });
        self.identity = identity.0;
        Ok(())
    }

    /// See [`Node::expect_gone`]; a node that is not there holds nothing.
    pub fn expect_gone(&mut self, node: NodeId, workload: WorkloadId, by_ms: u64) {
        let _ = self.change(node, |node| {
            node.expect_gone(workload, by_ms);
            Ok(())
        });
    }

    /// See [`Node::release`]; a node that is not there holds nothing.
    pub fn release(&mut self, node: NodeId, workload: WorkloadId) {
        let _ = self.change(node, |node| {
            node.release(workload);
            Ok(())
        });
    }

    /// Makes one node equal to that of another fleet with the same identity.
    pub fn copy_node(&mut self, id: NodeId, from: &Node) {
        let _ = self.change(id, |node| {
            node.clone_from(from);
            Ok(())
        });
    }

    /// GPUs in the fleet.
    pub fn gpu_count(&self) -> u64 {
        self.nodes.iter().map(|node| node.gpus.len() as u64).sum()
    }

    /// All vCPUs of the fleet, in thousandths.
    pub fn cpu_milli(&self) -> u64 {
        self.nodes.iter().map(Node::cpu_milli).fold(0, u64::saturating_add)
    }

    fn change(
        &mut self,
        id: NodeId,
        how: impl FnOnce(&mut Node) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let Some(node) = self.nodes.get_mut(id.index()) else {
            return Err(Refusal::NoSuchPlace { place: alloc::format!("node {}", id.0) });
        };
        let done = how(node);
        self.fingerprints[id.index()] = node.fingerprint;
        done
    }
}

fn no_such_gpu(index: u8) -> Refusal {
    Refusal::NoSuchPlace { place: alloc::format!("GPU {index}") }
}
