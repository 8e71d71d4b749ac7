//! `hotpot kubernetes`: what runs in a Kubernetes cluster.

pub(crate) mod args;

use std::future::Future;
use std::path::Path;
use std::time::Duration;

use kubernetes::controller::question;
use kubernetes::{controller, metrics, plugin, webhook};
use model::{Policy, Preemption};

use crate::failure::{Answer, Failure};
use crate::{inputs, screen, simulated, words};
use args::{Agent, Controller, Kubernetes, KubernetesVerb, Metrics, OnNode, Webhook};

/// What a pod gets that is asked to leave, without a policy that says: as long as pods get that do not say either.
const GRACE_MS: u64 = 30_000;

pub(crate) fn run(options: &Kubernetes) -> Result<Answer, Failure> {
    match &options.verb {
        KubernetesVerb::Controller(options) => run_controller(options),
        KubernetesVerb::Agent(options) => run_agent(options),
        KubernetesVerb::Webhook(options) => run_webhook(options),
        KubernetesVerb::Metrics(options) => run_metrics(options),
        KubernetesVerb::OnNode(OnNode { program, words }) => {
            Err(Failure::Machine(node::on_node::exec(program, words).to_string()))
        }
    }
}

fn run_controller(options: &Controller) -> Result<Answer, Failure> {
    let policy = policy(options.policy.as_deref(), None)?;
    let candidate = controller::Candidate {
        namespace: options.namespace.clone(),
        identity: options.identity.clone().unwrap_or_else(identity),
        lasts: Duration::from_secs(u64::from(options.lease_seconds)),
    };
    block_on(async {
        let client = kubernetes::client().await.map_err(Failure::Machine)?;
        let stop = asked_to_end()?;
        let done = controller::run(client, &candidate, policy, stop, &mut Lines).await;
        done.map(|()| Answer::Yes).map_err(Failure::Machine)
    })
}

/// This process among all of the cluster.
fn identity() -> String {
    let host = nix::unistd::gethostname().unwrap_or_default();
    format!("{}-{}", host.to_string_lossy(), std::process::id())
}

/// The policy of a file or, without one, hotpot's own, by which the more important pod has others leave.
pub(crate) fn policy(file: Option<&Path>, placement: Option<&str>) -> Result<Policy, Failure> {
    let mut policy = inputs::policy(file, placement, None)?;
    if file.is_none() {
        policy.preemption = Some(Preemption { grace_ms: GRACE_MS });
    }
    Ok(policy)
}

/// What there is to say of a pod of the cluster.
pub(crate) fn about_pod(
    policy: &Policy,
    namespace: Option<&str>,
    pod: &str,
) -> Result<question::Answer, Failure> {
    block_on(async {
        let client = kubernetes::client().await.map_err(Failure::Usage)?;
        question::ask(&client, policy, namespace, pod).await.map_err(Failure::Usage)
    })
}

fn print_slices(args: &Agent) -> Result<Answer, Failure> {
    let _taken_away_at_the_end = simulated::machine(args.simulate_gpus.as_deref())?;
    let slices =
        plugin::preview(&args.node).map_err(|error| Failure::Machine(error.to_string()))?;
    let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": slices});
    screen::print(&words::to_json(&list))
}

fn run_agent(args: &Agent) -> Result<Answer, Failure> {
    if args.print {
        return print_slices(args);
    }
    let instance = args.instance.clone().unwrap_or_else(|| std::process::id().to_string());
    let metrics = args
        .metrics_listen
        .map(|listen| plugin::Metrics { listen, token_file: args.metrics_token_file.clone() });
    let options = plugin::Options {
        metrics,
        kubelet: args.kubelet.clone(),
        cdi: args.cdi.clone(),
        state: args.state.clone(),
        driver_root: args.driver_root.clone(),
        host_root: args.host_root.clone(),
        extra: args.extra.clone(),
        evict: args.evict,
        runtime: args.runtime.clone(),
        ..plugin::Options::new(&args.node, &instance, screen::note)
    };
    block_on(async {
        let client = kubernetes::client().await.map_err(Failure::Machine)?;
        let done = plugin::run(options, client).await;
        done.map(|()| Answer::Yes).map_err(|error| Failure::Machine(error.to_string()))
    })
}

fn run_webhook(args: &Webhook) -> Result<Answer, Failure> {
    let options = webhook::Options {
        namespace: args.namespace.clone(),
        service: args.service.clone(),
        configuration: args.configuration.clone(),
        listen: args.listen,
        also_named: args.also_named.clone(),
        policy: inputs::policy(args.policy.as_deref(), None, None)?,
        say: screen::note,
    };
    block_on(async {
        let client = kubernetes::client().await.map_err(Failure::Machine)?;
        let mut term = terminated()?;
        let end = async move {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = term.recv() => {}
            }
        };
        webhook::run(client, options, end).await.map(|()| Answer::Yes).map_err(Failure::Machine)
    })
}

fn run_metrics(args: &Metrics) -> Result<Answer, Failure> {
    let token = args.token_file.as_deref().map(agent::token).transpose();
    let (namespace, labels) = (args.namespace.clone(), args.agent_labels.clone());
    let agents = match args.agents.as_slice() {
        [] => metrics::Agents::Pods { namespace, labels, port: args.agent_port },
        urls => metrics::Agents::Urls(urls.to_vec()),
    };
    let options = metrics::Options {
        namespace: args.namespace.clone(),
        service: args.service.clone(),
        also_named: args.also_named.clone(),
        listen: args.listen,
        agents,
        token: token.map_err(|error| Failure::Usage(error.to_string()))?,
        every: Duration::from_secs(u64::from(args.every)),
        say: screen::note,
    };
    block_on(async {
        let client = kubernetes::client().await.map_err(Failure::Machine)?;
        let end = asked_to_end()?;
        metrics::run(client, options, end).await.map(|()| Answer::Yes).map_err(Failure::Machine)
    })
}

/// A line on standard error for each thing that happens.
struct Lines;

impl controller::Log for Lines {
    fn line(&mut self, text: &str) {
        screen::note(text);
    }
}

/// Ends when somebody asks for it.
fn asked_to_end() -> Result<impl Future<Output = ()>, Failure> {
    let mut term = terminated()?;
    Ok(async move {
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = term.recv() => {}
        }
    })
}

fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.map_err(|error| Failure::Machine(format!("no runtime: {error}")))?.block_on(work)
}

fn terminated() -> Result<tokio::signal::unix::Signal, Failure> {
    let kind = tokio::signal::unix::SignalKind::terminate();
    tokio::signal::unix::signal(kind).map_err(|error| Failure::Machine(format!("signals: {error}")))
}
