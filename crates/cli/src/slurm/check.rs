//! `hotpot slurm check`: whether all is in place, and the way out where it is not.

use node::driver::Driver;
use slurm::Slurm;
use slurm::check::{self, Finding};
use slurm::conf;
use slurm::site::{Site, conf_folder};

use super::args::CheckOf;
use super::conf::host;
use crate::failure::{Answer, Failure};
use crate::screen;

/// Prints a line for each thing, and below each wrong one the way out.
pub(super) fn check(of: &CheckOf) -> Result<Answer, Failure> {
    let site = Site::read().map_err(|error| Failure::Usage(error.to_string()))?;
    let name = of.node.clone().unwrap_or_else(host);
    let mut findings = check::cluster(Slurm, &site, &conf_folder())
        .map_err(|error| Failure::Machine(error.to_string()))?;
    findings.extend(check::node(Slurm, &name, rendered(&name, &site)));
    let wrong = findings.iter().filter(|finding| finding.way_out.is_some()).count();
    screen::print(&findings.iter().map(text).collect::<String>())?;
    match wrong {
        0 => screen::print("all is in place\n"),
        _ => {
            screen::note(&format!("{wrong} of {} are wrong", findings.len()));
            Ok(Answer::No)
        }
    }
}

fn text(finding: &Finding) -> String {
    match &finding.way_out {
        None => format!("ok     {}\n", finding.what),
        Some(way_out) => format!("wrong  {}\n       {way_out}\n", finding.what),
    }
}

/// What `Gres=` of this machine would be.
fn rendered(name: &str, site: &Site) -> Result<String, String> {
    let driver = Driver::open().map_err(|error| error.to_string())?;
    let inventory = driver.inventory().map_err(|error| error.to_string())?;
    let (told, devices) = (site.capabilities_of(name), site.devices_of(name));
    let conf = conf::render(name, &inventory, site, |gpu, instance, inside| {
        conf::capability_files(&told, &devices, (gpu, instance, inside))
    });
    conf.map(|conf| conf.node_gres)
}
