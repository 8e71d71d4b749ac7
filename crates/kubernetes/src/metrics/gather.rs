//! Asks all agents now and then, and keeps what they tell.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::jiff::Timestamp;
use kube::Client;

use super::agents::{self, Agents};
use super::figures::Book;

/// Agents that are asked at once.
const AT_ONCE: usize = 32;

/// Who asks.
pub(super) struct Gather {
    pub(super) client: Client,
    pub(super) agents: Agents,
    pub(super) token: Option<String>,
    pub(super) every: Duration,
    pub(super) say: fn(&str),
}

impl Gather {
    /// Asks for ever; what goes wrong is said once, for each agent.
    pub(super) async fn run(&self, book: &Mutex<Book>) {
        let mut said: BTreeMap<String, String> = BTreeMap::new();
        let mut turns = tokio::time::interval(self.every);
        turns.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            turns.tick().await;
            let troubles = self.round(book).await;
            for (who, why) in troubles.iter().filter(|(who, why)| said.get(*who) != Some(*why)) {
                (self.say)(&format!("agent {who}: {why}"));
            }
            said = troubles;
        }
    }

    /// Asks all once; who did not answer, and why.
    async fn round(&self, book: &Mutex<Book>) -> BTreeMap<String, String> {
        let urls = match self.agents.urls(&self.client).await {
            Ok(urls) => urls,
            Err(why) => return [("list".to_owned(), why)].into(),
        };
        let token = self.token.as_deref();
        let asked = urls.into_iter().map(|url| async move {
            let told = agents::ask(&url, token).await;
            (url, told)
        });
        let mut answers = futures::stream::iter(asked).buffer_unordered(AT_ONCE);
        let mut troubles = BTreeMap::new();
        while let Some((url, told)) = answers.next().await {
            let now_ms = now_ms();
            let mut book = book.lock().unwrap_or_else(PoisonError::into_inner);
            match told {
                Ok(reading) => book.take(reading, now_ms),
                Err(why) => {
                    troubles.insert(url, why);
                }
            }
        }
        book.lock().unwrap_or_else(PoisonError::into_inner).forget(now_ms());
        troubles
    }
}

/// Now, in ms since 1970.
pub(super) fn now_ms() -> i64 {
    Timestamp::now().as_millisecond()
}
