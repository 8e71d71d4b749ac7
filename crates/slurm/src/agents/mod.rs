//! What was measured on nodes, from their agents: asked all at once, each for a short time only. An agent that does
//! not answer is no fault of the node: its figures are not known.

mod cards;
mod figures;
mod http;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::queue_view::NodeView;
pub use cards::{CardFigures, catalogue_mib};
pub use figures::{Figures, NAMES, TenantFigures};

/// How long one agent has.
const PATIENCE: Duration = Duration::from_secs(1);
/// Agents that are asked at once.
const AT_ONCE: usize = 16;
/// Who has not answered is left alone for so long: 800 nodes behind a firewall would cost 50 s each time.
const LEFT_ALONE: Duration = Duration::from_secs(20);

/// What an agent has told, or why it has not.
pub type Told = Result<Figures, String>;

/// The agents of a cluster.
#[derive(Debug)]
pub struct Agents {
    template: String,
    token: Option<String>,
    /// Who has not answered lately, when, and why.
    silent: BTreeMap<String, (Instant, String)>,
}

/// Whether a template names each node's agent.
///
/// # Errors
/// What is wrong with it.
pub fn check(template: &str) -> Result<(), String> {
    if !template.starts_with("http://") {
        return Err("give http://…; agents speak no TLS".into());
    }
    if !template.contains("{node}") && !template.contains("{address}") {
        return Err("say {node} or {address} where the node's name or address stands, as in \
                    http://{node}:940/metrics"
            .into());
    }
    Ok(())
}

/// Reads the token that agents want from a file.
///
/// # Errors
/// It cannot be read, or holds no token.
pub fn token(path: &Path) -> Result<String, String> {
    let of = |why: String| format!("token file {}: {why}", path.display());
    let text = fs::read_to_string(path).map_err(|error| of(error.to_string()))?;
    let token = text.trim_end();
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(of("holds no token: one line of printable characters without blanks".into()));
    }
    Ok(token.to_owned())
}

impl Agents {
    /// * `template` — such as `http://{node}:940/metrics`; `{address}` is where slurmctld reaches the node.
    /// * `token` — what to show them.
    ///
    /// # Errors
    /// See [`check`].
    pub fn new(template: &str, token: Option<String>) -> Result<Self, String> {
        check(template)?;
        Ok(Self { template: template.to_owned(), token, silent: BTreeMap::new() })
    }

    /// Asks the agents of some nodes.
    pub fn ask<'a>(
        &mut self,
        nodes: impl IntoIterator<Item = &'a NodeView>,
    ) -> BTreeMap<String, Told> {
        self.silent.retain(|_, (since, _)| since.elapsed() < LEFT_ALONE);
        let mut told: BTreeMap<String, Told> = BTreeMap::new();
        let mut asked: Vec<&NodeView> = Vec::new();
        for node in nodes {
            match self.silent.get(&node.name) {
                Some((_, why)) => drop(told.insert(node.name.clone(), Err(why.clone()))),
                None => asked.push(node),
            }
        }
        for (name, answer) in self.all(&asked) {
            if let Err(why) = &answer {
                self.silent.insert(name.clone(), (Instant::now(), why.clone()));
            }
            told.insert(name, answer);
        }
        told
    }

    fn all(&self, nodes: &[&NodeView]) -> Vec<(String, Told)> {
        let (next, told) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let work = || {
            while let Some(node) = nodes.get(next.fetch_add(1, Ordering::Relaxed)) {
                let answer = (node.name.clone(), self.one(node));
                told.lock().unwrap_or_else(|broken| broken.into_inner()).push(answer);
            }
        };
        thread::scope(|scope| {
            for _ in 0..nodes.len().min(AT_ONCE) {
                scope.spawn(work);
            }
        });
        told.into_inner().unwrap_or_else(|broken| broken.into_inner())
    }

    fn one(&self, node: &NodeView) -> Told {
        let text = http::get(&self.url(node), self.token.as_deref(), PATIENCE)?;
        Figures::parse(&text)
    }

    fn url(&self, node: &NodeView) -> String {
        let address = match node.address.contains(':') {
            true => format!("[{}]", node.address),
            false => node.address.clone(),
        };
        self.template.replace("{node}", &node.name).replace("{address}", &address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue_view::{QueueView, Told as Text};

    fn nodes(text: &str) -> Vec<NodeView> {
        QueueView::of(&Text { nodes: text, ..Text::default() }, 0, 256).nodes
    }

    #[test]
    fn templates_name_each_node() {
        let agents = Agents::new("http://{node}:9400/{address}", None).unwrap();
        let nodes =
            nodes("NodeName=n1 NodeAddr=10.0.0.7\nNodeName=n2\nNodeName=n3 NodeAddr=fe80::1");
        let urls: Vec<_> = nodes.iter().map(|node| agents.url(node)).collect();
        let expected = ["http://n1:9400/10.0.0.7", "http://n2:9400/n2", "http://n3:9400/[fe80::1]"];
        assert_eq!(urls, expected);
        assert!(check("https://{node}/metrics").unwrap_err().contains("TLS"));
        assert!(check("http://login:9400/metrics").unwrap_err().contains("{node}"));
    }

    #[test]
    fn who_has_not_answered_is_left_alone_for_a_while() {
        let mut agents = Agents::new("http://{address}:1/metrics", None).unwrap();
        let nodes = nodes("NodeName=n1 NodeAddr=127.0.0.1");
        assert!(agents.ask(&nodes)["n1"].as_ref().is_err_and(|why| why.contains("refused")));
        // Not asked anew: it would answer something else.
        agents.silent.get_mut("n1").unwrap().1 = "before".into();
        assert_eq!(agents.ask(&nodes)["n1"].as_ref().unwrap_err(), "before");
        agents.silent.clear();
        assert_ne!(agents.ask(&nodes)["n1"].as_ref().unwrap_err(), "before");
    }
}
