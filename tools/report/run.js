// The parts of a report about one run. `page` is a value of sim/report/page.c.
"use strict";

// ---- the answer in one line ----

function interval(run) {
  const i = run.step_time_interval_ps;
  return i && i.low !== null && i.covered ? `90 % within ${ps(i.low)} to ${ps(i.high)}` : "no measured error is known for these costs";
}

function binds(run) {
  const c = run.critical_path.causes[0];
  if (!run.fits) return "memory binds";
  if (!c) return "";
  return `${c.kind}${c.what ? " (" + c.what + ")" : ""} binds: ${percent(c.total_ps / run.step_time_ps)} of the critical path`;
}

function answer(run) {
  const fits = run.fits === false ? h("strong", {class: "bad"}, `does not fit, ${run.fullest_device} lacks ${bytes(run.missing_bytes)} of ${bytes(run.peak_memory_bytes)}`)
    : h("strong", {class: "good"}, run.memory_capacity_bytes ? `fits, ${bytes(run.peak_memory_bytes)} of ${bytes(run.memory_capacity_bytes)}` : `needs ${bytes(run.peak_memory_bytes)}`);
  return [h("strong", {}, h("data", {value: run.step_time_ps, id: "step"}, ps(run.step_time_ps))), " a step, ", run.monte_carlo ? "without jitter, " : "",
    run.mfu ? h("strong", {}, "MFU " + percent(run.mfu)) : "MFU unknown", "; ", fits, "; ", binds(run), "; ", interval(run), "."];
}

// "4 × 24" for 24 numbers that are 4; "none" for an empty list.
function runsOf(list) {
  const out = [];
  for (const v of list) if (out.length && out[out.length - 1][0] === v) out[out.length - 1][1]++; else out.push([v, 1]);
  return out.map(([v, n]) => (n > 1 ? `${v} × ${n}` : v)).join(" + ") || "none";
}

function numbersPart(run) {
  const rows = [];
  const add = (name, value, text) => value !== undefined && value !== null && rows.push([name, value, text(value)]);
  add("step_time_ps", run.step_time_ps, ps);
  add("throughput_per_s", run.throughput_per_s, x => digits(x) + " " + (run.throughput_unit || "") + "/s");
  add("devices", run.devices, plain);
  add("mfu", run.mfu, percent);
  add("bubble_fraction", run.bubble_fraction, percent);
  add("compute_ps", run.compute_ps, ps);
  add("exposed_comm_ps", run.exposed_comm_ps, ps);
  add("hidden_comm_ps", run.hidden_comm_ps, ps);
  add("idle_ps", run.idle_ps, ps);
  add("peak_memory_bytes", run.peak_memory_bytes, bytes);
  add("memory_capacity_bytes", run.memory_capacity_bytes, bytes);
  const strategy = run.strategy ? Object.entries(run.strategy).map(([k, v]) => `${k.replaceAll("_", " ")} ${Array.isArray(v) ? runsOf(v) : typeof v === "boolean" ? (v ? "on" : "off") : v}`).join(", ") : "The program runs as it is written, without passes";
  const columns = [["name", r => r[0]], ["value", r => r[2]], ["exact", r => r[1], plain]];
  const parts = [["compute", run.compute_ps, KIND_COLOUR.compute], ["exposed communication", run.exposed_comm_ps, KIND_COLOUR.communication],
    ["idle", run.idle_ps, KIND_COLOUR.idle]].filter(p => p[1]);
  const m = run.monte_carlo;
  part("numbers", "The step in numbers", h("p", {}, strategy + "."),
    m ? h("p", {}, `With jitter, ${m.runs} runs (${m.of.replaceAll("_", " ")}): ${ps(m.mean_ps)} in the mean, half of them up to ${ps(m.p50_ps)}, 95 % up to ${ps(m.p95_ps)}. All else on this page is without jitter.`) : null, h("p", {class: "soft"}, `The time of ${run.critical_device}, which ends last:`), stack(parts, ps), legend(parts.map(([name, time, colour]) => [`${name} ${ps(time)}`, colour])),
    tableBelow("numbers", "results, with the names of --json", columns, rows, true));
}

