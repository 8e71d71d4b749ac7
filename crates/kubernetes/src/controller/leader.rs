//! Who may write: one controller at a time, by a Lease, for a term with a number.
//!
//! A term ends by our own monotonic clock before another controller can begin one, so clocks of other machines need not agree. What a
//! term writes carries its number, the epoch, and the API server refuses an epoch that is over (see the chart's policies): a
//! controller that was asleep when its term ended can do no harm when it wakes.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::Instant;

/// The lease's name.
pub const LEASE: &str = "hotpot-controller";
/// Looks and renewals in the time that a lease lasts.
const LOOKS: u32 = 5;

/// Who asks for the lease, and where it is.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The namespace of the lease; the client's own if there is none.
    pub namespace: Option<String>,
    /// Names this controller among all others, as its pod's name does.
    pub identity: String,
    /// How long a term lasts that is not renewed; at least 1 s.
    pub lasts: Duration,
}

/// The right to write, as long as it is renewed.
#[derive(Debug)]
pub(super) struct Term {
    /// Its number: each begins with a higher one.
    pub(super) epoch: i64,
    until: watch::Receiver<Instant>,
    renewing: tokio::task::JoinHandle<()>,
}

impl Term {
    /// Whether writes may still be begun.
    pub(super) fn holds(&self) -> bool {
        Instant::now() < *self.until.borrow()
    }

    /// Returns when the term is over.
    pub(super) async fn ended(&self) {
        while self.holds() && !self.renewing.is_finished() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

impl Drop for Term {
    fn drop(&mut self) {
        self.renewing.abort();
    }
}

/// The lease as it was seen last, and since when, by our own clock.
#[derive(Debug)]
struct Seen {
    version: Option<String>,
    since: Instant,
}

impl Candidate {
    fn api(&self, client: &Client) -> Api<Lease> {
        match &self.namespace {
            Some(namespace) => Api::namespaced(client.clone(), namespace),
            None => Api::default_namespaced(client.clone()),
        }
    }

    fn pause(&self) -> Duration {
        self.lasts / LOOKS
    }

    /// Waits until the lease is ours.
    ///
    /// * `told` — is told what stands in the way, once for each cause.
    pub(super) async fn win(&self, client: &Client, mut told: impl FnMut(&str)) -> Term {
        let api = self.api(client);
        let mut seen = Seen { version: None, since: Instant::now() };
        let mut last = String::new();
        loop {
            let asked_at = Instant::now();
            let attempt = tokio::time::timeout(self.lasts, self.attempt(&api, &mut seen)).await;
            let attempt = attempt.unwrap_or_else(|_| Err("the API server does not answer".into()));
            match attempt {
                Ok(Ok(lease)) => return self.begin(api, lease, asked_at),
                Ok(Err(why)) | Err(why) if why != last => {
                    told(&why);
                    last = why;
                }
                Ok(Err(_)) | Err(_) => {}
            }
            tokio::time::sleep(self.pause()).await;
        }
    }

    /// One attempt: the lease if it is ours now, or who has it.
    async fn attempt(
        &self,
        api: &Api<Lease>,
        seen: &mut Seen,
    ) -> Result<Result<Lease, String>, String> {
        let found = api.get_opt(LEASE).await.map_err(|error| format!("lease {LEASE}: {error}"))?;
        let written = match found {
            None => api.create(&PostParams::default(), &self.lease(None)).await,
            Some(lease) if may_take(&lease, &self.identity, seen, Instant::now()) => {
                api.replace(LEASE, &PostParams::default(), &self.lease(Some(&lease))).await
            }
            Some(lease) => return Ok(Err(format!("{} leads", holder(&lease)))),
        };
        match written {
            Ok(lease) => Ok(Ok(lease)),
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_already_exists() => {
                Ok(Err("another controller was faster".into()))
            }
            Err(error) => Err(format!("lease {LEASE}: {error}")),
        }
    }

    /// The lease as we want it: of the next term.
    fn lease(&self, before: Option<&Lease>) -> Lease {
        let now = MicroTime(Timestamp::now());
        let transitions = before.and_then(|lease| lease.spec.as_ref()?.lease_transitions);
        // A lease that was deleted and made anew goes on above what it had been: the minutes since 1970 are more than the terms so far.
        let minutes = i32::try_from(Timestamp::now().as_second() / 60).unwrap_or_default();
        let seconds = i32::try_from(self.lasts.as_secs()).unwrap_or(i32::MAX).max(1);
        // What others have written on it stays, as the labels of who installed it.
        let mut meta = before.map(|lease| lease.metadata.clone()).unwrap_or_default();
        (meta.name, meta.managed_fields) = (Some(LEASE.into()), None);
        let spec = LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: Some(seconds),
            acquire_time: Some(now.clone()),
            renew_time: Some(now),
            lease_transitions: Some(transitions.unwrap_or(minutes).saturating_add(1)),
            ..LeaseSpec::default()
        };
        Lease { metadata: meta, spec: Some(spec) }
    }

    /// Begins a term and renews it until somebody else has the lease.
    fn begin(&self, api: Api<Lease>, lease: Lease, asked_at: Instant) -> Term {
        let epoch = i64::from(
            lease.spec.as_ref().and_then(|spec| spec.lease_transitions).unwrap_or_default(),
        );
        // A fifth less than others wait: their clocks may run a little faster.
        let lasts = self.lasts - self.pause();
        let (sender, until) = watch::channel(asked_at + lasts);
        let pause = self.pause();
        let renewing = tokio::spawn(async move {
            let mut lease = lease;
            loop {
                tokio::time::sleep(pause).await;
                let asked_at = Instant::now();
                let Ok(answer) = tokio::time::timeout(pause, renew(&api, &lease)).await else {
                    continue;
                };
                match answer {
                    Ok(renewed) => {
                        lease = renewed;
                        let _nobody_listens = sender.send(asked_at + lasts);
                    }
                    // Somebody has written it: us, and the answer was lost, whoever keeps it installed, or the next leader.
                    Err(kube::Error::Api(status))
                        if status.is_conflict() || status.is_not_found() =>
                    {
                        match api.get(LEASE).await {
                            Ok(found) if is_of_term(&found, &lease) => lease = found,
                            Err(error) if !is_gone(&error) => {}
                            Ok(_) | Err(_) => {
                                let _nobody_listens = sender.send(asked_at);
                                return;
                            }
                        }
                    }
                    Err(_) => {}
                }
            }
        });
        Term { epoch, until, renewing }
    }

    /// Gives the lease up, so that the next controller need not wait for its end.
    pub(super) async fn give_up(&self, client: &Client, epoch: i64) {
        let api = self.api(client);
        let Ok(mut lease) = api.get(LEASE).await else { return };
        let Some(spec) = lease.spec.as_mut() else { return };
        let ours = spec.holder_identity.as_deref() == Some(self.identity.as_str())
            && spec.lease_transitions.map(i64::from) == Some(epoch);
        if ours {
            spec.holder_identity = Some(String::new());
            let _taken_meanwhile = api.replace(LEASE, &PostParams::default(), &lease).await;
        }
    }
}

/// Whether a lease is still of the term of another one.
fn is_of_term(found: &Lease, ours: &Lease) -> bool {
    let term = |lease: &Lease| {
        let spec = lease.spec.clone().unwrap_or_default();
        (lease.metadata.uid.clone(), spec.holder_identity, spec.lease_transitions)
    };
    term(found) == term(ours)
}

fn is_gone(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_not_found())
}

