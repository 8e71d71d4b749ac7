//! Before a job's first task: its shares are made real, or it is sent back because others hold its devices.

use model::Share;
use node::companion;
use node::gpu_lock::Taken;
use node::grant::{Grant, Holder, User};
use node::inventory::Inventory;
use node::machine::MachineError;
use node::model_names::EngineGpus;

use super::files::{DeviceFile, Granted};
use super::requeue::send_back_later;
use super::shares::share;
use super::slots::{Slot, slots};
use super::{Node, NodeError, PLUGIN, holder, job_of, locked};

use crate::ask::Ask;
use crate::commands::SlurmError;
use crate::gres::{self, Booked, DeviceLine};
use crate::job::Job;
use crate::record::Record;
use crate::site;

/// What became of a job's start on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It holds no GPU here, or is over already, or its tasks have been told before.
    Nothing,
    /// Its devices are ready.
    Ready(Vec<String>),
    /// It must not run here, and has been sent back.
    SentBack(String),
    /// It must not run at all.
    Refused(String),
}

/// Slurm 22.05 starts jobs so after changes of a node's GPUs. They would see all GPUs of the node.
const NONE_BOOKED: &str = "Slurm has started it without the GPUs that it asked for";

const OF_SEVERAL: &str = "Slurm has given it parts of several cards, and does not say how much of each; the cluster's \
                          slurm.conf must not have MULTIPLE_SHARING_GRES_PJ";

/// A share that a job is to get.
struct Wanted {
    index: u32,
    slot: Slot,
    share: Share,
}

/// What a job has been granted, and where its devices are.
struct Seated {
    granted: Vec<Granted>,
    files: Vec<DeviceFile>,
}

/// Why a job gets no seat.
enum NoSeat {
    /// For what others hold, or what the job asks: the node is well.
    Job(String),
    /// For what is wrong with the node.
    Node(NodeError),
}

impl<E: Into<NodeError>> From<E> for NoSeat {
    fn from(error: E) -> Self {
        Self::Node(error.into())
    }
}

impl Node {
    /// Makes a job's shares real and tells its tasks of them. Run again for the same start of the job, as by
    /// several of its steps, it does nothing; what an earlier start has left is taken back first.
    ///
    /// A job whose devices are held by others is requeued (cancelled, if it cannot be), and none of its
    /// tasks runs: old Slurm gives a card to a whole-GPU job and to shards at once.
    ///
    /// # Errors
    /// The node cannot do it; nothing is held then.
    pub fn prolog(&mut self, id: u32) -> Result<Verdict, NodeError> {
        let _one_at_a_time = self.lock_job(id)?;
        let job = match Job::ask(self.slurm, id) {
            Ok(Some(job)) => job,
            Ok(None) => return Ok(Verdict::Nothing),
            Err(error @ SlurmError::Answer { .. }) => return self.refuse(id, &error),
            Err(error) => return Err(error.into()),
        };
        if self.has_told(&job) {
            return Ok(Verdict::Nothing);
        }
        self.take_back(id)?;
        if job.booked_on(&self.name).is_empty() && !job.wants_gpus {
            self.tell(&job, &[], &[])?;
            return Ok(Verdict::Nothing);
        }
        match self.seat_all(&job) {
            Ok(Seated { granted, files }) => {
                self.tell(&job, &granted, &files)?;
                self.map_job(&granted, id)?;
                Ok(Verdict::Ready(granted.into_iter().map(|(_, grant)| grant.device).collect()))
            }
            Err(NoSeat::Job(why)) => {
                self.forbid(&job, &why)?;
                send_back_later(id, &format!("{}: {why}", self.name))?;
                Ok(Verdict::SentBack(why))
            }
            Err(NoSeat::Node(error)) => Err(error),
        }
    }