// ---- the timeline ----

function familyColours(trees) {
  const time = new Map();
  for (const tree of trees) for (const leaf of tree.leaves) if (leaf[0] >= 0) {
    const name = tree.names[tree.ops[leaf[0]][2]] + (tree.ops[leaf[0]][7] ? " (communication)" : "");
    time.set(name, (time.get(name) || 0) + leaf[1]);
  }
  const names = [...time.keys()].sort((a, b) => time.get(b) - time.get(a)), isComm = n => n.endsWith("(communication)");
  const map = new Map(); // vermilion, purple and yellow are communication
  for (const [kind, list] of [[false, [0, 2, 4, 1]], [true, [5, 3, 6]]])
    names.filter(n => isComm(n) === kind).forEach((n, i) => map.set(n, OKABE[list[i]] || GREY));
  return {names: names.filter(n => map.get(n) !== GREY), others: [...map.values()].includes(GREY), of: name => map.get(name) || GREY};
}

const familyLegend = f => [...f.names.map(n => [n, f.of(n)]), ...(f.others ? [["others", GREY]] : [])];

function leafColour(tree, families) {
  return (leaf, label) => {
    if (leaf[0] < 0) return ITEM_COLOUR[label[0]] || GREY;
    const op = tree.ops[leaf[0]];
    return families.of(tree.names[op[2]] + (op[7] ? " (communication)" : ""));
  };
}

function isItem(name) { return /^[FBWR]\d+\.\d+$/.test(name); }

// "to gpu[1]" for "gpu[0] to gpu[1]" on gpu[0].
function streamName(name, device) {
  const m = / to /.exec(name), from = m && name.slice(0, m.index), to = m && name.slice(m.index + 4);
  return !m ? name : from === device ? "to " + to : to === device ? "from " + from : name;
}

// Lanes of a class: the items of its schedule, then its streams, compute first. `label` names a lane
// alone, `short` below the first lane of its class.
function lanesOf(tree, cls, families, before = "") {
  const where = before + (cls.stage !== undefined ? `stage ${cls.stage}: ` : "") + cls.device + (cls.n > 1 ? ` ×${cls.n}` : "");
  const streams = cls.streams.filter(s => tree.nodes[s.root].length).sort((a, b) => (b.name === "compute") - (a.name === "compute"));
  const lanes = streams.map(s => ({label: `${where} ${s.name}`, short: streamName(s.name, cls.device), tree, root: s.root, colour: leafColour(tree, families), cls}));
  const compute = streams.find(s => s.name === "compute");
  if (!compute) return lanes;
  const [top] = tree.top(compute.root), n = tree.nodes[top];
  if (!n.some((child, k) => k % 3 === 1 && child >= 0)) return lanes;
  const items = isItem(tree.names[n[2]]), what = items ? "schedule" : "calls";
  return [{label: `${where} ${what}`, short: what, tree, root: compute.root, items: true, cls, itemColour: name => (isItem(name) ? ITEM_COLOUR[name[0]] : OKABE[4])}, ...lanes];
}

