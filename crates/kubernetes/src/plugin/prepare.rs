//! Makes a claim's shares real on this machine, and takes them back: the kubelet's two calls, without its wire. One at
//! a time, blocking.
//!
//! Shares are in the machine's journal before the checkpoint names them: what is only there was begun by a plugin that
//! was killed, and is taken back when one starts. What only the checkpoint names did not outlive a start of the
//! machine, and is made anew when the kubelet asks.

use std::collections::BTreeSet;
use std::path::PathBuf;

use model::CatalogueError;
use node::driver::DriverError;
use node::gpu_lock::{self, Taken};
use node::grant::{Grant, Holder};
use node::journal::Change;
use node::limiter::{BooksError, PRELOAD_VARIABLE};
use node::machine::{Machine, MachineError, MachineOptions};
use thiserror::Error;

use super::allocation::{AllocationError, Given};
use super::cdi::{self, CdiError, Folder};
use super::checkpoint::{Checkpoint, CheckpointError, Claims, Hold, Prepared};
use super::devices::Offers;
use super::edits::Telling;
use super::library;
use super::seats::{Seat, SeatError, seats};

/// How we are called where a GPU's lock is wanted by others.
const OURS: &str = "hotpot's plugin of the kubelet";
/// In front of a claim's UID, for the machine's journal.
const HOLDER: &str = "kubernetes/";
/// Letters of a UID.
const UID_MAX: usize = 64;

/// Why a claim could not be prepared, or taken back.
#[derive(Debug, Error)]
pub enum PrepareError {
    /// The driver, the journal, or what holds caps.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// The driver does not tell of the GPUs.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// What is prepared cannot be read or written.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The container runtime cannot be told.
    #[error(transparent)]
    Cdi(#[from] CdiError),
    /// The limiter's books.
    #[error(transparent)]
    Books(#[from] BooksError),
    /// What the claim was given.
    #[error(transparent)]
    Allocation(#[from] AllocationError),
    /// No share can be made of it.
    #[error(transparent)]
    Seat(#[from] SeatError),
    /// The catalogue.
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    /// A card is another one's.
    #[error(
        "{gpu} is used by {who}, which runs on this node beside Kubernetes; the pod waits until it ends"
    )]
    Used {
        /// UUID of the card.
        gpu: String,
        /// By whom.
        who: String,
    },
    /// What is asked for is no claim.
    #[error("`{0}` is no UID of a claim")]
    Uid(String),
}

/// What the kubelet is answered for one device of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The request that it is for.
    pub request: String,
    /// Its name.
    pub device: String,
    /// Which of its shares.
    pub share_id: Option<String>,
    /// What the container runtime is asked for.
    pub cdi_id: String,
}

/// The machine, and what is prepared on it.
#[derive(Debug)]
pub struct Preparer {
    checkpoint: Checkpoint,
    work: Work,
}

#[derive(Debug)]
struct Work {
    machine: Machine,
    cdi: Folder,
    telling: Telling,
}

impl Preparer {
    /// Opens the machine, and takes back what a plugin has left that was killed.
    ///
    /// * `state` — where the checkpoint lies.
    ///
    /// # Errors
    /// [`PrepareError`].
    pub fn open(
        machine: MachineOptions,
        state: &std::path::Path,
        cdi: Folder,
        telling: Telling,
    ) -> Result<Self, PrepareError> {
        let checkpoint = Checkpoint::new(state)?;
        let library = machine.limiter.clone();
        let work = Work { machine: Machine::open(machine)?, cdi, telling };
        let mut preparer = Self { checkpoint, work };
        preparer.reconcile(state, library)?;
        Ok(preparer)
    }

    /// The machine.
    pub fn machine(&mut self) -> &mut Machine {
        &mut self.work.machine
    }

    fn reconcile(
        &mut self,
        state: &std::path::Path,
        library: Option<PathBuf>,
    ) -> Result<(), PrepareError> {
        let locked = self.checkpoint.lock()?;
        let claims = locked.read()?;
        let holds = self.work.machine.holds()?;
        let held: BTreeSet<&str> =
            holds.iter().filter_map(|hold| hold.who.strip_prefix(HOLDER)).collect();
        for uid in held.into_iter().filter(|uid| !claims.contains_key(*uid)) {
            self.work.take_back(uid, None)?;
        }
        let told = self.work.cdi.claims().into_iter();
        for uid in told.filter(|uid| is_uuid(uid) && !claims.contains_key(uid)) {
            self.work.cdi.remove(&uid)?;
        }
        let preloaded = claims.values().flat_map(Prepared::grants).flat_map(|grant| &grant.env);
        let preloaded = preloaded.filter(|(name, _)| name == PRELOAD_VARIABLE);
        let used = preloaded.map(|(_, path)| PathBuf::from(path)).chain(library).collect();
        library::sweep(state, &used);
        Ok(())
    }

