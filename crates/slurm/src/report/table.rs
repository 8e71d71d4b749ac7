//! A report for people, and its lines as CSV.

use std::fmt::Write as _;

use super::{By, Line, Quota, Report};

/// Right sizes that are shown.
const SIZES_SHOWN: usize = 20;

impl By {
    /// As users write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Account => "account",
            Self::Qos => "qos",
            Self::Name => "name",
            Self::Partition => "partition",
        }
    }
}

impl Report {
    /// The report for people.
    pub fn table(&self) -> String {
        let mut text = String::new();
        let widest = self.lines.iter().map(|line| line.of.chars().count()).max().unwrap_or(0);
        let wide = widest.clamp(9, 24);
        let _ = writeln!(
            text,
            "{:<wide$} {:>6} {:>10} {:>9} {:>9} {:>9}  busy",
            self.by.as_str(),
            "jobs",
            "GPU-hours",
            "whole",
            "shared",
            "MIG"
        );
        for line in self.lines.iter().chain([&self.total]) {
            let of: String = line.of.chars().map(plain).take(wide).collect();
            let Line { jobs, held_gpu_h, whole_gpu_h, shared_gpu_h, mig_gpu_h, .. } = line;
            let _ = writeln!(
                text,
                "{of:<wide$} {jobs:>6} {held_gpu_h:>10.2} {whole_gpu_h:>9.2} {shared_gpu_h:>9.2} \
                 {mig_gpu_h:>9.2}  {}",
                busy(line)
            );
        }
        if !self.sizes.is_empty() {
            text.push_str("\nright sizes of GPU memory:\n");
            for size in self.sizes.iter().take(SIZES_SHOWN) {
                let who: String =
                    format!("{} of {}", size.name, size.user).chars().map(plain).collect();
                let _ = writeln!(text, "  {who:<22} {}", size.text);
            }
            match self.sizes.len().saturating_sub(SIZES_SHOWN) {
                0 => {}
                more => {
                    let _ = writeln!(text, "  and {more} more; --output json has all");
                }
            }
        }
        if !self.quotas.is_empty() {
            text.push_str("\nquotas, and what is held now:\n");
            self.quotas.iter().for_each(|quota| quota_line(&mut text, quota));
        }
        text
    }

    /// The lines as CSV.
    pub fn csv(&self) -> String {
        let mut text = format!(
            "{},jobs,held_gpu_h,whole_gpu_h,shared_gpu_h,mig_gpu_h,measured_gpu_h,busy_gpu_h\n",
            self.by.as_str()
        );
        for line in &self.lines {
            let of = match line.of.contains([',', '"', '\n']) {
                true => format!("\"{}\"", line.of.replace('"', "\"\"")),
                false => line.of.clone(),
            };
            let busy = line.busy_gpu_h.map_or(String::new(), |hours| format!("{hours:.6}"));
            let Line { jobs, held_gpu_h, whole_gpu_h, shared_gpu_h, mig_gpu_h, .. } = line;
            let _ = writeln!(
                text,
                "{of},{jobs},{held_gpu_h:.6},{whole_gpu_h:.6},{shared_gpu_h:.6},{mig_gpu_h:.6},{:.6},{busy}",
                line.measured_gpu_h
            );
        }
        text
    }
}

/// Names come from users: nothing in them steers a terminal.
fn plain(letter: char) -> char {
    if letter.is_control() { ' ' } else { letter }
}

fn busy(line: &Line) -> String {
    match line.busy_gpu_h {
        None => "not measured".to_owned(),
        Some(busy) => {
            let part = if line.held_gpu_h > 0.0 {
                100.0 * line.measured_gpu_h / line.held_gpu_h
            } else {
                100.0
            };
            format!("{busy:.2} GPU-hours, measured for {part:.0} % of what was held")
        }
    }
}

fn quota_line(text: &mut String, quota: &Quota) {
    let Quota { of, limit, held_gpus, held_shared_gpus, held_billing, .. } = quota;
    let _ = write!(text, "  {of}: limit {limit}; held {held_gpus:.2} GPUs over all sharing modes");
    if quota.billing.is_some() {
        let _ = write!(text, ", billing {held_billing}");
    }
    if quota.gpus.is_some() && *held_shared_gpus > 0.0 {
        let _ = write!(
            text,
            " ({held_shared_gpus:.2} of them are shares, which gres/gpu does not see)"
        );
    }
    text.push('\n');
}