function describeSpan(span, lane) {
  const rows = [["path", span.path], ["start", `${ps(span.start)} (${span.start} ps)`], ["time", `${ps(span.ps)} (${span.ps} ps)`]];
  if (lane.cls) rows.push(["device", lane.cls.device + (lane.cls.n > 1 ? `, ${lane.cls.n} alike` : "")]);
  if (span.kind) rows.push(["kind", span.kind], ["waited for", span.wait], ["device", lane.deviceOf(span.cls)]);
  if (!span.isCall && span.group) rows.push(["communication", `${span.family}, ${span.by || "given"} over ${span.group}, ${bytes(span.bytes)} (${span.bytes} B)`]);
  else if (!span.isCall) {
    rows.push(["work", `${flop(span.flop)} (${span.flop} FLOP), ${bytes(span.bytes)} (${span.bytes} B)`], ["cost from", span.by]);
    if (span.bytes && span.flop) rows.push(["intensity", digits(span.flop / span.bytes) + " FLOP/B"]);
  }
  return [h("h3", {}, span.isCall ? span.path : `${span.op} ${span.path.split("/").pop()}`),
    h("dl", {}, ...rows.flatMap(([k, v]) => [h("dt", {}, k), h("dd", {}, v)])),
    span.derivation ? h("pre", {class: "derivation"}, span.derivation.trim()) : null];
}

function spansTable(id, timeline, what = "operations") {
  const rows = () => {
    const out = [];
    for (const lane of timeline.lanes) if (!lane.items)
      lane.tree.each(lane.root, timeline.from, timeline.to, s => { out.push({...s, lane: lane.label}); return out.length < 20000; });
    return out;
  };
  const box = tableBelow(id, `${what} in view, the first 20,000`, [["lane", r => r.lane], ["path", r => r.path], ["op", r => r.op],
    ["start_ps", r => r.start, plain], ["ps", r => r.ps, plain]], rows);
  let timer = 0;
  timeline.onshow = () => { clearTimeout(timer); timer = setTimeout(box.refresh, 300); };
  return box;
}

function timelinePart(page) {
  const tree = page.treeObject, run = page.run, families = familyColours([tree]);
  const path = {label: "critical path", tree, root: page.path, colour: pathColour(tree), deviceOf: c => deviceOf(page, c)};
  const lanes = [path, ...page.timeline.flatMap(c => lanesOf(tree, c, families))];
  const most = 60, shown = lanes.slice(0, most);
  const timeline = new Timeline("timeline", shown, run.step_time_ps, describeSpan);
  const items = shown.some(l => l.items && /schedule/.test(l.label)) ? [["F", ITEM_COLOUR.F], ["B", ITEM_COLOUR.B], ["W", ITEM_COLOUR.W]] : [];
  part("timeline", "Timeline", h("p", {}, `Every device class and stream${lanes.length > most ? `; the first ${most} of ${lanes.length} lanes` : ""}. Devices of a class do the same at the same times.`),
    items.length ? legend([["Schedule:"], ...items]) : null, legend([["Operations:"], ...familyLegend(families)]), timeline.element, spansTable("timeline", timeline));
  timeline.show(0, run.step_time_ps);
  window.drawn.timeline = {timeline, sum: name => {
    let total = 0;
    const lane = shown.find(l => l.label.includes(name) && !l.items);
    lane.tree.each(lane.root, 0, run.step_time_ps + 1, s => { total += s.ps; });
    return total;
  }};
}

// ---- the critical path ----

const deviceOf = (page, cls) => page.timeline.find(c => c.cls === cls)?.device ?? "another class";
function pathColour(tree) {
  return leaf => (leaf[0] < 0 ? GREY : KIND_COLOUR[tree.kinds[leaf[2]]] || GREY);
}

