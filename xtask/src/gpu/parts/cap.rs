//! The cap of memory: each way to get memory is tried until it is refused, and what the tenant's books say
//! is held against what NVML, asked from outside, says that its process really took.

use super::Found;
use crate::gpu::bench::Bench;
use crate::gpu::driver::OUT_OF_MEMORY;
use crate::gpu::table::{Table, mib};
use crate::gpu::tenant::{Client, Tenant, words};

/// The cap, in bytes.
const CAP: u64 = 2 << 30;
/// What is asked for at a time, in bytes.
const PIECE: u64 = 64 << 20;
/// Way, and how functions are looked up.
const WAYS: [(&str, &str); 7] = [
    ("plain", "loader"),
    ("plain", "driver"),
    ("pitch", "loader"),
    ("pool", "driver"),
    ("virtual", "loader"),
    ("managed", "loader"),
    ("array", "loader"),
];

pub(crate) fn run(bench: &Bench) -> Result<Found, String> {
    let mut wrong = Vec::new();
    let mut table = Table::new(
        &format!("Memory under a cap of {} MiB, in pieces of {} MiB (MiB)", CAP >> 20, PIECE >> 20),
        &[
            "way (lookup)",
            "got",
            "code",
            "books",
            "total shown",
            "free shown",
            "NVML total",
            "NVML used",
            "GPU used more",
            "beyond books",
            "again",
        ],
    );
    for (way, lookup) in WAYS {
        match one(bench, way, lookup) {
            Ok((row, complaints)) => {
                table.row(row);
                wrong.extend(complaints.into_iter().map(|what| format!("{way}: {what}")));
            }
            Err(error) => wrong.push(format!("{way}: {error}")),
        }
    }
    let mut tables = vec![context(bench)?, table];
    tables.push(two_processes(bench, &mut wrong)?);
    Ok(Found::Done(tables, wrong))
}

/// What a context takes by itself, without limiter and with.
fn context(bench: &Bench) -> Result<Table, String> {
    let mut table = Table::new(
        "A context and nothing else (MiB)",
        &["client", "GPU used more", "its process", "books", "total shown", "free shown"],
    );
    for (name, tenant) in [
        ("without limiter", Tenant::free(bench, "context-free")?),
        ("under the cap", Tenant::capped(bench, "context", Some(CAP), None)?),
    ] {
        let before = bench.used()?.0;
        let mut client = tenant.start(bench, &words("idle", &[]))?;
        client.until(bench, "holding")?;
        let (used, processes) = bench.used()?;
        let books = mib(tenant.account()?.held_bytes());
        table.row(vec![
            name.to_string(),
            mib(used.saturating_sub(before)),
            process(&processes, client.pid()),
            books,
            mib(client.bytes("total")?),
            mib(client.bytes("free")?),
        ]);
        client.end(bench)?;
    }
    Ok(table)
}

/// A process's memory as NVML shows it. Inside a container its number may be another one.
fn process(processes: &std::collections::BTreeMap<String, i64>, pid: u32) -> String {
    let used = processes.get(&pid.to_string()).or_else(|| match processes.len() {
        1 => processes.values().next(),
        _ => None,
    });
    match used {
        Some(bytes) if *bytes >= 0 => mib(bytes.unsigned_abs()),
        _ => "not told".to_string(),
    }
}

/// One way: its row, and what is wrong with it.
fn one(bench: &Bench, way: &str, lookup: &str) -> Result<(Vec<String>, Vec<String>), String> {
    let tenant = Tenant::capped(bench, &format!("cap-{way}-{lookup}"), Some(CAP), None)?;
    let before = bench.used()?.0;
    let mut client = start(bench, &tenant, way, lookup, u64::MAX)?;
    client.until(bench, "ready")?;
    client.go_on("")?;
    client.until(bench, "holding")?;
    let account = tenant.account()?;
    let more = bench.used()?.0.saturating_sub(before);
    client.go_on("")?;
    client.until(bench, "again")?;
    let (got, books) = (client.bytes("held")?, account.held_bytes());
    let (code, again) = (client.number("code")? as i32, client.number("again")? as i32);
    let shown = |name: &str| client.bytes(name).map_or_else(|_| "none".to_string(), mib);
    let row = vec![
        format!("{way} ({lookup})"),
        mib(got),
        code.to_string(),
        mib(books),
        shown("after.total"),
        shown("after.free"),
        shown("after.nvml_total"),
        shown("after.nvml_used"),
        mib(more),
        format!("{}", (more.cast_signed() - books.cast_signed()) >> 20),
        if again == 0 { "yes".to_string() } else { format!("refused: {again}") },
    ];
    let mut wrong = Vec::new();
    let mut must = |holds: bool, what: &str| {
        if !holds {
            wrong.push(what.to_string());
        }
    };
    must(code == OUT_OF_MEMORY, "was not refused as out of memory");
    must(got <= CAP && books <= CAP, "went over the cap");
    must(got + PIECE + (1 << 30) > CAP, "was refused a GiB too early");
    must(client.bytes("after.total")? == CAP, "cuMemGetInfo does not show the cap as the total");
    must(client.bytes("after.device")? == CAP, "cuDeviceTotalMem does not show the cap");
    must(account.over_cap.count > 0, "the books do not show the refusal");
    must(again == 0, "what was given back cannot be had again");
    client.end(bench)?;
    Ok((row, wrong))
}

fn start(
    bench: &Bench,
    tenant: &Tenant,
    way: &str,
    lookup: &str,
    most: u64,
) -> Result<Client, String> {
    let pairs: [(&str, &dyn std::fmt::Display); 5] = [
        ("way", &way),
        ("lookup", &lookup),
        ("piece", &PIECE),
        ("most", &most),
        ("uuid", &bench.gpu.uuid),
    ];
    tenant.start(bench, &words("allocate", &pairs))
}

/// Two processes of one tenant have one cap together.
fn two_processes(bench: &Bench, wrong: &mut Vec<String>) -> Result<Table, String> {
    let mut table =
        Table::new("Two processes of one tenant (MiB)", &["process", "got", "code", "books then"]);
    let tenant = Tenant::capped(bench, "cap-two", Some(CAP), None)?;
    let mut sum = 0;
    let mut clients = Vec::new();
    for (name, most) in [("first, stops at half the cap", CAP / 2), ("second", u64::MAX)] {
        let mut client = start(bench, &tenant, "plain", "loader", most)?;
        client.until(bench, "ready")?;
        client.go_on("")?;
        client.until(bench, "holding")?;
        let account = tenant.account()?;
        sum += client.bytes("held")?;
        table.row(vec![
            name.to_string(),
            mib(client.bytes("held")?),
            client.text("code")?.to_string(),
            mib(account.held_bytes()),
        ]);
        clients.push(client);
    }
    if sum > CAP {
        wrong.push(format!("two processes got {} MiB together", sum >> 20));
    }
    Ok(table)
}
