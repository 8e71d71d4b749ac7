//! Is hotpot set up on this cluster and this machine? Each question is answered by Slurm or by the machine itself, not by
//! the files that were meant to bring it about: a line that Slurm does not read is as good as none.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use node::companion;
use node::tool::ToolError;

use crate::commands::{Slurm, SlurmError};
use crate::config::Config;
use crate::facts::Facts;
use crate::gres;
use crate::node_state::{NodeState, OutOfUse};
use crate::record::Record;
use crate::site::Site;

/// The first release that has shards.
const OLDEST: (u32, u32) = (22, 5);
/// More than any card has, and less than what the plugin itself refuses.
const TOO_MUCH: &str = "--gpu-mem=900000G";
const ASKED: [&str; 3] = ["--test-only", TOO_MUCH, "--wrap=true"];
/// What the rules are made of; slurmctld runs them.
const RULES: [&str; 3] = ["job_submit.lua", "hotpot.lua", "hotpot_site.lua"];
/// Others than the owner may write.
const OTHERS_WRITE: u32 = 0o022;
const COMPANIONS: [&str; 2] = ["libhotpot_spank.so", "libhotpot_limiter.so"];

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What, and what was found.
    pub what: String,
    /// If that is wrong: the way out.
    pub way_out: Option<String>,
}

impl Finding {
    fn ok(what: impl Into<String>) -> Self {
        Self { what: what.into(), way_out: None }
    }

    fn wrong(what: impl Into<String>, way_out: impl Into<String>) -> Self {
        Self { what: what.into(), way_out: Some(way_out.into()) }
    }

    fn of(is_fine: bool, what: impl Into<String>, way_out: impl Into<String>) -> Self {
        if is_fine { Self::ok(what) } else { Self::wrong(what, way_out) }
    }
}

/// Looks at the cluster from this machine: slurm.conf as slurmctld has read it, the files beside it, the plugin in Slurm's
/// commands, and the rules in slurmctld, which are asked for something that nobody can have.
///
/// * `folder` — that of slurm.conf.
///
/// # Errors
/// slurmctld does not answer.
pub fn cluster(slurm: Slurm, site: &Site, folder: &Path) -> Result<Vec<Finding>, SlurmError> {
    let config = Config::ask(slurm)?;
    let mut findings = settings(&config);
    findings.extend(["Prolog", "Epilog", "HealthCheckProgram"].map(|name| program(name, &config)));
    findings.extend(companions());
    findings.extend(RULES.iter().filter_map(|name| rights(&folder.join(name))));
    let plugin = plugin(slurm);
    // Without it, sbatch does not know the option by which the rules are asked.
    let can_ask = plugin.way_out.is_none();
    findings.push(plugin);
    findings.extend(can_ask.then(|| rules(slurm.call("sbatch", &ASKED))));
    findings.extend(facts(slurm, site, &folder.join("hotpot_site.lua"))?);
    Ok(findings)
}

fn settings(config: &Config) -> Vec<Finding> {
    let shown = |name: &str| config.get(name).unwrap_or("nothing");
    let has = |name: &str, word: &str| config.has(name, word);
    let line = |name: &str, is_fine, way_out: &str| {
        Finding::of(is_fine, format!("{name}={}", shown(name)), way_out)
    };
    let version = shown("SLURM_VERSION");
    let mut numbers = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let release = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let waits = "; restart slurmctld and all slurmd after the change";
    vec![
        Finding::of(release >= OLDEST, format!("Slurm {version}"), "shards came with Slurm 22.05"),
        line(
            "SelectType",
            has("SelectType", "select/cons_tres"),
            "slurm.conf: SelectType=select/cons_tres; no other gives GPUs to jobs",
        ),
        line(
            "GresTypes",
            has("GresTypes", "gpu") && has("GresTypes", "shard"),
            &format!("slurm.conf: GresTypes=gpu,shard{waits}"),
        ),
        line(
            "JobSubmitPlugins",
            has("JobSubmitPlugins", "lua"),
            &format!("slurm.conf: JobSubmitPlugins=lua{waits}"),
        ),
        line(
            "PrologFlags",
            ["Alloc", "Contain"].into_iter().any(|flag| has("PrologFlags", flag)),
            &format!("slurm.conf: PrologFlags=Alloc, or tasks of srun start before Prolog{waits}"),
        ),
    ]
}

