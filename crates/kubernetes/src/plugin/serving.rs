//! The plugin's life: it opens the machine, serves the kubelet until it is told to end, and leaves nothing behind that
//! another one would trip over. Claims that are prepared stay so.

use std::future::Future;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use node::driver::LIBRARY_VARIABLE;
use node::limiter::Limiter;
use node::machine::MachineOptions;
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;

use super::cdi::{Edits, Folder};
use super::checkpoint::Checkpoint;
use super::claims::Claims;
use super::devices::Offers;
use super::driver_files::DriverRoot;
use super::edits::{self, Telling};
use super::look::{Looker, Seen};
use super::prepare::{PrepareError, Preparer};
use super::proto::health::dra_resource_health_server::DraResourceHealthServer;
use super::proto::{v1, v1beta1};
use super::publish::{Mark, Publisher};
use super::registration::{Places, Registrar, Socket};
use super::runtime::Watched;
use super::service::Service;
use super::{Options, PluginError, library};

/// In the state folder: what is of Kubernetes alone.
const FOLDER: &str = "kubernetes";
/// How long calls of the kubelet may take that have begun when the plugin is told to end.
const GRACE: Duration = Duration::from_secs(20);

/// A machine that is open, with those who look at it.
struct Opened {
    preparer: Arc<Mutex<Preparer>>,
    looker: Looker,
    seen: watch::Sender<Seen>,
    /// The driver's, where it is not to be looked for.
    library: Option<PathBuf>,
}

/// What those share who serve and those who publish.
#[derive(Clone, Default)]
struct Shared {
    whole_only: Arc<AtomicBool>,
    registered: Arc<Notify>,
}

/// Runs the plugin until SIGTERM or SIGINT.
///
/// # Errors
/// [`PluginError`].
pub async fn run(options: Options, client: kube::Client) -> Result<(), PluginError> {
    let stop = signals().map_err(PluginError::Signals)?;
    let (opened, shared) = (open(&options).await?, Shared::default());
    let effect = if options.evict { "NoExecute" } else { "NoSchedule" };
    let mark = Mark::set(&options.state.join(FOLDER), &options.instance)?;
    let publisher = Publisher::new(
        client.clone(),
        (&options.node, effect),
        mark.clone(),
        Arc::clone(&shared.whole_only),
        options.notice,
    );
    let metrics = match &options.metrics {
        Some(metrics) => {
            let checkpoint = Checkpoint::new(&options.state.join(FOLDER));
            let checkpoint = checkpoint.map_err(PrepareError::from)?;
            Some(metrics.begin(&options, checkpoint, opened.library.clone()).await?)
        }
        None => None,
    };
    let mut publishing =
        tokio::spawn(publisher.run(opened.seen.subscribe(), Arc::clone(&shared.registered)));
    // One of its tasks that dies takes the agent with it: whoever started it starts it anew.
    let served = tokio::select! {
        served = serve_opened(&options, opened, client, shared, stop) => served,
        Err(gone) = &mut publishing => Err(gone.into()),
    };
    publishing.abort();
    metrics.iter().for_each(JoinHandle::abort);
    mark.clear();
    served
}

/// Serves the kubelet without telling any API server of devices, until `stop`.
///
/// * `claims` — who knows claims.
///
/// # Errors
/// [`PluginError`].
pub async fn serve(
    options: &Options,
    claims: impl Claims,
    stop: impl Future<Output = ()>,
) -> Result<(), PluginError> {
    let opened = open(options).await?;
    serve_opened(options, opened, claims, Shared::default(), stop).await
}

