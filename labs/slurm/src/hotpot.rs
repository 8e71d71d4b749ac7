//! hotpot on a cluster, as `deploy/slurm` has it: the plugin, the rules for submissions, Prolog and Epilog.

use std::fs;
use std::path::Path;

use lab_base::{LabError, at};

use crate::cluster::Cluster;
use crate::options::Options;

/// MiB of a shard, and how many of them an A100 with 80 GB has.
const SHARD_MIB: u32 = 256;
const SHARDS: u32 = 317;
/// What of `deploy/slurm` lies beside slurm.conf.
const RULES: [&str; 2] = ["job_submit.lua", "hotpot.lua"];

impl Options {
    /// The same cluster with hotpot on it. [`Cluster::tell_hotpot`] must follow once it is up.
    ///
    /// * `folder` — where the cluster will be.
    /// * `built` — the folder of `hotpot` and its libraries as they were built.
    /// * `deploy` — the tree's `deploy/slurm`.
    ///
    /// # Errors
    /// A file is not there.
    pub fn with_hotpot(
        mut self,
        folder: &Path,
        built: &Path,
        deploy: &Path,
    ) -> Result<Self, LabError> {
        let (folder, built) = (folder.display(), built.display());
        self.shards = SHARDS;
        for name in RULES {
            let path = deploy.join(name);
            let text = fs::read_to_string(&path).map_err(at(&path))?;
            self.files.push((name.into(), text));
        }
        let jobs = format!("{folder}/machines/%n/jobs");
        let plugin = format!(
            "optional {built}/libhotpot_spank.so jobs={jobs} hotpot={built}/hotpot \
             prolog={folder}/etc/hotpot-prolog\n"
        );
        self.files.push(("plugstack.conf".into(), plugin));
        self.files.push(("hotpot.conf".into(), format!("ShardMiB={SHARD_MIB}\nJobs={jobs}\n")));
        for verb in ["prolog", "epilog", "tidy"] {
            let text = format!(
                "#!/bin/sh\n. {folder}/machines/$SLURMD_NODENAME/env\n\
                 exec {built}/hotpot slurm {verb} >>{folder}/log/hotpot.$SLURMD_NODENAME.log 2>&1\n"
            );
            self.files.push((format!("hotpot-{verb}"), text));
        }
        self.slurm_conf.push_str(&format!(
            "JobSubmitPlugins=lua\nProlog={folder}/etc/hotpot-prolog\n\
             Epilog={folder}/etc/hotpot-epilog\n"
        ));
        Ok(self)
    }
}

impl Cluster {
    /// Tells the rules for submissions what the nodes have.
    ///
    /// * `built` — the folder of `hotpot`.
    ///
    /// # Errors
    /// `hotpot slurm facts` fails.
    pub fn tell_hotpot(&self, built: &Path) -> Result<(), LabError> {
        let program = built.join("hotpot");
        let facts = self.run(&[&program.display().to_string(), "slurm", "facts"])?;
        let path = self.etc().join("hotpot_site.lua");
        fs::write(&path, facts).map_err(at(&path))
    }
}
