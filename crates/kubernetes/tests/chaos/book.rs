//! Is a card given away twice? Read from claims and slices as the API server has them; nothing of hotpot's own code decides here.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// Whose devices are looked at.
const DRIVER: &str = "gpu.hotpot.dev";
/// In the name of an instance's device, after that of its card.
const MIG: &str = "-mig-";

/// What nodes have offered at any time: a claim may outlive its slice.
#[derive(Debug, Default)]
pub(crate) struct Catalogue {
    /// Capacity of each device, in thousandths.
    devices: BTreeMap<String, BTreeMap<String, i128>>,
    /// What a device consumes of counters: set, counter, amount.
    consumed: BTreeMap<String, Vec<(String, String, i128)>>,
    /// Set and counter.
    counters: BTreeMap<(String, String), i128>,
}

/// What is held of one card by all claims.
#[derive(Debug, Default)]
struct Card {
    sums: BTreeMap<String, i128>,
    shared: BTreeSet<String>,
    divided: BTreeSet<String>,
}

impl Catalogue {
    /// Takes in a slice.
    pub(crate) fn enter(&mut self, slice: &Value) {
        let spec = &slice["spec"];
        if spec["driver"] != DRIVER {
            return;
        }
        let pool = text(&spec["pool"]["name"]);
        for set in list(&spec["sharedCounters"]) {
            for (name, counter) in fields(&set["counters"]) {
                let at = (format!("{pool}/{}", text(&set["name"])), name.clone());
                self.counters.insert(at, milli(text(&counter["value"])).unwrap_or_default());
            }
        }
        for device in list(&spec["devices"]) {
            let name = format!("{pool}/{}", text(&device["name"]));
            let capacity = fields(&device["capacity"]);
            let amounts = capacity.map(|(name, it)| (name.clone(), amount(&it["value"])));
            self.devices.insert(name.clone(), amounts.collect());
            let consumed = list(&device["consumesCounters"]).iter().flat_map(|set| {
                let of = format!("{pool}/{}", text(&set["counterSet"]));
                fields(&set["counters"])
                    .map(move |(name, it)| (of.clone(), name.clone(), amount(&it["value"])))
            });
            self.consumed.insert(name, consumed.collect());
        }
    }

    /// Whether a node has offered something.
    pub(crate) fn has(&self, node: &str) -> bool {
        self.devices.keys().any(|name| name.split_once('/').is_some_and(|(of, _)| of == node))
    }

    /// What a device has of something, in thousandths.
    pub(crate) fn capacity(&self, device: &str, of: &str) -> Option<i128> {
        self.devices.get(device)?.get(of).copied()
    }

    /// What is wrong with all that has been given: nothing, or a line each.
    pub(crate) fn wrong<'a>(&self, claims: impl Iterator<Item = &'a Value>) -> Vec<String> {
        let (mut cards, mut wrong) = (BTreeMap::<String, Card>::new(), Vec::new());
        let mut counters = BTreeMap::<(String, String), (i128, Vec<String>)>::new();
        for claim in claims {
            let name = text(&claim["metadata"]["name"]);
            for result in results(claim) {
                let device = device(result);
                if !self.devices.contains_key(&device) {
                    wrong.push(format!("claim {name} has {device}, which no slice has offered"));
                    continue;
                }
                let (card, is_instance) = match device.split_once(MIG) {
                    Some((card, _)) => (card.to_owned(), true),
                    None => (device.clone(), false),
                };
                let card = cards.entry(card).or_default();
                let who = if is_instance { &mut card.divided } else { &mut card.shared };
                who.insert(name.to_owned());
                for (of, taken) in fields(&result["consumedCapacity"]) {
                    *card.sums.entry(of.clone()).or_default() += amount(taken);
                }
                // A card consumes its counters once for all of its shares.
                for (set, counter, taken) in
                    self.consumed[&device].iter().filter(|_| is_instance).cloned()
                {
                    let sum = counters.entry((set, counter)).or_default();
                    sum.0 += taken;
                    sum.1.push(name.to_owned());
                }
            }
        }
        wrong.extend(cards.iter().flat_map(|(name, card)| self.card(name, card)));
        for (at, (sum, who)) in counters {
            let most = self.counters.get(&at).copied().unwrap_or_default();
            if sum > most {
                wrong.push(format!("{}: {} of {} of MIG given, to {who:?}", at.0, at.1, sum));
            }
        }
        wrong
    }

    fn card(&self, name: &str, card: &Card) -> Vec<String> {
        let over = card.sums.iter().filter_map(|(of, sum)| {
            let most = self.capacity(name, of).unwrap_or_default();
            let who = &card.shared;
            (*sum > most).then(|| format!("{name}: {of} overbooked: {sum} of {most}, by {who:?}"))
        });
        let both = !card.shared.is_empty() && !card.divided.is_empty();
        let both = both.then(|| {
            format!("{name} is shared by {:?} and divided for {:?}", card.shared, card.divided)
        });
        over.chain(both).collect()
    }
}

