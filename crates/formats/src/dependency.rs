//! `--dependency`: what must have happened before a job may start (sbatch manual).

use crate::error::{Complaint, quote};

/// One condition. All of a job's conditions must hold, unless they were joined by `?`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dependency {
    /// What is awaited.
    pub kind: DependencyKind,
    /// The jobs it is about, by number or by name; empty for [`DependencyKind::Singleton`].
    pub jobs: Vec<String>,
    /// Whether one condition of the list is enough.
    pub any: bool,
}

/// What is awaited of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DependencyKind {
    /// That it has started.
    After,
    /// That it has ended, however.
    AfterAny,
    /// That it has ended well.
    AfterOk,
    /// That it has ended badly.
    AfterNotOk,
    /// That its task of the same index has ended well.
    AfterCorr,
    /// That no earlier job of the same name is left.
    Singleton,
}

impl DependencyKind {
    const ALL: [(&'static str, Self); 6] = [
        ("after", Self::After),
        ("afterany", Self::AfterAny),
        ("afterok", Self::AfterOk),
        ("afternotok", Self::AfterNotOk),
        ("aftercorr", Self::AfterCorr),
        ("singleton", Self::Singleton),
    ];

    /// The word that sbatch has for it.
    pub fn as_str(self) -> &'static str {
        Self::ALL.iter().find(|(_, kind)| *kind == self).map_or("", |(word, _)| word)
    }
}

/// Reads `afterok:12:13,afterany:prepare`, or with `?` where one is enough.
pub(crate) fn parse(text: &str) -> Result<Vec<Dependency>, Complaint> {
    let any = text.contains('?');
    if any && text.contains(',') {
        let what = format!("{} mixes `,` (all) and `?` (any)", quote(text));
        return Err(Complaint::new(what, "use one of the two"));
    }
    text.split(['?', ',']).map(|part| condition(part.trim(), any)).collect()
}

fn condition(part: &str, any: bool) -> Result<Dependency, Complaint> {
    let mut words = part.split(':');
    let word = words.next().unwrap_or("");
    let known = DependencyKind::ALL.iter().find(|(known, _)| known.eq_ignore_ascii_case(word));
    let Some((_, kind)) = known else {
        let what = format!("{} is no kind of dependency", quote(word));
        let words: Vec<&str> = DependencyKind::ALL.iter().map(|(word, _)| *word).collect();
        return Err(Complaint::new(what, format!("there are {}", words.join(", "))));
    };
    // `after:12+5` waits five minutes more, which nobody here keeps count of.
    let jobs: Vec<String> = words.map(str::to_string).collect();
    if let Some(delayed) = jobs.iter().find(|job| job.contains('+')) {
        let what = format!("{} asks for a delay, which is not kept", quote(delayed));
        return Err(Complaint::new(what, "leave out +MINUTES"));
    }
    let singleton = *kind == DependencyKind::Singleton;
    if singleton != jobs.is_empty() || jobs.iter().any(String::is_empty) {
        let way_out = "write afterok:JOB with a job's number or name, or singleton alone";
        return Err(Complaint::new(format!("{} names no job", quote(part)), way_out));
    }
    Ok(Dependency { kind: *kind, jobs, any })
}
