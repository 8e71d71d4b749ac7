//! `hotpot kubernetes`: what runs in a Kubernetes cluster.

pub(crate) mod args;

use std::future::Future;

use kubernetes::{controller, plugin};

use crate::failure::{Answer, Failure};
use crate::{inputs, screen};
use args::{Agent, Controller, Kubernetes, KubernetesVerb};

pub(crate) fn run(options: &Kubernetes) -> Result<Answer, Failure> {
    match &options.verb {
        KubernetesVerb::Controller(options) => run_controller(options),
        KubernetesVerb::Agent(options) => run_agent(options),
    }
}

fn run_controller(options: &Controller) -> Result<Answer, Failure> {
    let policy = inputs::policy(options.policy.as_deref(), None, None)?;
    until_end(async {
        let client = kubernetes::client().await.map_err(Failure::Machine)?;
        controller::run(client, policy, &mut Lines).await.map_err(Failure::Machine)
    })
}

fn run_agent(args: &Agent) -> Result<Answer, Failure> {
    let instance = args.instance.clone().unwrap_or_else(|| std::process::id().to_string());
    let options = plugin::Options {
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

/// A line on standard error for each thing that happens.
struct Lines;

impl controller::Log for Lines {
    fn line(&mut self, text: &str) {
        screen::note(text);
    }
}

/// Runs to the end, or until somebody asks for it.
fn until_end(work: impl Future<Output = Result<(), Failure>>) -> Result<Answer, Failure> {
    block_on(async {
        let mut term = terminated()?;
        tokio::select! {
            done = work => done.map(|()| Answer::Yes),
            _ = tokio::signal::ctrl_c() => Ok(Answer::Yes),
            _ = term.recv() => Ok(Answer::Yes),
        }
    })
}

fn block_on(work: impl Future<Output = Result<Answer, Failure>>) -> Result<Answer, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.map_err(|error| Failure::Machine(format!("no runtime: {error}")))?.block_on(work)
}

fn terminated() -> Result<tokio::signal::unix::Signal, Failure> {
    let kind = tokio::signal::unix::SignalKind::terminate();
    tokio::signal::unix::signal(kind).map_err(|error| Failure::Machine(format!("signals: {error}")))
}