async fn renew(api: &Api<Lease>, lease: &Lease) -> Result<Lease, kube::Error> {
    let mut next = lease.clone();
    next.metadata.managed_fields = None;
    if let Some(spec) = next.spec.as_mut() {
        spec.renew_time = Some(MicroTime(Timestamp::now()));
    }
    api.replace(LEASE, &PostParams::default(), &next).await
}

fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}

/// Whether the lease can be taken: nobody has it, it is ours from before, or its holder has let it lapse as we have seen it.
fn may_take(lease: &Lease, us: &str, seen: &mut Seen, now: Instant) -> bool {
    if seen.version != lease.metadata.resource_version {
        *seen = Seen { version: lease.metadata.resource_version.clone(), since: now };
    }
    let seconds = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
    let lasts = Duration::from_secs(seconds.map_or(0, |seconds| u64::from(seconds.unsigned_abs())));
    let holder = holder(lease);
    holder.is_empty() || holder == us || now.duration_since(seen.since) >= lasts
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    use super::*;

    fn lease(holder: &str, version: &str) -> Lease {
        let spec = LeaseSpec {
            holder_identity: Some(holder.into()),
            lease_duration_seconds: Some(15),
            // What the holder's clock says does not count.
            renew_time: Some(MicroTime(Timestamp::UNIX_EPOCH)),
            lease_transitions: Some(7),
            ..LeaseSpec::default()
        };
        let metadata =
            ObjectMeta { resource_version: Some(version.into()), ..ObjectMeta::default() };
        Lease { metadata, spec: Some(spec) }
    }

    #[test]
    fn a_lease_is_taken_when_it_has_not_changed_for_as_long_as_it_lasts() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut seen = Seen { version: None, since: start };
        assert!(!may_take(&lease("a", "1"), "b", &mut seen, at(100)), "first seen now");
        assert!(!may_take(&lease("a", "1"), "b", &mut seen, at(114)));
        assert!(!may_take(&lease("a", "2"), "b", &mut seen, at(116)), "renewed");
        assert!(!may_take(&lease("a", "2"), "b", &mut seen, at(130)));
        assert!(may_take(&lease("a", "2"), "b", &mut seen, at(131)));
        assert!(may_take(&lease("", "3"), "b", &mut seen, at(131)), "given up");
        assert!(may_take(&lease("b", "4"), "b", &mut seen, at(131)), "ours from before");
    }

    #[test]
    fn each_term_has_the_next_number() {
        let us =
            Candidate { namespace: None, identity: "b".into(), lasts: Duration::from_secs(15) };
        let term = |before| us.lease(before).spec.and_then(|spec| spec.lease_transitions).unwrap();
        let before = lease("a", "1");
        assert_eq!(term(Some(&before)), 8);
        assert!(term(None) > 29_000_000, "above all that a lost lease can have had");
    }
}
