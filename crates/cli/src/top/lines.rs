//! The tenants of a GPU as lines of text below its bar: who, what was given, what is used.

use super::parts::label;
use super::pot::{Class, Part, Pot};
use super::rows::{fitted, percent};
use node::amounts;

/// Cells of a tenant's name at most.
const NAME_MAX: usize = 28;
/// Cells before a line, as before the bar.
const INDENT: usize = 5;
/// Cells between two columns.
const GAP: usize = 3;
/// Columns: name, memory in use, what was given, time.
const COLUMNS: usize = 4;

/// One line for each tenant, in the columns that fit; the last ones are given up first.
///
/// * `width` — cells of a line.
pub(super) fn of(pot: &Pot, width: usize) -> Vec<String> {
    let tenants = pot.parts.iter().filter(|part| part.class != Class::Empty);
    let rows: Vec<[String; COLUMNS]> = tenants.map(|part| cells(pot, part)).collect();
    let wide: [usize; COLUMNS] = std::array::from_fn(|column| {
        rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)
    });
    let room = |columns: usize| {
        let filled: Vec<usize> = wide[..columns].iter().copied().filter(|wide| *wide > 0).collect();
        INDENT + filled.iter().sum::<usize>() + GAP * filled.len().saturating_sub(1)
    };
    let columns = (1..=COLUMNS).rev().find(|columns| room(*columns) <= width).unwrap_or(1);
    rows.iter().map(|row| line(&row[..columns], &wide, width)).collect()
}

/// Columns that are empty in all lines are left out.
fn line(row: &[String], wide: &[usize], width: usize) -> String {
    let filled = row.iter().zip(wide).filter(|(_, wide)| **wide > 0);
    let cells: Vec<String> = filled.map(|(text, wide)| fitted(text, *wide)).collect();
    let line = format!("{}{}", " ".repeat(INDENT), cells.join(&" ".repeat(GAP)));
    fitted(line.trim_end(), line.trim_end().chars().count().min(width))
}

fn cells(pot: &Pot, part: &Part) -> [String; COLUMNS] {
    let account = pot.accounts.iter().find(|account| label(&account.tenant) == part.label);
    let held = account.map(|account| account.account.held_bytes());
    // What the driver shows is the truth; it may show nothing of a tenant.
    let used = part.used_bytes.or(held).map(|used| format!("{} used", amounts::bytes(used)));
    let gpu = account.and_then(|account| account.gpu_ratio).map(|ratio| (ratio, "GPU"));
    let had = gpu.or(part.sm_ratio.map(|ratio| (ratio, "SM")));
    let had = had.map(|(ratio, of)| format!("{} of {of} time", percent(Some(ratio))));
    let name = part.label.chars().count().min(NAME_MAX);
    [fitted(&part.label, name), used.unwrap_or_default(), given(part), had.unwrap_or_default()]
}

/// `of 2.29 GiB, 30 %`, `of 1g.10gb`; nothing for a tenant that was given nothing.
fn given(part: &Part) -> String {
    let is_given = part.enforcement.is_some() || part.job.is_some();
    let memory = part.room_bytes.filter(|_| is_given).map(amounts::bytes);
    let memory = part.profile.clone().or(memory);
    let compute = part.compute_milli.map(|milli| format!("{} %", f64::from(milli) / 10.0));
    let parts: Vec<String> = memory.into_iter().chain(compute).collect();
    if parts.is_empty() { String::new() } else { format!("of {}", parts.join(", ")) }
}
