//! What an MPS daemon holds for its clients, and the configuration file of the third interface.
//!
//! Keys and their kinds: NVIDIA MPS guide (r615 to r620), "MPS v3 Configuration File".

use std::collections::BTreeMap;

use toml::{Table, Value};

/// Defaults that the daemon hands to servers.
#[derive(Debug)]
pub struct Settings {
    /// Threads a client may use at once, in percent: above 0, at most 100.
    pub thread_percentage: f64,
    /// Memory limit as given, by device number.
    pub memory_limits: BTreeMap<u32, String>,
    /// Servers that a configuration file names.
    pub servers: Vec<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { thread_percentage: 100.0, memory_limits: BTreeMap::new(), servers: Vec::new() }
    }
}

/// Reads a percentage as the daemon takes it.
pub fn percentage(text: &str) -> Option<f64> {
    text.trim().parse().ok().filter(|percent| *percent > 0.0 && *percent <= 100.0)
}

/// Whether a text is a memory limit: a whole number and K, M, G or nothing.
pub fn is_memory_limit(text: &str) -> bool {
    let number = text.strip_suffix(['K', 'M', 'G', 'k', 'm', 'g']).unwrap_or(text);
    number.parse::<u64>().is_ok()
}

/// Reads a configuration file.
///
/// # Errors
/// The first key that is not known, or whose value is not of its kind.
pub fn read(text: &str) -> Result<Settings, String> {
    let file: Table = text.parse().map_err(|error| format!("not TOML: {error}"))?;
    let mut settings = Settings::default();
    for (key, value) in &file {
        match key.as_str() {
            "schema_version" if value.as_str() == Some("1.0") => {}
            "schema_version" => return Err(format!("schema_version: {value} is not \"1.0\"")),
            "servers" => read_servers(value, &mut settings)?,
            "features" => {}
            other => return Err(format!("{other}: is no known key")),
        }
    }
    Ok(settings)
}

fn read_servers(servers: &Value, settings: &mut Settings) -> Result<(), String> {
    let servers = servers.as_table().ok_or("servers: is no table")?;
    for (name, server) in servers {
        let server = server.as_table().ok_or_else(|| format!("servers.{name}: is no table"))?;
        for (key, value) in server {
            let place = format!("servers.{name}.{key}");
            match key.as_str() {
                "uid" if value.is_integer() => {}
                "locality_domains" if value.is_bool() => {}
                "namespaces" => read_namespaces(value, &place)?,
                "devices" if value.is_array() => {}
                "allowed_devices" if value.is_str() => {}
                "uid" | "locality_domains" | "devices" | "allowed_devices" => {
                    return Err(format!("{place}: {value} is not of its kind"));
                }
                _ => read_cap(key, value, &place)?,
            }
        }
        settings.servers.push(name.clone());
    }
    Ok(())
}

fn read_namespaces(namespaces: &Value, place: &str) -> Result<(), String> {
    let namespaces = namespaces.as_table().ok_or_else(|| format!("{place}: is no table"))?;
    for (name, namespace) in namespaces {
        let place = format!("{place}.{name}");
        let caps = namespace.as_table().ok_or_else(|| format!("{place}: is no table"))?;
        for (key, value) in caps {
            read_cap(key, value, &format!("{place}.{key}"))?;
        }
    }
    Ok(())
}

/// Caps are texts, numbers included.
fn read_cap(key: &str, value: &Value, place: &str) -> Result<(), String> {
    let text = value.as_str().unwrap_or_default();
    let right = match key {
        "pinned_memory_limit" => is_memory_limit(text),
        "active_thread_percentage" => percentage(text).is_some(),
        "client_priority" => text.parse::<u8>().is_ok(),
        _ => return Err(format!("{place}: is no known key")),
    };
    if right { Ok(()) } else { Err(format!("{place}: {value} is not of its kind")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_and_its_faults_are_named() {
        let good = "schema_version = \"1.0\"\n[servers.a]\nallowed_devices = \"GPU-1\"\nuid = 7\n\
                    active_thread_percentage = \"50\"\n[servers.a.namespaces.b]\n\
                    pinned_memory_limit = \"5G\"\n";
        assert_eq!(read(good).unwrap().servers, ["a"]);
        for (text, fault) in [
            ("schema_version = \"2\"", "schema_version"),
            ("[servers.a]\nspeed = 3", "servers.a.speed: is no known key"),
            ("[servers.a]\nactive_thread_percentage = 50", "is not of its kind"),
            ("[servers.a.namespaces.b]\nuid = 1", "servers.a.namespaces.b.uid: is no known key"),
            ("[servers.a]\npinned_memory_limit = \"lots\"", "is not of its kind"),
        ] {
            assert!(read(text).unwrap_err().contains(fault), "{text}");
        }
    }
}