/// A program that slurmd runs: ours, or the site's that names ours.
fn program(name: &str, config: &Config) -> Finding {
    let ours = match name {
        "HealthCheckProgram" => "health".to_owned(),
        _ => name.to_ascii_lowercase(),
    };
    let way_out = format!(
        "slurm.conf: {name}=/usr/lib/hotpot/slurm/{ours}; a program of your own there calls it"
    );
    let Some(path) = config.get(name) else {
        return Finding::wrong(format!("{name} is not set"), way_out);
    };
    if path.contains('*') {
        return Finding::ok(format!("{name}={path}: several, which are not looked into"));
    }
    let shown = format!("{name}={path}");
    let is_runnable = fs::metadata(path).is_ok_and(|it| it.permissions().mode() & 0o111 != 0);
    if !is_runnable {
        let why = format!("{shown}: no program on this machine");
        return Finding::wrong(why, "install hotpot's programs on every machine");
    }
    let text = fs::read(path).unwrap_or_default();
    let calls = String::from_utf8_lossy(&text).contains("hotpot");
    let why = if calls { shown } else { format!("{shown}: does not call hotpot") };
    Finding::of(calls, why, way_out)
}

/// The libraries that come with this program, which processes of every user load.
fn companions() -> Vec<Finding> {
    let way_out = "install hotpot's programs anew, bin/hotpot and lib/hotpot together";
    let one = |name: &&str| match companion::folder_with(name) {
        Err(error) => Finding::wrong(error.to_string(), way_out),
        Ok(folder) => {
            let path = folder.join(name);
            let mode = fs::metadata(&path).map_or(0, |it| it.permissions().mode());
            let shown = path.display();
            let way_out = format!("chmod 755 {shown}");
            Finding::of(mode & 0o4 != 0, format!("{shown}, mode {:o}", mode & 0o777), way_out)
        }
    };
    COMPANIONS.iter().map(one).collect()
}

/// What slurmctld runs must not be everybody's to write.
fn rights(path: &Path) -> Option<Finding> {
    let mode = fs::metadata(path).ok()?.permissions().mode();
    let shown = path.display();
    let is_fine = mode & OTHERS_WRITE == 0;
    let way_out = format!("chmod go-w {shown}");
    Some(Finding::of(is_fine, format!("{shown}, mode {:o}", mode & 0o777), way_out))
}

fn plugin(slurm: Slurm) -> Finding {
    let help = slurm.call("sbatch", &["--help"]).unwrap_or_default();
    Finding::of(
        help.contains("--gpu-mem"),
        "sbatch has --gpu-mem",
        "plugstack.conf beside slurm.conf: include /usr/lib/hotpot/slurm/spank.conf, and that names the plugin's file",
    )
}

/// * `answer` — to a job that no card has room for.
fn rules(answer: Result<String, SlurmError>) -> Finding {
    let said = match answer {
        Ok(_) => "slurmctld takes a job that no card has room for".to_owned(),
        Err(SlurmError::Tool(ToolError::Failed { said, .. })) => said,
        Err(error) => error.to_string(),
    };
    if said.contains(&format!("{TOO_MUCH}: the largest")) {
        return Finding::ok("slurmctld refuses what no card has, with the reason");
    }
    Finding::wrong(
        format!("the rules for submissions do not answer: {said}"),
        "job_submit.lua, hotpot.lua and hotpot_site.lua belong beside slurm.conf where slurmctld runs; its log says what is missing",
    )
}

/// Whether the rules know what the nodes have; nothing where their file is not: that is slurmctld's host alone.
fn facts(slurm: Slurm, site: &Site, path: &Path) -> Result<Option<Finding>, SlurmError> {
    let Ok(told) = fs::read_to_string(path) else { return Ok(None) };
    let now = Facts::ask(slurm)?.lua(site);
    let shown = path.display();
    let what = format!("{shown} says what the nodes have");
    let way_out = format!("hotpot slurm facts > {shown}.new && mv {shown}.new {shown}");
    Ok(Some(if told == now {
        Finding::ok(what)
    } else {
        Finding::wrong(format!("{shown} is not what the nodes have"), way_out)
    }))
}

