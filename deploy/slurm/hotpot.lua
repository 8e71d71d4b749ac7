-- hotpot's rules for jobs that want GPUs, run in slurmctld by job_submit.lua.
--
-- A share (--gpu-mem, --gpu-compute, --gpu-share; in a job's environment HOTPOT_GPU_MEM, HOTPOT_GPU_COMPUTE,
-- HOTPOT_GPU_SHARE) becomes what Slurm counts: shards, a MIG profile or a whole card. What can never run is refused, with
-- why and the nearest that can. What was asked stands in the job's AdminComment, which its owner cannot change:
-- the node's Prolog reads it there. hotpot_site.lua beside this file has what the site's cards are.

local hotpot = {}

local folder = debug.getinfo(1, "S").source:match("^@(.*/)") or "/etc/slurm/"
local site_path = folder .. "hotpot_site.lua"

-- ESLURM_INVALID_GRES of slurm_errno.h: "Invalid generic resource (gres) specification".
local REFUSED = slurm.ESLURM_INVALID_GRES or 2072
-- Where a job's wishes for GPUs stand, and by what option they came there.
local FIELDS = {
	{ name = "tres_per_node", option = "--gres=" }, { name = "tres_per_job", option = "--gpus=" },
	{ name = "tres_per_socket", option = "--gpus-per-socket=" }, { name = "tres_per_task", option = "--gpus-per-task=" },
}
local SHARES = { auto = true, exclusive = true, timeslice = true, mps = true, mig = true, capped = true }
local TOKEN, TOKEN_BEGINS = "hotpot%([^)]*%)", "hotpot("
-- Texts of a job that Slurm prints as they are. Line breaks in them would look like other lines about the job: they are taken
-- out, or refused where the job would become another one. (Lines of a burst buffer are meant.)
local TEXTS = { "name", "comment", "wckey", "network", "mail_user" }
local FIXED = { "std_out", "std_err", "std_in", "work_dir", "container", "features", "alloc_node" }
-- Letters, at most, of one wish, of a list of them, of a comment with a token, and of what is said to a user. slurmctld waits
-- for these rules, and matching takes a time that grows faster than the text.
local WISH_MAX, LIST_MAX, COMMENT_MAX, SAID_MAX = 64, 1024, 8192, 600
-- Slurm's plugin has the Lua that it was built with: 5.1 calls this loadstring, 5.2 and later load.
local load = loadstring or load

-- What may stand in a log or on a user's screen.
local function harmless(text)
	text = tostring(text):sub(1, SAID_MAX):gsub("%c", "?")
	return text
end

-- A refusal: raised as an error with a table, so that a fault of this file's is told from it.
local function refuse(text, ...)
	error({ refusal = harmless(string.format(text, ...)) }, 0)
end

-- Refuses a text that is too long to be looked at.
local function check_length(text, most, said)
	if #text > most then refuse("%s...: that is longer than %d letters", said:sub(1, WISH_MAX), most) end
end

local function ceil_to(amount, unit) return math.ceil(amount / unit - 1e-9) end
local function gib(mib) return string.format("%.1f GiB", math.floor(mib / 1024 * 10) / 10) end
-- MiB as a user writes them, rounded down.
local function size(mib)
	return mib >= 1024 and string.format("%dG", math.floor(mib / 1024)) or string.format("%dM", math.max(0, math.floor(mib)))
end

local function percent(milli) return string.format("%g%%", milli / 10) end
-- What the site has, read anew if the file has changed. -----------------------------------------------------------
local known_site, text_of_known