/// What a claim has been given of our devices.
pub(crate) fn results(claim: &Value) -> impl Iterator<Item = &Value> {
    let all = list(&claim["status"]["allocation"]["devices"]["results"]);
    all.iter().filter(|it| it["driver"] == DRIVER && it["adminAccess"] != true)
}

/// Pool and name of what a result gives.
pub(crate) fn device(result: &Value) -> String {
    format!("{}/{}", text(&result["pool"]), text(&result["device"]))
}

pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn fields(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

/// An amount that cannot be read counts as more than there is of anything.
pub(crate) fn amount(value: &Value) -> i128 {
    milli(text(value)).unwrap_or(i128::MAX / 1_000_000)
}

/// A quantity in thousandths, as far as slices and claims of ours have such: whole numbers with a suffix.
fn milli(text: &str) -> Option<i128> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    let factor = match suffix {
        "m" => 1,
        "" => 1000,
        "k" => 1_000_000,
        "Ki" => 1000 << 10,
        "Mi" => 1000 << 20,
        "Gi" => 1000 << 30,
        "Ti" => 1000_i128 << 40,
        _ => return None,
    };
    number.parse::<i128>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn catalogue() -> Catalogue {
        let mut catalogue = Catalogue::default();
        let slot = |at: u8| json!({"counterSet": "c", "counters": {format!("memory-slice-{at}"): {"value": "1"}}});
        catalogue.enter(&json!({"spec": {"driver": DRIVER, "pool": {"name": "n1"},
            "sharedCounters": [{"name": "c", "counters": {"memory-slice-0": {"value": "1"}, "memory-slice-1": {"value": "1"}}}],
            "devices": [
                {"name": "gpu-a", "capacity": {"memory": {"value": "80Gi"}, "compute": {"value": "1"}}},
                {"name": "gpu-a-mig-1g-10gb-0", "consumesCounters": [slot(0)]},
                {"name": "gpu-a-mig-1g-10gb-1", "consumesCounters": [slot(1)]},
            ]}}));
        catalogue
    }

    fn claim(name: &str, device: &str, taken: Value) -> Value {
        let result =
            json!({"driver": DRIVER, "pool": "n1", "device": device, "consumedCapacity": taken});
        json!({"metadata": {"name": name}, "status": {"allocation": {"devices": {"results": [result]}}}})
    }

    fn wrong(claims: &[Value]) -> String {
        catalogue().wrong(claims.iter()).join("\n")
    }

    #[test]
    fn a_card_that_is_full_is_fine_and_one_more_is_found() {
        let half = |name| claim(name, "gpu-a", json!({"memory": "40960Mi", "compute": "500m"}));
        assert_eq!(wrong(&[half("x"), half("y")]), "");
        let memory = claim("z", "gpu-a", json!({"memory": "1", "compute": "0"}));
        assert!(wrong(&[half("x"), half("y"), memory]).contains("memory overbooked"));
        let compute = claim("z", "gpu-a", json!({"compute": "1m"}));
        assert!(wrong(&[half("x"), half("y"), compute]).contains("compute overbooked"));
        let unread = claim("z", "gpu-a", json!({"memory": "a lot"}));
        assert!(wrong(&[unread]).contains("memory overbooked"));
    }

    #[test]
    fn instances_that_overlap_are_found_and_so_is_a_card_both_shared_and_divided() {
        let instance = |name, at: u8| claim(name, &format!("gpu-a-mig-1g-10gb-{at}"), Value::Null);
        assert_eq!(wrong(&[instance("x", 0), instance("y", 1)]), "");
        assert!(wrong(&[instance("x", 0), instance("y", 0)]).contains("memory-slice-0"));
        let share = claim("z", "gpu-a", json!({"memory": "1Gi"}));
        assert!(wrong(&[instance("x", 0), share]).contains("is shared by"));
        assert!(wrong(&[claim("x", "gpu-b", Value::Null)]).contains("no slice has offered"));
    }
}