function pathPart(page) {
  const tree = page.treeObject, run = page.run, c = run.critical_path;
  const lane = {label: "critical path", tree, root: page.path, colour: pathColour(tree), deviceOf: k => deviceOf(page, k)};
  const ribbon = new Timeline("path", [lane], run.step_time_ps, describeSpan);
  const kinds = [["compute", c.compute_ps], ["communication", c.communication_ps], ["host", c.host_ps], ["idle", c.idle_ps], ["start", c.start_ps || 0], ["overhead", c.overhead_ps || 0]].filter(k => k[1]);
  part("path", "Critical path", h("p", {}, "Each segment waited for the one before, so a longer segment makes a longer step. The segments add up to the step exactly."),
    stack(kinds.map(([k, v]) => [k, v, KIND_COLOUR[k]]), ps), legend(kinds.map(([k]) => [k, KIND_COLOUR[k]])), ribbon.element,
    tableBelow("causes", "the critical path by cause", [["kind", r => r.kind], ["cause", r => r.what], ["total_ps", r => r.total_ps, plain], ["time", r => ps(r.total_ps)], ["share", r => percent(r.total_ps / run.step_time_ps)]], c.causes, true),
    tableBelow("path-ops", "the critical path by operation", [["kind", r => r.kind], ["op", r => r.op], ["path", r => r.path], ["count", r => r.count, plain], ["total_ps", r => r.total_ps, plain], ["time", r => ps(r.total_ps)]], c.ops),
    spansTable("segments", ribbon, "segments"));
  ribbon.show(0, run.step_time_ps);
  const sums = {};
  tree.each(page.path, 0, run.step_time_ps + 1, s => { sums[s.kind || "call"] = (sums[s.kind || "call"] || 0) + s.ps; });
  window.drawn.path = sums;
}

// ---- where numbers come from ----

function sourcesPart(page) {
  const run = page.run;
  const origins = Object.entries(run.cost_origin).concat(Object.entries(run.comm_origin).map(([k, v]) => ["transfers: " + k, v])).filter(o => o[1] > 0);
  part("sources", "Where the numbers come from",
    h("ul", {}, ...run.costs.map(c => h("li", {}, `${c.kind}: ${c.text || c.profile}`))),
    run.is_bound ? h("p", {class: "bad"}, "Some operations cost the data sheet's peaks, so times are lower bounds.") : null,
    h("p", {}, `How sure: ${interval(run)}. ${run.framework ? `Framework ${run.framework}${run.framework_is_default ? ", by default" : ""}.` : ""}`),
    tableBelow("origins", "origins as shares of compute and transfer time", [["origin", r => r[0]], ["share", r => r[1], percent]], origins, true),
    tableBelow("ops", "operations of the critical device", [["op", r => r.op], ["path", r => r.path], ["count", r => r.count, plain], ["total_ps", r => r.total_ps, plain], ["time", r => ps(r.total_ps)], ["flop", r => r.flop ?? 0, plain]], run.ops),
    tableBelow("collectives", "communication", [["op", r => r.op], ["path", r => r.path], ["algorithm", r => r.algorithm], ["over", r => r.over ?? ""], ["group", r => r.group_size, plain], ["count", r => r.count, plain],
      ["bytes", r => r.bytes, plain], ["total_ps", r => r.total_ps, plain], ["bus bandwidth", r => r.bus_bytes_per_s, rate]], run.collectives));
}

// ---- the page ----

function warningsOf(run) {
  const w = run.warnings || [];
  return w.length ? h("ul", {class: "note"}, ...w.map(x => h("li", {}, typeof x === "string" ? x : x.message || JSON.stringify(x)))) : null;
}

function droppedPart(pages) {
  const lines = pages.flatMap(p => p.dropped.map(d => (pages.length > 1 ? p.name + ": " : "") + d));
  if (lines.length) part("dropped", "Left out of this page", h("ul", {id: "dropped-list"}, ...lines.map(l => h("li", {}, l))));
}

function drawRun() {
  const page = DATA.runs[0], run = page.run;
  page.treeObject = new Tree(page.tree);
  document.title = `${run.title || page.name}: ${ps(run.step_time_ps)}`;
  document.getElementById("title").textContent = run.title ? `${run.title} (${page.name})` : page.name;
  document.getElementById("answer").append(...answer(run));
  const warnings = warningsOf(run);
  if (warnings) document.getElementById("main").append(warnings);
  numbersPart(run);
  timelinePart(page);
  memoryPart(page);
  pathPart(page);
  rooflinePart(page);
  trafficPart(page);
  sourcesPart(page);
  programPart(page);
  droppedPart([page]);
}