-- Refuses a table that the rules cannot count with.
local function checked(site)
	assert(type(site) == "table", "it does not return a table")
	local function numbers(of, what, ...)
		for _, name in ipairs({ ... }) do
			assert(type(of[name]) == "number" and of[name] >= 0, what .. " lacks the number " .. name)
		end
	end
	numbers(site, "the site", "shard_mib")
	assert(site.shard_mib > 0, "shard_mib is 0")
	site.cards, site.mig, site.types = site.cards or {}, site.mig or {}, {}
	local context_mib, known = 0, {}
	for _, card in ipairs(site.cards) do
		assert(type(card.type) == "string", "a card lacks its type")
		numbers(card, card.type, "memory_mib", "context_mib", "shards", "per_node", "nodes")
		-- A card whose memory nobody knows may have any.
		card.room_mib = card.memory_mib > 0 and math.max(card.memory_mib - card.context_mib, 0) or math.huge
		context_mib = math.max(context_mib, card.context_mib)
	end
	for _, slice in ipairs(site.mig) do
		assert(type(slice.type) == "string", "a MIG profile lacks its type")
		numbers(slice, slice.type, "memory_mib", "compute_milli", "count")
		slice.room_mib = math.max(slice.memory_mib - (slice.context_mib or context_mib), 0)
	end
	-- From small to large: the first that fits is the smallest.
	table.sort(site.cards, function(a, b)
		if a.room_mib ~= b.room_mib then return a.room_mib < b.room_mib end
		return a.per_node < b.per_node
	end)
	table.sort(site.mig, function(a, b)
		if a.room_mib ~= b.room_mib then return a.room_mib < b.room_mib end
		return a.compute_milli < b.compute_milli
	end)
	for _, card in ipairs(site.cards) do
		if card.type ~= "" and not known[card.type] then site.types[#site.types + 1] = card.type end
		known[card.type] = true
		if card.shards >= (site.shared and site.shared.shards or 1) then site.shared = card end
	end
	return site
end

-- The site, or nil and why not.
local function read_site()
	local file, why = io.open(site_path, "r")
	if not file then return nil, why end
	local text = file:read("*a")
	file:close()
	if text ~= text_of_known then
		local chunk, fault = load(text, "@" .. site_path)
		if not chunk then return nil, fault end
		local ran, site = pcall(function() return checked(chunk()) end)
		if not ran then return nil, site_path .. ": " .. tostring(site) end
		known_site, text_of_known = site, text
	end
	return known_site
end

-- What a job asks. ------------------------------------------------------------------------------------------------
local UNITS = { K = 1 / 1024, M = 1, G = 1024, T = 1024 * 1024 }
local COUNTS = { [""] = 1, k = 1024, m = 1024 * 1024 }
-- MiB that nothing has, as in the plugin.
local MEMORY_MAX = 2 ^ 30

-- The same rules as in the plugin (crates/spank/src/option.rs): not every job has passed it.
local function memory(text, said)
	local digits, letter, rest = text:match("^(%d+%.?%d*)(%a?)(%a*)$")
	local unit = UNITS[(letter == "" and "M" or letter or ""):upper()]
	local number = tonumber(digits)
	rest = (rest or ""):upper()
	if not number or not unit or not (rest == "" or rest == "B" or rest == "IB") then
		refuse("%s: not a size; write a number and M, G or T, such as 2G, 1.5G or 1500M", said)
	end
	if number <= 0 then refuse("%s: nothing can run in no memory", said) end
	if number * unit > MEMORY_MAX then refuse("%s: no GPU has so much", said) end
	return math.ceil(number * unit)
end

local function compute(text, said)
	local number = tonumber(text:match("^(%d+%.?%d*)%%?$"))
	if not number or number < 0.1 or number > 100 then
		refuse("%s: not a percentage of one GPU; write one above 0 and up to 100, such as 20%%", said)
	end
	return math.floor(number * 10 + 0.5)
end

local function share(text, said)
	if not SHARES[text] then
		refuse("%s: no such way to share a GPU; there are auto, exclusive, timeslice, mps, mig and capped", said)
	end
	return text
end

local ASKS = { { "mem", memory }, { "compute", compute }, { "share", share } }

-- A variable of the job, or nil. Jobs of srun and salloc have none here.
local function variable(d, name)
	local found, value = pcall(function() return d.environment[name] end)
	return found and value ~= "" and value or nil
end

-- { mem = MiB, compute = thousandths, share = mode } of what was asked and { said = as the user wrote it }; nil if nothing.
local function read_asks(d)
	local given = {}
	for index = 0, (tonumber(d.spank_job_env_size) or 0) - 1 do
		local name, value = (d.spank_job_env[index] or ""):match("^_SLURM_SPANK_OPTION_hotpot_gpu_(%a+)=(.*)$")
		if name then given[name] = { value, string.format("--gpu-%s=%s", name, value) } end
	end
	local asks = { said = {} }
	for _, ask in ipairs(ASKS) do
		local name, read = ask[1], ask[2]
		local upper = "HOTPOT_GPU_" .. name:upper()
		local value = variable(d, upper)
		local found = given[name] or value and { value, upper .. "=" .. value }
		if found then
			check_length(found[1], WISH_MAX, found[2])
			asks[name] = read(found[1], found[2])
			asks.said[name] = found[2]
			asks.text = (asks.text and asks.text .. " " or "") .. found[2]
		end
	end
	return asks.text and asks or nil
end

-- What else the job wants of GPUs: a list of { field, option, whole (as written), name, type, count, odd }.
local function read_requests(d)
	local found = {}
	for _, field in ipairs(FIELDS) do
		local list = d[field.name] or ""
		check_length(list, LIST_MAX, field.option .. list)
		for whole in list:gmatch("[^,]+") do
			local words = {}
			for word in whole:gsub("^gres[:/]", ""):gmatch("[^:=]+") do words[#words + 1] = word end
			local name = table.remove(words, 1)
			local number, suffix = (words[#words] or ""):match("^(%d+)([kKmM]?)$")
			if number then words[#words] = nil end
			if name == "gpu" or name == "shard" or name == "mps" then
				found[#found + 1] = { field = field, whole = whole, name = name, type = words[1] and table.concat(words, ":"),
					text = field.option .. whole:gsub("^gres[:/]", ""):gsub("^gpu:", field.option == "--gres=" and "gpu:" or ""),
					count = (tonumber(number) or 1) * (COUNTS[(suffix or ""):lower()] or 1) }
			end
		end
	end
	return found
end

-- Shares. ---------------------------------------------------------------------------------------------------------
-- Refuses memory that not even the largest of some cards has.
local function check_memory(asks, card)
	if (asks.mem or 0) <= card.room_mib then return end
	local whole = math.ceil(asks.mem / math.max(card.room_mib, 1))
	local more = whole <= card.per_node and string.format(", or %d whole cards with --gres=gpu:%d", whole, whole) or ""
	refuse("%s: the largest card here has %s for a job (%s%d %s); ask --gpu-mem=%s%s", asks.said.mem, gib(card.room_mib),
		card.type == "" and "" or card.type .. ", ", card.nodes, card.nodes == 1 and "node" or "nodes", size(card.room_mib), more)
end

-- A whole card's gres. It is typed where Slurm could otherwise give a MIG slice or a card that is too small.
local function whole_card(site, asks)
	local card = site.cards[#site.cards]
	if not card then refuse("%s: no node here has whole cards; ask --gpu-share=mig", asks.text) end
	check_memory(asks, card)
	for _, each in ipairs(site.cards) do
		if (asks.mem or 0) <= each.room_mib then card = each break end
	end
	local any_will_do = card.type == "" or #site.mig == 0 and card == site.cards[1]
	return any_will_do and "gpu:1" or "gpu:" .. card.type .. ":1"
end

local function mig_slice(site, asks)
	for _, slice in ipairs(site.mig) do
		if (asks.mem or 0) <= slice.room_mib and (asks.compute or 0) <= slice.compute_milli then
			return "gpu:" .. slice.type .. ":1"
		end
	end
	local slice = site.mig[#site.mig]
	if not slice then
		refuse("%s: no node here has MIG slices; leave out --gpu-share=mig, or ask --gpu-share=capped", asks.text)
	end
	refuse("%s: no MIG slice here has that; the largest, %s, has %s for a job and %s of a card's compute; ask no more than "
		.. "--gpu-mem=%s --gpu-compute=%s, or --gpu-share=capped", asks.text, slice.type, gib(slice.room_mib),
		percent(slice.compute_milli), size(slice.room_mib), percent(slice.compute_milli))
end

-- Shards of one card: for the memory with what the process takes beside it, and for the part of the compute.
local function shards(site, asks, d)
	local card = site.shared
	if not card then
		refuse("%s: cards here are not shared; ask for whole ones: --gpu-share=exclusive or --gres=gpu:1", asks.text)
	end
	if not asks.mem and not asks.compute then
		refuse("%s: how much of a card? add --gpu-mem=2G, --gpu-compute=20%%, or both", asks.text)
	end
	if tonumber(d.shared) == 0 then
		refuse("%s: --exclusive wants whole nodes, a share is a part of a card, and Slurm starts such a job never; leave out "
			.. "--exclusive, or ask --gpu-share=exclusive", asks.text)
	end
	check_memory(asks, card)
	local of_memory = asks.mem and ceil_to(asks.mem + card.context_mib, site.shard_mib) or 0
	-- Rounded down, so that parts which come to a whole card fit on one; the cap is no more than what is booked.
	local of_compute = math.floor((asks.compute or 0) * card.shards / 1000 + 1e-9)
	-- A card's memory is not a whole number of shards: the last ones stand for the rest too.
	return string.format("shard:%d", math.min(math.max(of_memory, of_compute, 1), card.shards))
end

local function grant(d, site, asks, requests)
	if #requests > 0 then
		refuse("%s together with %s: a share is asked instead of whole cards, shards or slices; leave one of them out",
			asks.text, requests[1].text)
	end
	local gres
	if asks.share == "exclusive" then
		gres = whole_card(site, asks)
	elseif asks.share == "mig" then
		gres = mig_slice(site, asks)
	else
		gres = shards(site, asks, d)
	end
	-- What stands there beside GPUs stays; Slurm puts its release's prefix before what is given by this name.
	local others = (d.tres_per_node or ""):gsub("gres[:/]", "")
	d.gres = others == "" and gres or others .. "," .. gres
end

-- What stands in AdminComment for the Prolog.
local function token(asks)
	local parts = {}
	for _, ask in ipairs(ASKS) do
		local asked = asks[ask[1]]
		local text = type(asked) == "number" and string.format("%d", asked) or asked
		if asked then parts[#parts + 1] = string.format("gpu-%s=%s", ask[1], text) end
	end
	return "hotpot(" .. table.concat(parts, ",") .. ")"
end

-- Plain requests. -------------------------------------------------------------------------------------------------
-- How many letters must change to make one word of the other.
local function distance(a, b)
	local row = {}
	for j = 0, #b do row[j] = j end
	for i = 1, #a do
		local corner = row[0]
		row[0] = i
		for j = 1, #b do
			local change = corner + (a:byte(i) == b:byte(j) and 0 or 1)
			corner = row[j]
			row[j] = math.min(change, row[j] + 1, row[j - 1] + 1)
		end
	end
	return row[#b]
end

local function check_type(site, request)
	if request.type:find("shared", 1, true) then
		refuse("%s: Slurm has no shared GPUs by that name; ask a share: --gpu-mem=2G or --gpu-compute=20%%, or plainly --gres=shard:N "
			.. "(%d MiB each)", request.text, site.shard_mib)
	end
	local names, nearest, least = {}, nil, math.huge
	for _, name in ipairs(site.types) do names[#names + 1] = name end
	for _, slice in ipairs(site.mig) do names[#names + 1] = slice.type end
	for _, name in ipairs(names) do
		if name == request.type then return end
		local far = distance(name:lower(), request.type:lower())
		if far < least then nearest, least = name, far end
	end
	if not nearest then refuse("%s: GPUs have no types here; ask --gres=gpu:%d", request.text, request.count) end
	refuse("%s: no node here has GPUs of type %s; the nearest is gpu:%s (here are %s)", request.text, request.type, nearest,
		table.concat(names, ", "))
end

-- Gives an untyped request the type of whole cards, so that it never gets a slice.
local function add_type(d, site, request)
	if #site.types > 1 then
		refuse("%s: here this could be a slice of a card; say which card: gpu:%s", request.text, table.concat(site.types, ", gpu:"))
	elseif #site.types == 0 then
		return
	end
	local typed = request.whole:gsub("gpu", "gpu:" .. site.types[1], 1)
	local elements = {}
	for each in d[request.field.name]:gmatch("[^,]+") do
		elements[#elements + 1] = each == request.whole and typed or each
	end
	d[request.field.name] = table.concat(elements, ",")
end

local function check_shards(site, request, exclusive)
	if request.type then
		refuse("%s: shards have no type that works, the job would start and fail; ask --gres=shard:%d", request.text, request.count)
	end
	local most = site.shared and site.shared.shards or math.huge
	if request.count > most then
		refuse("%s: shards are of one card, and the largest here has %d (%d MiB each); ask --gres=shard:%d, or whole cards with "
			.. "--gres=gpu:%d", request.text, most, site.shard_mib, most, math.ceil(request.count / most))
	end
	if exclusive then
		refuse("%s: together with --exclusive this waits for ever; leave out one of them, or ask --gres=gpu:1", request.text)
	end
end

local function check_plain(d, site, requests)
	for _, request in ipairs(requests) do
		if request.name == "gpu" then
			if request.type then check_type(site, request) elseif #site.mig > 0 then add_type(d, site, request) end
		elseif request.name == "shard" then
			check_shards(site, request, tonumber(d.shared) == 0)
		elseif request.count > 100 then
			refuse("%s: mps counts hundredths of one card; ask up to --gres=mps:100, or whole cards with --gres=gpu:%d", request.text,
				math.ceil(request.count / 100))
		end
	end
end

-- Slurm's two questions. ------------------------------------------------------------------------------------------
-- Runs rules; what they refuse, and their own faults, become codes.
local function judged(act)
	local ran, fault = pcall(act)
	if ran then return slurm.SUCCESS end
	if type(fault) == "table" and fault.refusal then return REFUSED, fault.refusal end
	slurm.log_error("hotpot: a fault in the rules: %s", harmless(fault))
	return nil
end

-- Takes control characters out of a job's texts, or refuses them.
local function clean(d)
	for _, name in ipairs(FIXED) do
		local text = d[name]
		if type(text) == "string" and text:find("%c") then
			refuse("%s: a line break or another control character stands in it: %s", name, text)
		end
	end
	for _, name in ipairs(TEXTS) do
		local text = d[name]
		if type(text) == "string" and text:find("%c") then d[name] = text:gsub("%c", " ") end
	end
end

-- A comment without our tokens: what came with the job is not ours. Taking one out must not make another.
local function without_token(comment)
	if not comment:find(TOKEN_BEGINS, 1, true) then return comment end
	check_length(comment, COMMENT_MAX, comment)
	local count
	repeat
		comment, count = comment:gsub("%s*" .. TOKEN, "")
	until count == 0
	return comment
end

-- For slurm_job_submit.
function hotpot.submit(d, parts, uid)
	local asks
	local code, why = judged(function()
		clean(d)
		local comment = without_token(d.admin_comment or "")
		if comment ~= (d.admin_comment or "") then d.admin_comment = comment end
		asks = read_asks(d)
		local requests = read_requests(d)
		if not asks and #requests == 0 then return end
		local site, missing = read_site()
		if not site then
			slurm.log_error("hotpot: %s; 'hotpot slurm facts' writes that file", missing)
			if not asks then return end
			refuse("%s: shares of GPUs are not set up here; your administrator does that with 'hotpot slurm facts' (slurmctld's log says "
				.. "what is missing)", asks.text)
		end
		if not asks then return check_plain(d, site, requests) end
		grant(d, site, asks, requests)
		d.admin_comment = (comment == "" and "" or comment .. " ") .. token(asks)
	end)
	if code == slurm.SUCCESS then return code end
	if not code and not asks then return slurm.SUCCESS end
	why = why or "shares of GPUs cannot be had now; slurmctld's log says why"
	slurm.log_user("hotpot: %s", why)
	-- Who comes by REST is told the code alone.
	slurm.log_info("hotpot: refused user %d: %s", uid, why)
	return code or slurm.ERROR
end

-- For slurm_job_modify: a job changes its GPUs by the rules for new ones; one with a share keeps it. Slurm passes no text from
-- here to the user, only the code.
function hotpot.modify(d, record, parts, uid)
	local code, why = judged(function()
		clean(d)
		if uid == 0 then return end
		local requests = read_requests(d)
		if #requests == 0 then return end
		if (record.admin_comment or ""):find(TOKEN_BEGINS, 1, true) then
			refuse("job %s has a share of a GPU, which cannot be changed; cancel it and submit it anew", tostring(record.job_id))
		end
		local site = read_site()
		if site then check_plain(d, site, requests) end
	end)
	if why then slurm.log_info("hotpot: refused user %d: %s", uid, why) end
	return code or slurm.SUCCESS
end

return hotpot