    /// A job that Slurm shows as none can be, as by line breaks in its texts, gets nothing, and none of its tasks
    /// runs.
    fn refuse(&mut self, id: u32, error: &SlurmError) -> Result<Verdict, NodeError> {
        self.take_back(id)?;
        self.never(
            id,
            "what Slurm shows of it cannot be read; are there line breaks in its name or comment?",
        )?;
        Ok(Verdict::Refused(error.to_string()))
    }

    /// All of its shares or none, and the files of their devices.
    fn seat_all(&mut self, job: &Job) -> Result<Seated, NoSeat> {
        let inventory = self.machine.look()?;
        let wanted = self.wanted(job, &inventory)?;
        let mut granted = Vec::new();
        for wanted in &wanted {
            match self.seat(job, &inventory, wanted) {
                Ok(grant) => granted.push((wanted.index, grant)),
                Err(error) => {
                    self.take_back(job.id)?;
                    return Err(error);
                }
            }
            if let Err(error) = self.write_grants(job.id, &granted) {
                self.take_back(job.id)?;
                return Err(error.into());
            }
        }
        let file = |wanted: Wanted| Some((wanted.index, wanted.slot.file?));
        let files = wanted.into_iter().filter_map(file).collect();
        Ok(Seated { granted, files })
    }

    fn wanted(&self, job: &Job, inventory: &Inventory) -> Result<Vec<Wanted>, NoSeat> {
        // What a user has brought about is no fault of the node.
        let ask = job.asked().map_err(NoSeat::Job)?;
        let lines = self.lines()?;
        let engine = inventory.to_engine();
        let engine = engine.map_err(|error| MachineError::Refused {
            gpu: self.name.clone(),
            why: error.to_string(),
        })?;
        let slots = slots(&lines, inventory, &self.site.devices_of(&self.name));
        let mut wanted = Vec::new();
        let all_booked = job.booked_on(&self.name);
        if all_booked.is_empty() {
            return Err(NoSeat::Job(NONE_BOOKED.into()));
        }
        for booked in all_booked {
            for (index, amount) in &booked.of_device {
                if *amount == 0 {
                    return Err(NoSeat::Job(OF_SEVERAL.into()));
                }
                of_one_type(booked, *index, &lines).map_err(NoSeat::Job)?;
                let no_device = |why: String| NodeError::NoDevice { index: *index, why };
                let missing = || Err("gres.conf has no such line".to_owned());
                let slot = slots.get(*index as usize).cloned().unwrap_or_else(missing);
                let slot = slot.map_err(no_device)?;
                let model = model_of(&slot, inventory, &engine).map_err(no_device)?;
                let share = share(&slot, (booked, *amount), &ask, (&self.site, model));
                wanted.push(Wanted { index: *index, slot, share: share.map_err(NoSeat::Job)? });
            }
        }
        // Where there are instances, Slurm's numbers are not CUDA's.
        let has_instances = lines.iter().any(|line| line.is_instance);
        if has_instances || wanted.iter().any(|wanted| wanted.share != Share::Exclusive) {
            companion::folder_with(PLUGIN).map_err(NodeError::NoPlugin)?;
        }
        several_daemons(&wanted, &ask).map_err(NoSeat::Job)?;
        Ok(wanted)
    }

    /// This node's devices in gres.conf, as Slurm counts them.
    fn lines(&self) -> Result<Vec<DeviceLine>, NodeError> {
        let conf = std::fs::read_to_string(site::conf_folder().join("gres.conf"));
        let lines = gres::devices_of(&conf.unwrap_or_default(), &self.name);
        if lines.iter().all(|line| line.kind == lines[0].kind) {
            return Ok(lines);
        }
        Ok(gres::counted(lines, &self.gres()?))
    }

    /// `Gres=` of this node as slurmctld has it.
    fn gres(&self) -> Result<String, NodeError> {
        let text = self.slurm.call("scontrol", &["show", "node", "-o", &self.name])?;
        let record = Record::all(&text).into_iter().next().unwrap_or_default();
        Ok(record.get("Gres").unwrap_or_default().to_owned())
    }