fn signals() -> std::io::Result<impl Future<Output = ()>> {
    let (mut end, mut interrupt) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = end.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

async fn open(options: &Options) -> Result<Opened, PluginError> {
    let options = options.clone();
    tokio::task::spawn_blocking(move || open_now(&options)).await?
}

fn open_now(options: &Options) -> Result<Opened, PluginError> {
    let extra = options.extra.as_deref().map(edits::extra).transpose()?.unwrap_or_default();
    let state = options.state.join(FOLDER);
    node::state_dir::make(&state).map_err(|error| PrepareError::Checkpoint(error.into()))?;
    let limiter = library::install(&state, options.machine.limiter.as_deref());
    let limiter =
        limiter.map_err(|source| PluginError::Library { path: options.state.clone(), source })?;
    let telling = telling(options, extra);
    let is_named = std::env::var_os(LIBRARY_VARIABLE).is_some_and(|name| !name.is_empty());
    let found = || if is_named { None } else { telling.driver.nvml() };
    let machine = MachineOptions {
        library: options.machine.library.clone().or_else(found),
        state: Some(options.state.clone()),
        limiter: limiter.or(options.machine.limiter.clone()),
        ..options.machine.clone()
    };
    let library = machine.library.clone();
    let looker =
        Looker::new(library.clone(), Limiter::probe(machine.limiter.as_deref()), options.notice);
    let mut preparer = Preparer::open(machine, &state, Folder::new(&options.cdi), telling)?;
    let inventory = preparer.machine().look().map_err(PrepareError::from)?;
    let offers = Offers::of(&inventory, &Offers::default()).map_err(PrepareError::from)?;
    let (seen, _) = watch::channel(Seen { offers: Arc::new(offers), at: SystemTime::now() });
    Ok(Opened { preparer: Arc::new(Mutex::new(preparer)), looker, seen, library })
}

fn telling(options: &Options, extra: Edits) -> Telling {
    Telling { driver: DriverRoot::new(&options.driver_root, &options.host_root), extra }
}

async fn serve_opened<C: Claims>(
    options: &Options,
    opened: Opened,
    claims: C,
    shared: Shared,
    stop: impl Future<Output = ()>,
) -> Result<(), PluginError> {
    let Opened { preparer, looker, seen, library: _ } = opened;
    let service = Service {
        preparer,
        claims: Arc::new(claims),
        node: options.node.as_str().into(),
        seen: seen.subscribe(),
        whole_only: shared.whole_only,
        runtime: Watched::new(options.runtime.as_deref(), options.notice).await,
    };
    let places = Places::new(&options.kubelet, &options.instance);
    places.sweep();
    let (ending, ended) = watch::channel(false);
    let (socket, listener) = Socket::listen(places.plugin())?;
    let mut plugin = plugin(service, listener, ended);
    let registrar = Registrar {
        endpoint: socket.path().to_owned(),
        registered: shared.registered,
        notice: options.notice,
    };
    // Last: from here on the kubelet calls.
    let (door, listener) = Socket::listen(places.registration())?;
    let mut registration = tokio::spawn(registrar.serve(listener));
    let mut looking = tokio::spawn(looker.run(seen, options.look_every));
    let served = tokio::select! {
        () = stop => Ok(()),
        done = &mut plugin => done?.map_err(PluginError::from),
        done = &mut registration => done?.map_err(PluginError::Registration),
        done = &mut looking => done?.map_err(PluginError::from),
    };
    // The kubelet turns to another plugin before this one is deaf.
    drop(door);
    registration.abort();
    looking.abort();
    let _nobody_listens = ending.send(true);
    if served.is_ok() {
        let rest = async { plugin.await?.map_err(PluginError::from) };
        // A call that takes longer is made again by the kubelet, at the next plugin.
        return tokio::time::timeout(GRACE, rest).await.unwrap_or(Ok(()));
    }
    served
}

type Serving = JoinHandle<Result<(), tonic::transport::Error>>;

fn plugin<C: Claims>(
    service: Service<C>,
    listener: UnixListener,
    ended: watch::Receiver<bool>,
) -> Serving {
    let server = Server::builder()
        .add_service(v1::dra_plugin_server::DraPluginServer::new(service.clone()))
        .add_service(v1beta1::dra_plugin_server::DraPluginServer::new(service.clone()))
        .add_service(DraResourceHealthServer::new(service));
    let incoming = UnixListenerStream::new(listener);
    tokio::spawn(server.serve_with_incoming_shutdown(incoming, end(ended)))
}

async fn end(mut ended: watch::Receiver<bool>) {
    // Who told it is gone: so is the plugin.
    let _told = ended.wait_for(|ended| *ended).await;
}