/// Looks at a node.
///
/// * `rendered` — what `Gres=` of a node with this machine's GPUs would be ([`crate::conf::render`]), or why that
///   is not known.
///
/// # Errors
/// slurmctld does not answer.
pub fn node(slurm: Slurm, name: &str, rendered: Result<String, String>) -> Vec<Finding> {
    let Ok(text) = slurm.call("scontrol", &["show", "node", "-o", name]) else {
        return vec![Finding::ok(format!(
            "{name} is no node of Slurm's: its GPUs are not looked at"
        ))];
    };
    let node = Record::parse(&text);
    let state = NodeState::new(node.get("State").unwrap_or("UNKNOWN"));
    // In maintenance, who is there may look all the same.
    let is_fine = matches!(state.out_of_use(), None | Some(OutOfUse::Maintenance));
    let reason = node.get("Reason").map_or(String::new(), |reason| format!(" ({reason})"));
    let way_out = format!(
        "mend the reason, then: scontrol update nodename={name} state=resume; slurmd's log says more"
    );
    let up = Finding::of(is_fine, format!("{name} is {state}{reason}"), way_out);
    vec![up, amounts_match(name, node.get("Gres").unwrap_or("nothing"), rendered)]
}

fn amounts_match(name: &str, gres: &str, rendered: Result<String, String>) -> Finding {
    match rendered {
        Err(why) => Finding::wrong(why, "hotpot must reach the driver on a node with GPUs"),
        Ok(wanted) => Finding::of(
            amounts(gres) == amounts(&wanted),
            format!("{name} has {gres}, its GPUs make {wanted}"),
            format!(
                "hotpot slurm conf --nodes {name} prints what belongs into gres.conf and slurm.conf"
            ),
        ),
    }
}

/// How many GPUs and shards; what their types are called is the site's.
fn amounts(gres: &str) -> BTreeMap<&str, u64> {
    let mut amounts = BTreeMap::new();
    for one in gres::amounts(gres) {
        *amounts.entry(one.name).or_insert(0) += one.count;
    }
    amounts.retain(|name, count| matches!(*name, "gpu" | "shard") && *count > 0);
    amounts
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = "Configuration data as of now\n\
        GresTypes               = gpu,shard\nJobSubmitPlugins        = lua\n\
        PrologFlags             = Alloc,Contain\nSelectType              = select/cons_tres\n\
        SLURM_VERSION           = 22.05.8\nProlog[0]               = /bin/sh\n\
        Epilog                  = (null)\n";

    #[test]
    fn what_is_set_is_fine_and_what_is_not_has_a_way_out() {
        assert!(settings(&Config::parse(CONFIG)).iter().all(|finding| finding.way_out.is_none()));
        for (line, part) in [
            ("22.05.8", "22.05"),
            ("gpu,shard", "GresTypes=gpu,shard"),
            ("= lua", "JobSubmitPlugins=lua"),
            ("Alloc,Contain", "PrologFlags=Alloc"),
            ("select/cons_tres", "SelectType="),
        ] {
            let found = settings(&Config::parse(&CONFIG.replace(line, "= 20.11")));
            let wrong: Vec<_> = found.iter().filter_map(|it| it.way_out.as_deref()).collect();
            assert!(wrong.len() == 1 && wrong[0].contains(part), "{line}: {wrong:?}");
        }
    }

    #[test]
    fn a_program_that_does_not_call_hotpot_is_named() {
        let program = |name: &str, config: &str| program(name, &Config::parse(config));
        let prolog = program("Prolog", CONFIG);
        assert!(prolog.what.contains("/bin/sh: does not call"), "{prolog:?}");
        assert_eq!(program("Epilog", CONFIG).what, "Epilog is not set");
        let gone = program("Prolog", &CONFIG.replace("/bin/sh", "/no/such/program"));
        assert!(gone.what.contains("no program on this machine"));
    }

    #[test]
    fn amounts_count_and_names_of_types_do_not() {
        let found = |wanted: &str| {
            amounts_match("n1", "gpu:a100:4(S:0),shard:a100:1268(S:0)", Ok(wanted.into())).way_out
        };
        assert_eq!(found("gpu:a100_80gb:4,shard:1268"), None);
        assert!(found("gpu:a100_80gb:4,shard:632").unwrap().contains("hotpot slurm conf"));
        assert!(found("gpu:a100_80gb:3,shard:1268").is_some());
    }

    #[test]
    fn rules_answer_only_with_the_reason() {
        let failed = |said: &str| {
            let (call, status) = ("sbatch".to_owned(), "exit status: 1".to_owned());
            rules(Err(ToolError::Failed { call, status, said: said.to_owned() }.into()))
        };
        assert_eq!(failed(&format!("hotpot: {TOO_MUCH}: the largest card has 2")).way_out, None);
        assert!(failed("shares are not set up here").way_out.is_some());
        assert!(rules(Ok(String::new())).what.contains("takes a job"));
    }
}