    /// Makes a claim real. For one that is so already nothing is done again.
    ///
    /// * `name` — for people; `given` — as its status says now; `whole_only` — as for [`seats`].
    ///
    /// # Errors
    /// [`PrepareError`]; nothing is held then.
    pub fn prepare(
        &mut self,
        (uid, name): (&str, &str),
        given: Vec<Given>,
        whole_only: bool,
    ) -> Result<Vec<Answer>, PrepareError> {
        check(uid)?;
        let locked = self.checkpoint.lock()?;
        let mut claims = locked.read()?;
        if let Some(known) = claims.get(uid)
            && known.given == given
            && self.work.is_held(uid, known)?
        {
            self.work.tell_again(uid, known)?;
            return Ok(answers(uid, &given));
        }
        let before = claims.remove(uid);
        self.work.take_back(uid, before.as_ref())?;
        let holds = self.work.seat_all(uid, &given, whole_only)?;
        let prepared = Prepared { name: name.to_owned(), given, holds };
        let answers = answers(uid, &prepared.given);
        let told = self.work.tell(uid, &prepared);
        claims.insert(uid.to_owned(), prepared);
        let noted = told.and_then(|()| Ok(locked.write(&claims)?));
        if let Err(error) = noted {
            // The error tells more than one of clearing up would; what is left is taken back at the next start.
            let _best_effort = self.work.take_back(uid, claims.get(uid));
            let _best_effort = self.work.cdi.remove(uid);
            return Err(error);
        }
        Ok(answers)
    }

    /// What a claim was answered, if it is prepared still: for when nobody can say what it was given.
    ///
    /// # Errors
    /// [`PrepareError`].
    pub fn known(&mut self, uid: &str) -> Result<Option<Vec<Answer>>, PrepareError> {
        check(uid)?;
        let claims: Claims = self.checkpoint.lock()?.read()?;
        let Some(known) = claims.get(uid) else { return Ok(None) };
        if !self.work.is_held(uid, known)? {
            return Ok(None);
        }
        self.work.tell_again(uid, known)?;
        Ok(Some(answers(uid, &known.given)))
    }

    /// Takes back what a claim holds. One that is not known holds nothing.
    ///
    /// # Errors
    /// [`PrepareError`]; done again, it goes on from there.
    pub fn unprepare(&mut self, uid: &str) -> Result<(), PrepareError> {
        check(uid)?;
        let locked = self.checkpoint.lock()?;
        let mut claims = locked.read()?;
        self.work.take_back(uid, claims.get(uid))?;
        self.work.cdi.remove(uid)?;
        if claims.remove(uid).is_some() {
            locked.write(&claims)?;
        }
        Ok(())
    }
}

impl Work {
    /// Whether all that a claim was granted is in the machine's journal: it forgets holds when the machine starts.
    fn is_held(&self, uid: &str, claim: &Prepared) -> Result<bool, PrepareError> {
        let holds = self.machine.holds()?;
        let who = holder(uid);
        let is_there = |grant: &Grant| {
            holds
                .iter()
                .any(|hold| (hold.id, &hold.gpu, &hold.who) == (grant.hold, &grant.gpu, &who))
        };
        Ok(claim.grants().all(is_there))
    }

    /// All of the shares, or none.
    fn seat_all(
        &mut self,
        uid: &str,
        given: &[Given],
        whole_only: bool,
    ) -> Result<Vec<Hold>, PrepareError> {
        let inventory = self.machine.look()?;
        let offers = Offers::of(&inventory, &Offers::default())?;
        let mut holds = Vec::new();
        for seat in seats(given, &offers, whole_only)? {
            match self.seat(uid, &inventory, &seat) {
                Ok(grant) => holds.push(Hold { of: seat.of, grant }),
                Err(error) => {
                    let so_far = Prepared { name: String::new(), given: Vec::new(), holds };
                    self.take_back(uid, Some(&so_far))?;
                    return Err(error);
                }
            }
        }
        Ok(holds)
    }

