//! Where a process finds its caps: a file that an agent has put there, or variables.
//!
//! The file at [`FIXED`] is what containers and jobs with a file system of their own are given; no
//! variable can lead away from it. Elsewhere [`LIST_VARIABLE`] names the file. Without a file the
//! variables of the field's existing limiter count (`CUDA_DEVICE_MEMORY_LIMIT`, `CUDA_DEVICE_SM_LIMIT`,
//! each also with `_0`, `_1`, … ; names and meaning: Project-HAMi/HAMi-core, README), so that images made
//! for it work as they are. With a file those variables may lower a cap and never raise it.

use std::fmt;
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::given::{Caps, ComputeCap, GpuCaps, Which};
use crate::text::TextError;

/// The caps of everybody who sees this file system.
pub const FIXED: &str = "/run/hotpot/caps";

/// Names the caps file where there is none at [`FIXED`].
pub const LIST_VARIABLE: &str = "HOTPOT_CAPS";

/// Most bytes of a caps file.
const BYTES_MAX: u64 = 256 << 10;

/// Ordinals that variables are looked up for.
const ORDINALS_MAX: u32 = 64;

/// Where caps came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A file of an agent.
    File(PathBuf),
    /// Variables alone.
    Variables,
}

/// Caps were given and cannot be read: nobody knows what is allowed.
#[derive(Debug)]
pub enum LoadError {
    /// The file, and what the system says.
    File(PathBuf, io::Error),
    /// The file, and what is wrong in it.
    Text(PathBuf, TextError),
    /// A variable, and what is wrong with it.
    Variable(String, String),
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Text(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Variable(name, value) => {
                write!(f, "{name}={value}: no amount, such as 2g or 512m")
            }
        }
    }
}

impl Caps {
    /// The caps of this process; `None` if nobody has given any.
    ///
    /// # Errors
    /// There are caps and they cannot be read: the caller must not go on as if there were none.
    pub fn load() -> Result<Option<(Self, Source)>, LoadError> {
        // What is no text is a path that is not there or no amount, and never nothing.
        let variable = |name: &str| std::env::var_os(name);
        let text = |name: &str| variable(name).map(|value| value.to_string_lossy().into_owned());
        Self::load_from(Path::new(FIXED), &text)
    }

