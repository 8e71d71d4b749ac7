//! The page of one GPU: its pot, its tenants and processes, what could hold a cap on it.

use node::account::Account;
use node::amounts;
use node::backend::{Backends, Enforcement};
use node::sample::AccountSample;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use super::bar::{bar, colour};
use super::parts::label;
use super::pot::{Part, Pot};
use super::rows::{fitted, gib, percent};
use crate::words;

/// Cells of a tenant's name.
const NAME: usize = 26;

/// All lines of the page; the screen shows what fits.
pub(super) fn lines(pot: &Pot, width: usize) -> Vec<Line<'static>> {
    let mut lines =
        vec![Line::raw(format!(" {}", pot.uuid)), indented(bar(pot, width.saturating_sub(2)))];
    if let Some(on) = &pot.on {
        let free = gib(on.free_bytes);
        lines.push(Line::raw(format!(" on {}; {free} GiB free by Slurm's books", on.node)));
    }
    lines.push(Line::raw(format!(
        " memory {} of {} GiB, busy {}, mode {}, isolation {}, α {}",
        gib(pot.memory_used_bytes),
        gib(pot.memory_total_bytes),
        percent(pot.busy_ratio),
        pot.sharing.as_str(),
        pot.enforcement,
        pot.alpha.map_or_else(|| "–".into(), |alpha| format!("{alpha:.2}")),
    )));
    if let Some(code @ 1..) = pot.xid {
        lines.push(Line::raw(format!(" last Xid event: {code}; look it up in the kernel's log")));
    }
    tenants(&mut lines, &pot.parts);
    accounts(&mut lines, &pot.accounts);
    processes(&mut lines, pot);
    if let Some(backends) = &pot.backends {
        backend_lines(&mut lines, backends);
    }
    if !pot.facts.is_empty() {
        lines.extend([Line::raw(""), title("Facts")]);
        lines
            .extend(pot.facts.iter().map(|(name, value)| Line::raw(format!(" {name:<20}{value}"))));
    }
    lines
}

fn tenants(lines: &mut Vec<Line<'static>>, parts: &[Part]) {
    lines.extend([
        Line::raw(""),
        title("Tenants                    share       used GiB  of GiB    SM"),
    ]);
    if parts.is_empty() {
        lines.push(Line::raw(" nobody"));
    }
    for part in parts {
        let name = if part.label.is_empty() { "(empty)" } else { &part.label };
        let figures = format!(
            "{} {:>8} {:>7} {:>5}",
            fitted(part.profile.as_deref().unwrap_or("–"), 11),
            gib(part.used_bytes),
            gib(part.room_bytes),
            percent(part.sm_ratio)
        );
        let name =
            Span::styled(format!(" {} ", fitted(name, NAME)), Style::new().fg(colour(part.class)));
        lines.push(Line::from(vec![name, Span::raw(figures)]));
    }
}

/// What the limiter says of the tenants that it holds: how near they are to their caps, and what that
/// costs them.
fn accounts(lines: &mut Vec<Line<'static>>, accounts: &[AccountSample]) {
    if accounts.is_empty() {
        return;
    }
    lines.extend([
        Line::raw(""),
        title("Caps by the limiter        held GiB  of GiB  GPU time  of  held back  refused"),
    ]);
    for AccountSample { tenant, cap_bytes, compute_milli, account, gpu_ratio, throttled_ratio } in
        accounts
    {
        let refused = match (account.counts.refused_by_cap, account.counts.refused_by_card) {
            (by_cap, 0) => by_cap.to_string(),
            (by_cap, by_card) => format!("{by_cap} by cap, {by_card} by card"),
        };
        let share = compute_milli.map(|milli| f64::from(milli) / 1000.0);
        lines.push(Line::raw(format!(
            " {} {:>8} {:>7} {:>9} {:>5} {:>8}  {refused}",
            fitted(&label(tenant), NAME),
            gib(Some(account.held_bytes())),
            gib(*cap_bytes),
            percent(*gpu_ratio),
            percent(share),
            percent(*throttled_ratio),
        )));
        if account.counts.refused_by_cap > 0 {
            lines.push(Line::raw(format!("   {}", last_refused(account))));
        }
    }
}

/// The last allocation that went over the cap, and what contexts take of it now.
fn last_refused(account: &Account) -> String {
    let (last, contexts) = (account.over_cap, words::contexts_bytes(account));
    let [asked, held, cap, of_contexts] =
        amounts::apart([last.asked_bytes, last.held_bytes, last.limit_bytes, contexts]);
    let now = match contexts {
        0 => String::new(),
        _ => format!(", {of_contexts} of it for contexts now"),
    };
    format!("last refused by the cap: {asked} over {held} held, of a cap of {cap}{now}")
}

fn processes(lines: &mut Vec<Line<'static>>, pot: &Pot) {
    if pot.processes.is_empty() {
        return;
    }
    lines.extend([
        Line::raw(""),
        title("Processes                  pid         used GiB  instance  SM"),
    ]);
    for process in &pot.processes {
        let instance = process.gpu_instance.map_or_else(|| "–".into(), |number| number.to_string());
        lines.push(Line::raw(format!(
            " {} {:<11} {:>8} {:>7} {:>5}",
            fitted(&label(&process.tenant), NAME),
            process.pid,
            gib(process.memory_bytes),
            instance,
            percent(process.sm_ratio)
        )));
    }
}

fn backend_lines(lines: &mut Vec<Line<'static>>, backends: &Backends) {
    lines.extend([Line::raw(""), title("What can hold a cap here")]);
    let all = [
        ("MIG instances", &backends.mig),
        ("memory limits (cgroup)", &backends.memory_limit),
        ("MPS", &backends.mps),
        ("time slices", &backends.time_slice),
        ("limiter library", &backends.limiter),
    ];
    for (name, enforcement) in all {
        let why = match enforcement {
            Enforcement::Absent(why) | Enforcement::Unknown(why) => {
                format!("{}: {why}", enforcement.as_str())
            }
            Enforcement::Hard | Enforcement::Cooperative => enforcement.as_str().into(),
        };
        lines.push(Line::raw(format!(" {name:<24}{why}")));
    }
}

fn title(text: &'static str) -> Line<'static> {
    Line::styled(format!(" {text}"), Style::new().add_modifier(Modifier::BOLD))
}

fn indented(line: Line<'static>) -> Line<'static> {
    let mut indented = Line::raw(" ");
    indented.extend(line);
    indented
}