    fn seat(
        &mut self,
        uid: &str,
        inventory: &node::inventory::Inventory,
        seat: &Seat,
    ) -> Result<Option<Grant>, PrepareError> {
        let Some(share) = seat.share else { return Ok(None) };
        let _lock =
            match gpu_lock::take_for_a_moment(&seat.gpu, OURS).map_err(MachineError::from)? {
                Taken::Ours(lock) => lock,
                Taken::By(who) => return Err(PrepareError::Used { gpu: seat.gpu.clone(), who }),
            };
        let who = holder(uid);
        let holder = Holder { who: &who, priority: seat.priority, user: None };
        Ok(Some(self.machine.seat(inventory, &seat.gpu, share, holder)?))
    }

    /// Tells the container runtime, if it has not been told: its folder is empty after a start of the machine.
    fn tell_again(&mut self, uid: &str, claim: &Prepared) -> Result<(), PrepareError> {
        if self.cdi.has(uid) { Ok(()) } else { self.tell(uid, claim) }
    }

    fn tell(&mut self, uid: &str, claim: &Prepared) -> Result<(), PrepareError> {
        let inventory = self.machine.look()?;
        let offers = Offers::of(&inventory, &Offers::default())?;
        let (of_claim, of_devices) = self.telling.edits(claim, &inventory, &offers)?;
        Ok(self.cdi.write(uid, &cdi::text(uid, &of_claim, &of_devices))?)
    }

    /// Takes back what a claim holds by the checkpoint or by the machine's journal.
    fn take_back(&mut self, uid: &str, claim: Option<&Prepared>) -> Result<(), PrepareError> {
        let who = holder(uid);
        let holds = self.machine.holds()?;
        let held: Vec<_> = holds.iter().filter(|hold| hold.who == who).collect();
        if held.is_empty() {
            return Ok(());
        }
        let gpus: BTreeSet<String> = held.iter().map(|hold| hold.gpu.clone()).collect();
        let grants = claim.into_iter().flat_map(Prepared::grants);
        let mut first_error = None;
        // By number: one of before a start of the machine may be another's now.
        for grant in grants.filter(|grant| held.iter().any(|hold| hold.id == grant.hold)) {
            // The rest is taken back all the same.
            first_error = first_error.or(self.machine.revoke(grant).err());
        }
        self.machine.release_all(&who)?;
        self.put_back(gpus)?;
        first_error.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Puts cards that nobody holds back as they were before hotpot. One that was divided stays so: the next claim may
    /// want an instance of it, and to make one takes a second or more.
    fn put_back(&mut self, gpus: BTreeSet<String>) -> Result<(), PrepareError> {
        let noted = self.machine.journal().before().map_err(MachineError::from)?;
        let is_division = |was: &Change| ["layout", "mig-mode"].contains(&was.aspect());
        let divided: BTreeSet<&String> =
            noted.iter().filter(|(_, was)| is_division(was)).map(|(gpu, _)| gpu).collect();
        let (mut locks, mut free) = (Vec::new(), Vec::new());
        for gpu in gpus.into_iter().filter(|gpu| !divided.contains(gpu)) {
            if let Taken::Ours(lock) =
                gpu_lock::take_for_a_moment(&gpu, OURS).map_err(MachineError::from)?
            {
                locks.push(lock);
                free.push(gpu);
            }
        }
        // What cannot be put back now stays in the journal for the next time.
        let _left = self.machine.restore(&free)?;
        Ok(())
    }
}

fn answers(uid: &str, given: &[Given]) -> Vec<Answer> {
    let answer = |(at, given): (usize, &Given)| Answer {
        request: given.request.clone(),
        device: given.device.clone(),
        share_id: given.share_id.clone(),
        cdi_id: cdi::id(uid, at),
    };
    given.iter().enumerate().map(answer).collect()
}

fn holder(uid: &str) -> String {
    format!("{HOLDER}{uid}")
}

/// It becomes a part of files' names.
fn check(uid: &str) -> Result<(), PrepareError> {
    let is_fine = !uid.is_empty()
        && uid.len() <= UID_MAX
        && uid.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '-');
    if is_fine { Ok(()) } else { Err(PrepareError::Uid(uid.chars().take(UID_MAX).collect())) }
}

/// Whether a name is one that the API server gives: what else lies in the folder is somebody else's.
fn is_uuid(name: &str) -> bool {
    name.len() == 36 && name.chars().all(|letter| letter.is_ascii_hexdigit() || letter == '-')
}
