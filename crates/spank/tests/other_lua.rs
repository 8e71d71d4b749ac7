//! The rules under Lua of several versions: the site's slurmctld may be built with any.
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
-- What a user writes takes no time to speak of, steers no terminal, and comes back short.
local function refused(d)
	local begun = os.clock()
	assert(submit(d) == 2072, said)
	assert(os.clock() - begun < 2 and #said < 800 and not said:find("%c"), said)
end
local digits = ("1"):rep(200000)
for _, text in ipairs({ digits .. "x.", ("9"):rep(65), "1\27[2J", ("\27"):rep(100000), digits .. "." .. digits .. "Gx" }) do
	for _, name in ipairs({ "MEM", "COMPUTE", "SHARE" }) do
		refused({ environment = { ["HOTPOT_GPU_" .. name] = text } })
	end
	refused({ spank_job_env_size = 1, spank_job_env = { [0] = "_SLURM_SPANK_OPTION_hotpot_gpu_mem=" .. text } })
end
for _, text in ipairs({ ("gpu,"):rep(100000), "gpu:" .. ("a"):rep(100000) .. ":1", "gpu:\27[2J:1" }) do
	for _, name in ipairs({ "tres_per_node", "tres_per_job", "tres_per_socket", "tres_per_task" }) do refused({ [name] = text }) end
end
for _, text in ipairs({ ("hotpot("):rep(100000), ("hot"):rep(100000) .. "hotpot(" .. ("pot()"):rep(100000) }) do
	refused({ admin_comment = text })
end
local comment = (" "):rep(1000000) .. "x"
d = { admin_comment = comment }
assert(submit(d) == 0 and d.admin_comment == comment)
for _, name in ipairs({ "std_out", "std_err", "std_in", "work_dir", "container", "features" }) do
	refused({ [name] = "/a\n   AdminComment=hotpot(gpu-share=mps)" })
	assert(submit({ [name] = "/a b" }) == 0)
end
assert(submit({ burst_buffer = '#BB a\n#BB b' }) == 0)
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
fn rules_run_under_other_lua() {
    let options = slurm_lab::Options::default();
    if !slurm_lab::can_be_had("rules_run_under_other_lua", &options) {
        return;
    }
    let folder = std::env::temp_dir().join(format!("hotpot-lua-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/slurm");
    fs::write(folder.join("hotpot_site.lua"), SITE).unwrap();
    fs::write(folder.join("asks.lua"), ASKS).unwrap();
    for (lua, must_be_there) in [("lua5.4", true), ("lua5.1", false)] {
        for name in ["job_submit.lua", "hotpot.lua"] {
            fs::copy(deploy.join(name), folder.join(name)).unwrap();
        }
        let done = Command::new(lua).arg(folder.join("asks.lua")).arg(&folder).output();
        match done {
            Ok(done) => {
                assert!(done.status.success(), "{lua}: {}", String::from_utf8_lossy(&done.stderr))
            }
            Err(error) => assert!(!must_be_there, "{lua}: {error}"),
        }
    }
    fs::remove_dir_all(&folder).unwrap();
}
