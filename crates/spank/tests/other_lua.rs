//! The rules under a Lua that Debian's slurmctld has not: the site's own may be built with it.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::fs;
use std::path::Path;
use std::process::Command;

use support::SITE;

/// What slurmctld gives the rules, as far as they use it here, and what must come of it.
const ASKS: &str = r#"
slurm = { SUCCESS = 0, ERROR = -1, ESLURM_INVALID_GRES = 2072 }
for _, name in ipairs({ "log_error", "log_user", "log_info" }) do
	slurm[name] = function(...) said = string.format(...) end
end
dofile(arg[1] .. "/job_submit.lua")
local function submit(d)
	d.spank_job_env_size = d.spank_job_env_size or 0
	return slurm_job_submit(d, {}, 1000)
end
assert(submit({ name = "none" }) == 0)
local d = { name = "a\n   UserId=root(0)", environment = { HOTPOT_GPU_MEM = "2G", HOTPOT_GPU_COMPUTE = "20%" } }
assert(submit(d) == 0, said)
assert(d.gres == "shard:16" and d.admin_comment == "hotpot(gpu-mem=2048,gpu-compute=200)", d.admin_comment)
assert(d.name == "a    UserId=root(0)", d.name)
assert(submit({ environment = { HOTPOT_GPU_MEM = "100G" } }) == 2072 and said:find("the largest card"), said)
for _, mem in ipairs({ "100000000T", "1e9G" }) do
	assert(submit({ environment = { HOTPOT_GPU_MEM = mem, HOTPOT_GPU_SHARE = "exclusive" } }) == 2072, mem)
end
d = { admin_comment = "x hothotpot(a)pot(b)" }
assert(submit(d) == 0 and not d.admin_comment:find("hotpot("  , 1, true), d.admin_comment)
-- Rules that fail let jobs pass that ask for no share.
local file = io.open(arg[1] .. "/hotpot.lua", "w")
file:write("return { submit = function() error('no') end }")
file:close()
assert(submit({ tres_per_node = "gres:gpu:1" }) == 0 and said:find("without rules"), said)
print("fine")
"#;

#[test]
fn rules_run_under_newer_lua() {
    let options = slurm_lab::Options::default();
    if !slurm_lab::can_be_had("rules_run_under_newer_lua", &options) {
        return;
    }
    let folder = std::env::temp_dir().join(format!("hotpot-lua-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/slurm");
    for name in ["job_submit.lua", "hotpot.lua"] {
        fs::copy(deploy.join(name), folder.join(name)).unwrap();
    }
    fs::write(folder.join("hotpot_site.lua"), SITE).unwrap();
    fs::write(folder.join("asks.lua"), ASKS).unwrap();
    let done = Command::new("lua5.4").arg(folder.join("asks.lua")).arg(&folder).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    fs::remove_dir_all(&folder).unwrap();
}