    fn load_from(
        fixed: &Path,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Option<(Self, Source)>, LoadError> {
        let named = variable(LIST_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
        let found = match read(fixed) {
            Err(error) if absent(&error) => None,
            Err(error) => return Err(LoadError::File(fixed.to_owned(), error)),
            Ok(text) => Some((fixed.to_owned(), text)),
        };
        let found = match (found, named) {
            (Some(found), _) => Some(found),
            (None, Some(path)) => match read(&path) {
                Ok(text) => Some((path, text)),
                Err(error) => return Err(LoadError::File(path, error)),
            },
            (None, None) => None,
        };
        let asked = from_variables(variable);
        let Some((path, text)) = found else {
            return Ok(asked?.map(|caps| (caps, Source::Variables)));
        };
        let mut caps = Self::parse(&text).map_err(|error| LoadError::Text(path.clone(), error))?;
        for given in caps.gpus.iter_mut().filter(|given| given.ledger.as_os_str().is_empty()) {
            given.ledger = own_folder().join("{gpu}.ledger");
        }
        // Variables that make no sense cannot undo what the agent has said.
        if let Ok(Some(asked)) = asked {
            caps.lower_to(&asked);
        }
        Ok(Some((caps, Source::File(path))))
    }
}

/// Not there, or the folders to it are not.
fn absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn read(path: &Path) -> io::Result<String> {
    let mut options = std::fs::OpenOptions::new();
    let file = options.read(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no file"));
    }
    let mut text = String::new();
    file.take(BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is longer than any caps file"));
    }
    Ok(text)
}

/// Caps from the variables of the field's limiter; `None` if none of them says anything.
fn from_variables(variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<Caps>, LoadError> {
    if variable("CUDA_DISABLE_CONTROL").is_some_and(|text| text.eq_ignore_ascii_case("true")) {
        return Ok(None);
    }
    let mut gpus = Vec::new();
    let numbers = (0..ORDINALS_MAX).map(|number| (format!("_{number}"), Which::Ordinal(number)));
    for (suffix, gpu) in numbers.chain([(String::new(), Which::Any)]) {
        let said = |name: &str| variable(&format!("{name}{suffix}")).or_else(|| variable(name));
        let own = |name: &str| variable(&format!("{name}{suffix}")).is_some();
        if !own("CUDA_DEVICE_MEMORY_LIMIT") && !own("CUDA_DEVICE_SM_LIMIT") {
            continue;
        }
        let memory_bytes = match said("CUDA_DEVICE_MEMORY_LIMIT") {
            Some(text) => limit(&text)
                .ok_or(LoadError::Variable(format!("CUDA_DEVICE_MEMORY_LIMIT{suffix}"), text))?,
            None => None,
        };
        let compute = said("CUDA_DEVICE_SM_LIMIT").and_then(|text| share(&text, variable));
        if memory_bytes.is_some() || compute.is_some() {
            let ledger = books(variable);
            gpus.push(GpuCaps {
                gpu,
                memory_bytes,
                context_bytes: None,
                compute,
                ledger,
                board: None,
            });
        }
    }
    let tenant = "variables".to_owned();
    Ok((!gpus.is_empty()).then_some(Caps { tenant, gpus, closed: false }))
}

/// Bytes with `k`, `m` or `g` behind (1024 each); 0 is no cap; `None` if it is no amount.
fn limit(text: &str) -> Option<Option<u64>> {
    let text = text.trim().to_ascii_lowercase();
    let text = text.strip_suffix('b').unwrap_or(&text);
    let (digits, shift) = match text.strip_suffix(['k', 'm', 'g']) {
        Some(digits) if text.ends_with('k') => (digits, 10),
        Some(digits) if text.ends_with('m') => (digits, 20),
        Some(digits) => (digits, 30),
        None => (text, 0),
    };
    let number: u64 = digits.trim().parse().ok()?;
    let bytes = number.checked_mul(1 << shift)?;
    Some((bytes > 0).then_some(bytes))
}

/// Percent of the GPU; 0, 100 and what is no number mean no cap.
fn share(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Option<ComputeCap> {
    let percent: u32 = text.trim().trim_end_matches('%').parse().ok()?;
    let policy = variable("GPU_CORE_UTILIZATION_POLICY").unwrap_or_default().to_ascii_lowercase();
    if percent == 0 || percent >= 100 || policy == "disable" {
        return None;
    }
    // 0 is its high priority, 1 its low one.
    let low = variable("CUDA_TASK_PRIORITY").is_some_and(|text| text.trim() == "1");
    let conserving = policy != "force";
    Some(ComputeCap { priority: -i32::from(low), conserving, ..ComputeCap::of(percent * 10) })
}

/// Where the books lie if nobody has said: beside the file that the field's limiter would share, else
/// in a folder of the user's own.
fn books(variable: &dyn Fn(&str) -> Option<String>) -> PathBuf {
    match variable("CUDA_DEVICE_MEMORY_SHARED_CACHE").filter(|path| !path.is_empty()) {
        Some(path) => PathBuf::from(format!("{path}.{{gpu}}.hotpot")),
        None => own_folder().join("{gpu}.ledger"),
    }
}

/// Whether a ledger lies where a user's processes make it themselves if nobody has named another place.
pub fn is_own_ledger(path: &Path) -> bool {
    path.parent() == Some(&own_folder())
}

/// A folder that only this user can write to; whoever has taken its name otherwise is not followed.
fn own_folder() -> PathBuf {
    let user = user();
    let folder = std::env::temp_dir().join(format!("hotpot-caps-{user}"));
    let _there = std::fs::DirBuilder::new().mode(0o700).create(&folder);
    let ours = std::fs::symlink_metadata(&folder)
        .is_ok_and(|about| about.is_dir() && about.uid() == user && about.mode() & 0o022 == 0);
    // A name that cannot be opened: caps without books do not hold, and are refused.
    if ours { folder } else { folder.join("not-ours") }
}

#[allow(unsafe_code, reason = "one call without arguments")]
fn user() -> u32 {
    // SAFETY: it cannot fail and touches nothing.
    unsafe { libc::geteuid() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(
        file: Option<&str>,
        variables: &[(&str, &str)],
    ) -> Result<Option<(Caps, Source)>, LoadError> {
        use std::sync::atomic::{AtomicU32, Ordering};
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let fixed = std::env::temp_dir().join(format!("caps-{}-{number}", std::process::id()));
        if let Some(text) = file {
            std::fs::write(&fixed, text).unwrap();
        }
        let variable = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let loaded = Caps::load_from(&fixed, &variable);
        let _ = std::fs::remove_file(&fixed);
        loaded
    }

    #[test]
    fn nobody_has_said_anything() {
        assert_eq!(load(None, &[]).unwrap(), None);
        assert_eq!(load(None, &[("CUDA_DEVICE_SM_LIMIT", "0")]).unwrap(), None);
        let off = [("CUDA_DISABLE_CONTROL", "true"), ("CUDA_DEVICE_MEMORY_LIMIT", "1g")];
        assert_eq!(load(None, &off).unwrap(), None);
    }

    #[test]
    fn variables_of_the_fields_limiter_are_understood() {
        let variables = [
            ("CUDA_DEVICE_MEMORY_LIMIT", "512m"),
            ("CUDA_DEVICE_MEMORY_LIMIT_1", "2G"),
            ("CUDA_DEVICE_SM_LIMIT_1", "30"),
            ("GPU_CORE_UTILIZATION_POLICY", "FORCE"),
            ("CUDA_DEVICE_MEMORY_SHARED_CACHE", "/x/cache"),
        ];
        let (caps, source) = load(None, &variables).unwrap().unwrap();
        assert_eq!((source, caps.closed, caps.gpus.len()), (Source::Variables, false, 2));
        let Standing::Given(first) = caps.standing(&["GPU-a"], 0) else { panic!("no cap") };
        assert_eq!((first.memory_bytes, first.compute), (Some(512 << 20), None));
        let Standing::Given(second) = caps.standing(&["GPU-b"], 1) else { panic!("no cap") };
        let compute = second.compute.unwrap();
        assert_eq!((second.memory_bytes, compute.share_milli), (Some(2 << 30), 300));
        assert!(!compute.conserving);
        assert_eq!(second.ledger, Path::new("/x/cache.{gpu}.hotpot"));
    }

    use crate::given::Standing;

    #[test]
    fn nonsense_is_an_error_and_not_no_cap() {
        let wrong = load(None, &[("CUDA_DEVICE_MEMORY_LIMIT", "lots")]).unwrap_err();
        assert!(wrong.to_string().starts_with("CUDA_DEVICE_MEMORY_LIMIT=lots"), "{wrong}");
        assert!(matches!(load(Some("memory"), &[]), Err(LoadError::Text(..))));
        assert!(matches!(
            load(None, &[(LIST_VARIABLE, "/nowhere/caps")]),
            Err(LoadError::File(..))
        ));
    }

    #[test]
    fn no_variable_leads_away_from_the_file() {
        let file = "tenant = t\n[GPU-a]\nmemory = 1000\ncompute = 300\nledger = /l\n";
        let more = [
            (LIST_VARIABLE, "/nowhere/caps"),
            ("CUDA_DEVICE_MEMORY_LIMIT", "90g"),
            ("CUDA_DEVICE_SM_LIMIT", "90"),
            ("CUDA_DISABLE_CONTROL", "false"),
        ];
        let alone = load(Some(file), &[]).unwrap().unwrap();
        for variables in
            [&more[..], &[("CUDA_DISABLE_CONTROL", "true")], &[("CUDA_DEVICE_MEMORY_LIMIT", "x")]]
        {
            assert_eq!(load(Some(file), variables).unwrap().unwrap().0, alone.0);
        }
        let less = [("CUDA_DEVICE_MEMORY_LIMIT_0", "500"), ("CUDA_DEVICE_SM_LIMIT_0", "10")];
        let (caps, _) = load(Some(file), &less).unwrap().unwrap();
        assert_eq!(caps.gpus[0].memory_bytes, Some(500));
        assert_eq!(caps.gpus[0].compute.unwrap().share_milli, 100);
    }
}