    /// One share; those who hold it and are gone, as jobs are whose Epilog never ran, are cleared away.
    fn seat(&mut self, job: &Job, inventory: &Inventory, wanted: &Wanted) -> Result<Grant, NoSeat> {
        match self.try_seat(job, inventory, wanted) {
            Err(NoSeat::Node(NodeError::Machine(MachineError::Taken { holders, .. })))
                if self.clear_dead(&holders)? => {}
            other => return other.map_err(held_by_others),
        }
        self.try_seat(job, inventory, wanted).map_err(held_by_others)
    }

    fn try_seat(
        &mut self,
        job: &Job,
        inventory: &Inventory,
        wanted: &Wanted,
    ) -> Result<Grant, NoSeat> {
        let (who, gpu) = (holder(job.id), wanted.slot.gpu.as_str());
        let _lock = match locked(gpu)? {
            Taken::Ours(lock) => lock,
            Taken::By(other) => return Err(NoSeat::Job(format!("{gpu} is used by {other}"))),
        };
        let user = Some(User { uid: job.uid, gid: job.gid });
        let holder = Holder { who: &who, priority: 0, user };
        Ok(self.machine.seat(inventory, gpu, wanted.share, holder)?)
    }

    /// Takes back what jobs hold that are not on this node any more; whether there was one.
    fn clear_dead(&mut self, holders: &[String]) -> Result<bool, NodeError> {
        let mut cleared = false;
        for id in holders.iter().filter_map(|holder| job_of(holder)) {
            let is_here = |job: &Job| !job.booked_on(&self.name).is_empty();
            if !Job::may_be_there(self.slurm, id, is_here)? {
                self.take_back(id)?;
                cleared = true;
            }
        }
        Ok(cleared)
    }
}

/// Slurm's count and gres.conf may be of two layouts: after a change that slurmctld has not seen, and in 22.05
/// after a start of slurmctld while jobs run.
fn of_one_type(booked: &Booked, index: u32, lines: &[DeviceLine]) -> Result<(), String> {
    let of_line = lines.get(index as usize).and_then(|line| line.kind.as_deref());
    match (booked.kind.as_deref().filter(|_| booked.name == "gpu"), of_line) {
        (Some(given), Some(there)) if given != there => Err(format!(
            "Slurm has given GPU {index} as a {given}, and in gres.conf that is a {there}"
        )),
        _ => Ok(()),
    }
}

/// What others hold is no fault of the node.
fn held_by_others(why: NoSeat) -> NoSeat {
    match &why {
        NoSeat::Node(NodeError::Machine(error @ MachineError::Taken { .. })) => {
            NoSeat::Job(error.to_string())
        }
        NoSeat::Job(_) | NoSeat::Node(_) => why,
    }
}

fn model_of<'a>(
    slot: &Slot,
    inventory: &Inventory,
    engine: &'a EngineGpus,
) -> Result<&'a model::GpuModel, String> {
    let at = engine.devices.iter().position(|at| inventory.devices[*at].uuid == slot.gpu);
    let found = at.and_then(|at| engine.gpus.get(at)).map(model::Gpu::model);
    let left_out = || engine.left_out.iter().find(|(uuid, _)| *uuid == slot.gpu);
    found.ok_or_else(|| left_out().map_or("it is lost".to_owned(), |(_, why)| why.clone()))
}

/// A process talks to one MPS daemon, and each GPU has its own.
fn several_daemons(wanted: &[Wanted], ask: &Ask) -> Result<(), String> {
    let is_mps = |wanted: &&Wanted| matches!(wanted.share, Share::Mps { .. });
    if wanted.iter().filter(is_mps).count() > 1 {
        let how = ask
            .sharing
            .map_or("mps of several cards".to_owned(), |it| format!("{it} on several cards"));
        return Err(format!(
            "{how} cannot be had in one job: a process has one MPS daemon; ask for one card"
        ));
    }
    Ok(())
}
