//! One Secret for all replicas, and the API server's trust in what is in it. Each write is on the version that was read: whoever is late
//! reads what the other has written.

use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::watch;

use super::Called;
use super::keys::{Keys, Served};

/// How often Secret and configuration are looked at.
const PERIOD: Duration = Duration::from_secs(10);
/// How soon again after something went wrong.
const AGAIN: Duration = Duration::from_secs(1);
/// Time for all API servers to learn whom to trust, before anything else is served.
const SPREAD: Duration = Duration::from_secs(2);
/// Others may be faster so many times.
const ATTEMPTS: u32 = 5;

/// Keeps certificates fresh and trusted.
pub(crate) struct Trust {
    pub(crate) client: Client,
    pub(crate) called: Called,
    /// Whose trust is kept up to date.
    pub(crate) by: By,
    /// Told what happens, line by line.
    pub(crate) say: fn(&str),
}

/// What of the API server's has to name our authorities.
#[derive(Clone, Debug)]
pub(crate) enum By {
    /// A MutatingWebhookConfiguration, by name.
    Webhooks(String),
    /// An APIService, by name.
    Aggregator(String),
}

impl Trust {
    /// Looks for ever; what goes wrong is said once.
    pub(crate) async fn keep(&self, current: &watch::Sender<Option<Served>>) {
        let (mut said, mut last) = (String::new(), None);
        loop {
            let done = self.look(current, &mut last).await;
            let pause = if done.is_ok() { PERIOD } else { AGAIN };
            let why = done.err().unwrap_or_default();
            if why != said && !why.is_empty() {
                (self.say)(&why);
            }
            said = why;
            tokio::time::sleep(pause).await;
        }
    }

    /// * `last` — the keys that were found last, which are trusted on even if somebody has deleted the Secret.
    async fn look(
        &self,
        current: &watch::Sender<Option<Served>>,
        last: &mut Option<Keys>,
    ) -> Result<(), String> {
        let keys = self.agreed(last.as_ref()).await?;
        *last = Some(keys.clone());
        let is_first = current.borrow().is_none();
        let are_served = current.borrow().as_ref().is_some_and(|served| keys.are_served(served));
        let trusted = self.trusted(&keys).await;
        if are_served {
            return trusted;
        }
        if !is_first {
            trusted.clone()?;
            tokio::time::sleep(SPREAD).await;
        }
        current.send_replace(Some(keys.served()?));
        (self.say)(if is_first { "serving" } else { "serving with a new certificate" });
        trusted
    }

    /// The names by which the API server calls us.
    fn names(&self) -> Vec<String> {
        let Called { namespace, service, also_named } = &self.called;
        let of_service =
            ["", ".cluster.local"].map(|end| format!("{service}.{namespace}.svc{end}"));
        let short = [format!("{service}.{namespace}"), service.clone()];
        of_service.into_iter().chain(short).chain(also_named.iter().cloned()).collect()
    }

    /// The keys in the Secret, made if there are none that will do.
    async fn agreed(&self, last: Option<&Keys>) -> Result<Keys, String> {
        let Called { namespace, service, .. } = &self.called;
        let named = |why: &dyn std::fmt::Display| format!("secret {namespace}/{service}: {why}");
        let api: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        for _ in 0..ATTEMPTS {
            let found = api.get_opt(service).await.map_err(|error| named(&error))?;
            let known = found.as_ref().and_then(|secret| Keys::of(secret.data.as_ref()?));
            let now_ms = Timestamp::now().as_millisecond();
            if let Some(keys) = known.as_ref().filter(|keys| keys.will_do(&self.names(), now_ms)) {
                return Ok(keys.clone());
            }
            let keys = Keys::make(&self.names(), known.as_ref().or(last), now_ms)?;
            match write(&api, service, found, keys.data()).await {
                Ok(()) => return Ok(keys),
                Err(kube::Error::Api(status))
                    if status.is_conflict() || status.is_already_exists() => {}
                Err(error) => return Err(named(&error)),
            }
        }
        Err(named(&"others were faster each time"))
    }

    /// Has the API server trust the keys' authorities.
    async fn trusted(&self, keys: &Keys) -> Result<(), String> {
        let bundle = ByteString(keys.bundle().into_bytes());
        match &self.by {
            By::Webhooks(name) => by_webhooks(&self.client, name, &bundle).await,
            By::Aggregator(name) => by_aggregator(&self.client, name, &bundle).await,
        }
    }
}

async fn by_webhooks(client: &Client, name: &str, bundle: &ByteString) -> Result<(), String> {
    let named = |why: &dyn std::fmt::Display| format!("mutatingwebhookconfiguration {name}: {why}");
    let api: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let found = api.get_opt(name).await.map_err(|error| named(&error))?;
    let found = found.ok_or_else(|| {
        named(&"it is not there; install hotpot's chart, or name another by --configuration")
    })?;
    let webhooks = found.webhooks.iter().flatten();
    let stale = webhooks.filter(|one| one.client_config.ca_bundle.as_ref() != Some(bundle));
    let changes: Vec<_> =
        stale.map(|one| json!({"name": one.name, "clientConfig": {"caBundle": bundle}})).collect();
    if changes.is_empty() {
        return Ok(());
    }
    let patch = json!({
        "metadata": {"uid": found.metadata.uid, "resourceVersion": found.metadata.resource_version},
        "webhooks": changes,
    });
    let patched = api.patch(name, &PatchParams::default(), &Patch::Strategic(patch)).await;
    patched.map(drop).map_err(|error| named(&error))
}

async fn by_aggregator(client: &Client, name: &str, bundle: &ByteString) -> Result<(), String> {
    let named = |why: &dyn std::fmt::Display| format!("apiservice {name}: {why}");
    let api: Api<APIService> = Api::all(client.clone());
    let found = api.get_opt(name).await.map_err(|error| named(&error))?;
    let found = found.ok_or_else(|| named(&"it is not there; install hotpot's chart"))?;
    if found.spec.as_ref().and_then(|spec| spec.ca_bundle.as_ref()) == Some(bundle) {
        return Ok(());
    }
    let patch = json!({
        "metadata": {"uid": found.metadata.uid, "resourceVersion": found.metadata.resource_version},
        "spec": {"caBundle": bundle},
    });
    let patched = api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
    patched.map(drop).map_err(|error| named(&error))
}

/// Writes a Secret in the place of the one that was found.
async fn write(
    api: &Api<Secret>,
    name: &str,
    found: Option<Secret>,
    data: std::collections::BTreeMap<String, ByteString>,
) -> Result<(), kube::Error> {
    let params = PostParams::default();
    match found {
        Some(found) => {
            let secret = Secret { data: Some(data), ..found };
            api.replace(name, &params, &secret).await.map(drop)
        }
        None => {
            let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
            let secret = Secret { metadata, data: Some(data), ..Secret::default() };
            api.create(&params, &secret).await.map(drop)
        }
    }
}
