-- Slurm's job_submit.lua for sites that have none: hotpot's rules and nothing else.
--
-- Goes beside slurm.conf, with hotpot.lua and hotpot_site.lua; slurm.conf says JobSubmitPlugins=lua. A site
-- with a job_submit.lua of its own calls hotpot in it, after its own rules:
--
--     local there, hotpot = pcall(dofile, "/etc/slurm/hotpot.lua")   -- without it jobs still pass
--     if there then return hotpot.submit(d, parts, uid) end          -- in slurm_job_submit
--     if there then return hotpot.modify(d, record, parts, uid) end  -- in slurm_job_modify
--
-- hotpot.lua is read again when it has changed. If it is missing or broken, slurmctld goes on taking jobs; only
-- those that ask for a share of a GPU are refused, because without the rules they would run without one.

local folder = debug.getinfo(1, "S").source:match("^@(.*/)") or "/etc/slurm/"
local path = folder .. "hotpot.lua"
local loaded, text_of_loaded
-- Slurm's plugin has the Lua that it was built with: 5.1 calls this loadstring, 5.2 and later load.
local load = loadstring or load

-- hotpot's functions, or nil and why not.
local function hotpot()
	local file, why = io.open(path, "r")
	if not file then return nil, why end
	local text = file:read("*a")
	file:close()
	if text ~= text_of_loaded then
		local chunk, fault = load(text, "@" .. path)
		if not chunk then return nil, fault end
		local ran, module = pcall(chunk)
		if not ran or type(module) ~= "table" then return nil, path .. ": " .. tostring(module) end
		loaded, text_of_loaded = module, text
	end
	return loaded
end

-- What hotpot answers; nil and why not if it cannot.
local function answer(question, ...)
	local ran, rules, why = pcall(hotpot)
	if not ran or not rules then return nil, ran and why or rules end
	local answered, code = pcall(rules[question], ...)
	if not answered then return nil, code end
	return code
end

local function asks_for_a_share(d)
	for index = 0, (tonumber(d.spank_job_env_size) or 0) - 1 do
		if (d.spank_job_env[index] or ""):find("_SLURM_SPANK_OPTION_hotpot_gpu_", 1, true) == 1 then
			return true
		end
	end
	return false
end

function slurm_job_submit(d, parts, uid)
	local code, why = answer("submit", d, parts, uid)
	if code then return code end
	slurm.log_error("hotpot: jobs pass without rules for GPUs: %s", tostring(why))
	if not asks_for_a_share(d) then return slurm.SUCCESS end
	slurm.log_user("hotpot: shares of GPUs cannot be had now; your administrator finds why in slurmctld's log; "
		.. "a whole GPU can be asked for by --gres=gpu:1")
	return slurm.ERROR
end

function slurm_job_modify(d, record, parts, uid)
	local code, why = answer("modify", d, record, parts, uid)
	if code then return code end
	slurm.log_error("hotpot: jobs are changed without rules for GPUs: %s", tostring(why))
	return slurm.SUCCESS
end

return slurm.SUCCESS
