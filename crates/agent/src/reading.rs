//! Reads what `pods` writes, for whoever gathers it from many nodes. What has no line is not known.

use std::collections::BTreeMap;

/// Namespace and name of a pod.
pub type Pod = (String, String);

/// Labels of a sample, in its order.
type Labels<'a> = Vec<(&'a str, String)>;

/// The shares of pods, each known by its device and its claim.
pub type Reading = BTreeMap<Pod, BTreeMap<(String, String), ShareReading>>;

/// What an agent tells of one share.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ShareReading {
    /// Device memory held, in bytes.
    pub memory_used_bytes: Option<f64>,
    /// Its cap of compute, in parts of the card's time; without one it may have all of it.
    pub compute_cap_ratio: Option<f64>,
    /// In parts of the time of card or MIG device.
    pub busy_ratio: Option<f64>,
    /// GPU time that it had.
    pub gpu_seconds: Option<f64>,
    /// Time for which its launches were held back, summed over processes.
    pub throttled_seconds: Option<f64>,
}

/// Reads a scrape in Prometheus' text format. Shares that are of several pods, and lines that are none of `pods`', are passed over.
///
/// # Errors
/// It is none of an agent, or the agent's driver does not answer.
pub fn read(text: &str) -> Result<Reading, String> {
    let (mut reading, mut up) = (Reading::new(), None);
    for line in text.lines() {
        if let Some(value) = line.strip_prefix("hotpot_up ") {
            up = Some(value.trim() == "1");
        }
        // Names that nobody asks for are not read any further.
        let Some(rest) = line.strip_prefix("hotpot_pod_") else { continue };
        let Some((name, labels, value)) = sample(rest) else { continue };
        take(&mut reading, name, &labels, value);
    }
    match up {
        Some(true) => Ok(reading),
        Some(false) => Err("its GPU driver does not answer".into()),
        None => Err("what answers is no hotpot agent".into()),
    }
}

fn take(reading: &mut Reading, name: &str, labels: &Labels<'_>, value: f64) -> Option<()> {
    let label = |name: &str| labels.iter().find(|(known, _)| *known == name);
    let text = |name: &str| label(name).map(|(_, text)| text.clone());
    let pod = (text("namespace")?, text("pod")?);
    let share = (text("uuid")?, text("claim").unwrap_or_default());
    let share = reading.entry(pod).or_default().entry(share).or_default();
    let field = match name {
        "memory_used_bytes" => &mut share.memory_used_bytes,
        "compute_cap_ratio" => &mut share.compute_cap_ratio,
        "busy_ratio" => &mut share.busy_ratio,
        "gpu_seconds_total" => &mut share.gpu_seconds,
        "throttled_seconds_total" => &mut share.throttled_seconds,
        _ => return None,
    };
    *field = Some(value);
    Some(())
}

/// `name{label="value",…} value`; only amounts that are finite and not below 0.
fn sample(line: &str) -> Option<(&str, Labels<'_>, f64)> {
    let (name, mut rest) = line.split_once('{')?;
    let mut labels = Vec::new();
    while !rest.starts_with('}') {
        let (label, after) = rest.split_once("=\"")?;
        let (value, after) = quoted(after)?;
        labels.push((label, value));
        rest = after.strip_prefix(',').unwrap_or(after);
    }
    let value: f64 = rest.strip_prefix('}')?.split_whitespace().next()?.parse().ok()?;
    (value.is_finite() && value >= 0.0).then_some((name, labels, value))
}

/// A value up to its closing quote, and what follows (Prometheus text format: `\\`, `\"` and `\n`).
fn quoted(text: &str) -> Option<(String, &str)> {
    let (mut value, mut letters) = (String::new(), text.char_indices());
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((value, text.get(at + 1..)?)),
            '\\' => match letters.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_passed_over_and_nothing_panics() {
        for line in [
            "hotpot_pod_busy_ratio",
            "hotpot_pod_busy_ratio{",
            "hotpot_pod_busy_ratio{namespace=\"a",
            "hotpot_pod_busy_ratio{namespace=\"a\",pod=\"b\",uuid=\"c\"",
            "hotpot_pod_busy_ratio{namespace=\"a\",pod=\"b\",uuid=\"c\"} NaN",
            "hotpot_pod_busy_ratio{namespace=\"a\",pod=\"b\",uuid=\"c\"} -1",
            "hotpot_pod_busy_ratio{namespace=\"a\",uuid=\"c\",claim=\"d\"} 1",
            "hotpot_pod_busy_ratio{namespace=\"ä\\\",pod=\"b\",uuid=\"c\"} 1",
        ] {
            assert_eq!(read(&format!("hotpot_up 1\n{line}\n")), Ok(Reading::new()), "{line}");
        }
        assert!(read("hotpot_up 0\n").unwrap_err().contains("driver"));
        assert!(read("<html>").unwrap_err().contains("no hotpot agent"));
    }
}
