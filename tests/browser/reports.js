// Opens reports in Chromium and holds pictures, tables and --json to each other.
//     node reports.js DISTSIM CHROMIUM MODULES [SCREENSHOTS]
"use strict";
const assert = require("node:assert/strict");
const {execFileSync} = require("node:child_process");
const fs = require("node:fs"), os = require("node:os"), path = require("node:path");
const {start} = require("./chromium.js");

const [distsim, chromium, modules, shots] = process.argv.slice(2);
const only = process.env.DISTSIM_REPORTS; // of the parts below, those whose names have it
const folder = fs.mkdtempSync(path.join(os.tmpdir(), "distsim-reports-"));

// Four of them, all with DISTSIM_TEST_ALL=1.
const SOME = ["gpt2-dp4", "pipeline-2x4", "out-of-memory", "two-jobs"];
const ALL = ["distir-mlp", "gpt2-dp4", "gpt3-layer-tp8", "gpt3-175b-pp8", "mlp-forward", "out-of-memory", "pipeline-2x4", "mixed-box-dp",
  "two-jobs", "straggler", "offload", "lora"];
const RUNS = process.env.DISTSIM_TEST_ALL ? ALL : SOME;

// Writes a report and its JSON; a plan that does not fit ends with 1.
function report(name, args) {
  const html = path.join(folder, name + ".html"), json = path.join(folder, name + ".json");
  try {
    execFileSync(distsim, [...args, "-q", "--html", html, "--json=" + json], {stdio: ["ignore", "ignore", "pipe"]});
  } catch (e) {
    if (e.status !== 1 || !fs.existsSync(html)) throw e;
  }
  return {html, json: JSON.parse(fs.readFileSync(json, "utf8")), size: fs.statSync(html).size};
}

// The exact values of a table's column, as its CSV and its cells have them.
const tableOf = (page, id) => page.eval(id => {
  const details = document.getElementById("table-" + id);
  details.open = true;
  return new Promise(done => setTimeout(() => done([...details.querySelectorAll("tbody tr")].map(r => [...r.children].map(c => c.querySelector("data")?.value ?? c.textContent))), 30));
}, id);

async function clean(page, what) {
  assert.deepEqual(page.faults, [], what);
  assert.deepEqual(await page.axe(), [], what + ": axe");
}

// Every element that can have the focus gets it by Tab.
async function keyboardReachesAll(page, what) {
  await page.eval(() => {
    scrollTo(0, 0);
    document.activeElement.blur();
    window.reached = new Set();
    document.addEventListener("focusin", e => reached.add(e.target));
  });
  const wanted = await page.eval(() => [...document.querySelectorAll("a[href], button, select, input, summary, [tabindex='0']")].filter(e => e.checkVisibility()).length);
  await Promise.all(Array.from({length: wanted + 5}, () => page.key("Tab", "Tab", 9))); // in their order
  const missed = await page.eval(() => [...document.querySelectorAll("a[href], button, select, input, summary, [tabindex='0']")].filter(e => e.checkVisibility() && !reached.has(e)).map(e => e.outerHTML.slice(0, 100)));
  assert.deepEqual(missed, [], what + ": out of the keyboard's reach");
}

// ---- one run ----

async function numbersAgree(page, json, what) {
  assert.equal(await page.eval(() => Number(document.getElementById("step").value)), json.step_time_ps, what);
  const drawn = await page.eval(() => ({path: window.drawn.path, memory: window.drawn.memory}));
  const kinds = {compute: "compute_ps", communication: "communication_ps", host: "host_ps", idle: "idle_ps", start: "start_ps", overhead: "overhead_ps"};
  let sum = 0;
  for (const [kind, name] of Object.entries(kinds)) {
    assert.equal(drawn.path[kind] || 0, json.critical_path[name] || 0, `${what}: critical path, ${kind}`);
    sum += drawn.path[kind] || 0;
  }
  assert.equal(sum, json.step_time_ps, what + ": the ribbon is the step");
  const fullest = json.per_class.find(c => c.device === json.fullest_device);
  assert.equal(drawn.memory.peak, fullest.peak_memory_bytes, what + ": the curve's peak");
  const ops = await tableOf(page, "ops");
  assert.deepEqual(ops.map(r => [r[0], r[1], Number(r[2]), Number(r[3]), Number(r[5])]), json.ops.slice(0, 200).map(o => [o.op, o.path, o.count, o.total_ps, o.flop ?? 0]), what + ": operations");
  const causes = await tableOf(page, "causes");
  assert.deepEqual(causes.map(r => Number(r[2])), json.critical_path.causes.map(c => c.total_ps), what + ": causes");
  const numbers = await tableOf(page, "numbers");
  for (const [name, , exact] of numbers) assert.equal(Number(exact), json[name], `${what}: ${name}`);
  const peak = await tableOf(page, "peak");
  assert.equal(peak.reduce((s, r) => s + Number(r[1]), 0), fullest.peak_memory_bytes, what + ": categories at the peak");
}

// Spans of the lane of the critical device add up to its compute time, read off its single operations.
async function spansAgree(page, json, what) {
  const sums = await page.eval(() => {
    const page = DATA.runs[0], cls = page.timeline[0], out = {compute: 0, leaves: 0, whole: cls.whole};
    for (const s of cls.streams) if (s.name === "compute") page.treeObject.each(s.root, 0, page.run.step_time_ps + 1, x => { out.compute += x.ps; out.leaves++; });
    return out;
  });
  assert.ok(sums.whole && sums.leaves > 0, what + ": single operations of the critical class");
  assert.equal(sums.compute, json.compute_ps, what + ": compute of the critical device");
}

async function timelineAnswers(page, what) {
  const range = () => page.eval(() => { const t = window.drawn.timeline.timeline; return [t.from, t.to]; });
  const whole = await range();
  await page.eval(() => document.querySelector("#timeline [aria-label='Zoom in']").click());
  const zoomed = await range();
  assert.ok(Math.abs((zoomed[1] - zoomed[0]) * 2 - (whole[1] - whole[0])) < 2, what + ": the button zooms");
  const at = await page.eval(() => { // the middle of a lane's span in view that can be hit
    const t = window.drawn.timeline.timeline;
    for (const [i, lane] of t.lanes.entries()) {
      if (lane.items || !lane.cls) continue;
      let best = null;
      lane.tree.each(lane.root, t.from, t.to, s => { if (s.start >= t.from && s.end <= t.to && (!best || s.ps > best.ps)) best = s; });
      if (best) return {x: t.left() + (best.start + best.ps / 2 - t.from) * t.scale(), y: RULER + i * (LANE + GAP) + 10, path: best.path, ps: best.ps};
    }
    return null;
  });
  const place = await page.place("#canvas-timeline", at?.y ?? 0);
  if (at) {
    await page.click(place.x + at.x, place.y + at.y);
    const text = await page.eval(() => document.getElementById("detail-timeline").textContent);
    assert.ok(text.includes(at.path) && text.includes(`${at.ps} ps`), `${what}: a click shows ${at.path}: ${text.slice(0, 200)}`);
    assert.ok(await page.eval(() => document.querySelector("#detail-timeline .derivation")?.textContent.length > 10), what + ": the derivation of the cost");
    await page.key("Enter", "Enter", 13);
    const near = await range();
    assert.ok(near[1] - near[0] <= Math.max(3 * at.ps, 1000) + 1, what + ": Enter zooms to the operation");
    await page.key("n", "KeyN", 78);
    await page.wheel(place.x + at.x, place.y + at.y, -100);
    await page.frames();
  }
  await page.key("Escape", "Escape", 27);
  if (at) assert.deepEqual(await range(), whole, what + ": Esc shows the whole step");
}

// A zoomed-in canvas paints what the tree has: the colour in the middle of each wide span.
async function pixelsAgree(page, what) {
  const wrong = await page.eval(async () => {
    const t = window.drawn.timeline.timeline, canvas = document.getElementById("canvas-timeline"), out = [];
    await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
    const c = canvas.getContext("2d"), scale = devicePixelRatio;
    const rgb = x => { c.fillStyle = x; const s = c.fillStyle; return [1, 3, 5].map(i => parseInt(s.slice(i, i + 2), 16)); };
    t.lanes.forEach((lane, i) => {
      if (lane.items || !lane.cls) return;
      let n = 0;
      lane.tree.each(lane.root, t.from, t.to, s => {
        const w = s.ps * t.scale();
        if (w < 4) return true;
        const x = t.left() + (s.start + s.ps / 2 - t.from) * t.scale(), y = RULER + i * (LANE + GAP) + LANE - 3;
        const got = [...c.getImageData(Math.floor((t.left() + (s.start - t.from) * t.scale() + 2) * scale), Math.floor(y * scale), 1, 1).data.slice(0, 3)];
        const leaf = lane.tree.leaves.find(l => l[0] >= 0 && lane.tree.names[lane.tree.ops[l[0]][0]] === s.op && lane.tree.names[lane.tree.ops[l[0]][1]] === s.summed);
        const want = rgb(lane.colour(leaf ?? [-1], s.path.split("/").pop()));
        if (x < canvas.clientWidth && got.some((v, k) => Math.abs(v - want[k]) > 3)) out.push([lane.label, s.path, got, want]);
        return ++n < 30;
      });
    });
    return out.slice(0, 3);
  });
  assert.deepEqual(wrong, [], what + ": pixels");
}

async function runReports(page) {
  for (const name of RUNS) {
    const r = report(name, ["run", `scenarios/${name}.dir`]);
    assert.ok(r.size < 3.3e6, `${name}: ${r.size} bytes`);
    await page.open(r.html);
    await clean(page, name);
    await numbersAgree(page, r.json, name);
    if (!r.json.jobs) await spansAgree(page, r.json, name);
    await pixelsAgree(page, name);
    await timelineAnswers(page, name);
    assert.deepEqual(page.faults, [], name);
    if (shots) await page.shot(path.join(shots, name + ".png"));
  }
}

// ---- comparisons ----

async function comparisons(page) {
  const two = report("two", ["run", "scenarios/gpt2-dp4.dir", "--compare-set", "strategy.zero=3"]);
  await page.open(two.html);
  let fall = await page.eval(() => window.drawn.waterfall);
  assert.equal(fall.reached, two.json.b.step_time_ps, "the waterfall ends at the other step");
  assert.equal(fall.start + fall.bars.reduce((s, x) => s + x, 0), fall.end, "its bars add up");
  assert.deepEqual(fall.bars.slice().sort((a, b) => a - b), two.json.time.map(t => t.difference_ps).filter(x => x).sort((a, b) => a - b), "its bars are those of --json");
  await clean(page, "comparison of two");
  if (shots) await page.shot(path.join(shots, "compare2.png"));
  const four = report("four", ["run", "scenarios/gpt2-dp4.dir", "--compare-set", "strategy.zero=0..=3"]);
  await page.open(four.html);
  const time = await tableOf(page, "time");
  assert.deepEqual(time.slice(0, -1).map(r => r.slice(1).map(Number)), four.json.time.map(t => t.ps), "time by cause");
  assert.deepEqual(time[time.length - 1].slice(1).map(Number), four.json.runs.map(r => r.step_time_ps), "the columns add up to the steps");
  const memory = await tableOf(page, "memory");
  assert.deepEqual(memory.map(r => r.slice(1).map(Number)), four.json.memory.map(t => t.bytes), "memory by category");
  await page.eval(() => { const s = document.querySelectorAll("#waterfall select")[1]; s.value = "1"; s.dispatchEvent(new Event("change")); });
  fall = await page.eval(() => window.drawn.waterfall);
  assert.equal(fall.reached, four.json.runs[1].step_time_ps, "another pair");
  await keyboardReachesAll(page, "comparison of four");
  await clean(page, "comparison of four");
  if (shots) await page.shot(path.join(shots, "compare4.png"));
}

// ---- a sweep ----

// Cells of a table by RFC 4180, whose cells hold no line ends here.
function csvRows(text) {
  const cells = line => [...line.matchAll(/("(?:[^"]|"")*"|[^,]*)(,|$)/g)].slice(0, -1).map(m => m[1].replace(/^"|"$/g, "").replace(/""/g, '"'));
  const [head, ...rows] = text.trim().split("\n").map(l => (l.endsWith(",") ? l + '""' : l)).map(cells);
  return rows.map(r => Object.fromEntries(head.map((name, i) => [name, r[i]])));
}

async function sweeps(page) {
  const csv = path.join(folder, "grid.csv"), html = path.join(folder, "grid.html");
  execFileSync(distsim, ["sweep", "scenarios/distir-grid.dir", "-q", "-o", csv, "--html", html]);
  const rows = csvRows(fs.readFileSync(csv, "utf8")), ok = rows.filter(r => r.status === "ok"), shown = () => page.eval(() => window.drawn.shown);
  await page.open(html);
  await clean(page, "sweep");
  assert.equal(await shown(), rows.length);
  for (const name of ["throughput", "peak_memory", "step_time_ps", "mfu", "tp", "hash"])
    assert.deepEqual(await page.eval(name => { const {rows} = window.drawn.sweep, c = rows.byName.get(name); return Array.from({length: rows.n}, (_, i) => String(c.at(i))); }, name),
      rows.map(r => (name === "hash" ? r[name] : String(Number(r[name])))), "sweep: column " + name);
  // The front by brute force: rows that no other beats in both.
  const beats = (a, b) => Number(a.peak_memory) <= Number(b.peak_memory) && Number(a.throughput) >= Number(b.throughput) && (a.peak_memory !== b.peak_memory || a.throughput !== b.throughput);
  const front = rows.map((r, i) => i).filter(i => rows[i].status === "ok" && !ok.some(o => beats(o, rows[i])));
  const drawn = await page.eval(() => window.drawn.front);
  const figures = list => list.map(i => rows[i].peak_memory + " " + rows[i].throughput).sort();
  assert.deepEqual(figures(drawn), [...new Set(figures(front))].sort(), "sweep: the Pareto front");
  for (const [tp, pp, value] of await page.eval(() => window.drawn.heat))
    assert.equal(value, Math.max(...ok.filter(r => Number(r.tp) === tp && Number(r.pp) === pp).map(r => Number(r.throughput))), `sweep: cell ${tp}, ${pp}`);
  // Filters, by checkbox, by a range, by the address.
  await page.eval(() => document.querySelector("input[data-column=tp][value='1']").click());
  assert.equal(await shown(), rows.filter(r => r.tp !== "1").length, "sweep: a value filters");
  await page.eval(() => { const e = document.querySelector("input[data-column=peak_memory]"); e.value = "2e9"; e.dispatchEvent(new Event("change")); });
  const both = rows.filter(r => r.tp !== "1" && Number(r.peak_memory) >= 2e9).length;
  assert.equal(await shown(), both, "sweep: a range filters");
  const hash = await page.eval(() => location.hash);
  await page.open(html, hash);
  assert.equal(await shown(), both, "sweep: the address keeps the filters");
  await page.eval(() => document.getElementById("clear").click());
  assert.equal(await shown(), rows.length, "sweep: all are back");
  const place = await page.place("#canvas-parallel", 190);
  const x = await page.eval(() => { const p = window.drawn.sweep.parallel; return [p.x(p.axes.findIndex(a => a.name === "mfu")), p.y(0.5), p.y(1)]; });
  await page.drag(place.x + x[0], place.y + x[1], place.y + x[2] - 3);
  const mfu = rows.map(r => Number(r.mfu)), middle = (Math.min(...mfu) + Math.max(...mfu)) / 2, near = (a, b) => Math.abs(a - b) <= 3;
  assert.ok(near(await shown(), mfu.filter(v => v >= middle).length), "sweep: a drag on an axis filters");
  await page.eval(() => { document.getElementById("clear").click(); document.querySelector("#rows tbody button").click(); });
  const best = ok.reduce((a, b) => (Number(b.throughput) > Number(a.throughput) ? b : a));
  const command = await page.eval(() => document.getElementById("replay").textContent);
  assert.equal(command, `distsim replay ${best.hash} --from ${csv}`, "sweep: the command of a row");
  assert.match(execFileSync(distsim, command.split(" ").slice(1), {encoding: "utf8"}), /step time/, "sweep: the command runs");
  await page.eval(() => document.querySelectorAll("details").forEach(d => { d.open = true; }));
  await clean(page, "sweep with a row");
  if (shots) await page.shot(path.join(shots, "sweep.png"));
  await page.open(html);
  await keyboardReachesAll(page, "sweep");
  return html;
}

// ---- a plan ----

async function plans(page) {
  const html = path.join(folder, "plan.html"), csv = path.join(folder, "plan.csv");
  const json = JSON.parse(execFileSync(distsim, ["plan", "tests/data/hf/llama-3-8b.json", "--gpu", "H100", "--nodes", "1", "--batch", "64", "--evals", "40", "--method", "random", "--json", "-o", csv, "--html", html], {stdio: ["ignore", "pipe", "ignore"]}));
  await page.open(html);
  await clean(page, "plan");
  assert.equal(await page.eval(() => Number(document.getElementById("step").value)), json.best[0].step_time_ps, "plan: the best step");
  assert.equal(await page.eval(() => document.getElementById("launch-text").textContent), json.launch.join("\n"), "plan: the launch command");
  const exact = await page.eval(() => [...document.querySelectorAll("#plans tbody tr")].map(r => [...r.querySelectorAll("data")].map(d => Number(d.value))));
  assert.deepEqual(exact.map(r => r[1]), json.best.map(b => b.step_time_ps), "plan: steps of the best plans");
  const rows = csvRows(fs.readFileSync(csv, "utf8")).filter(r => r.status === "ok"), knobs = await page.eval(() => window.drawn.knobs);
  assert.ok(knobs.length > 3);
  for (const [knob, value, figure] of knobs)
    assert.equal(figure, Math.min(...rows.filter(r => r[knob] === value).map(r => Number(r.step_time_ps))), `plan: ${knob} ${value}`);
  if (shots) await page.shot(path.join(shots, "plan.png"));
  await keyboardReachesAll(page, "plan");
}

async function schedules(page) {
  const html = path.join(folder, "schedules.html");
  const json = JSON.parse(execFileSync(distsim, ["schedule", "--run", "tests/cli/balance_run.dir", "--json", "--html", html], {stdio: ["ignore", "pipe", "ignore"]}));
  await page.open(html);
  await clean(page, "schedules");
  const rows = await page.eval(() => [...document.querySelectorAll("#table-schedules tbody tr")].map(r => [r.children[1].textContent, Number(r.children[2].textContent), Number(r.children[5].textContent)]));
  assert.deepEqual(rows, json.schedules.map(s => [s.status, s.step_time_ps ?? 0, s.peak_memory_bytes ?? 0]), "schedules: the table");
  if (shots) await page.shot(path.join(shots, "schedules.png"));
}

// Splits, and a deployment on machines of three kinds: all numbers of --json, and costs that add up.
const MIXED = `dir 1
param batch = 65536
import "topologies/mixed-box.dir"
import "models/mlp.dir" as m with layers = 3, width = 512, batch = batch
scenario { model = @m.mlp, on = @mixed, batch = batch, train { loss = mse, optimizer = sgd }, strategy { dp = 16 }, profile = ideal }
`;
async function searches(page) {
  const run = (name, ...args) => {
    const html = path.join(folder, name + ".html");
    return {html, json: JSON.parse(execFileSync(distsim, ["search", ...args, "--json", "--html", html], {stdio: ["ignore", "pipe", "ignore"]}))};
  };
  const split = run("pase", "scenarios/models/pase/alexnet.dir", "-p", "8", "--cutoff", "4");
  await page.open(split.html);
  await clean(page, "search");
  const rows = await tableOf(page, "operations"), sum = i => rows.reduce((s, r) => s + Number(r[i]), 0);
  assert.deepEqual(rows.map(r => [r[0], Number(r[4]), Number(r[5])]), split.json.strategy.map(o => [o.path, o.cost, o.moved]), "search: operations");
  assert.deepEqual([sum(4), sum(5)], [split.json.node_cost, split.json.edge_cost], "search: costs add up");
  assert.deepEqual(await page.eval(() => [...document.querySelectorAll("#costs data")].map(d => Number(d.value))), [split.json.cost, ...Object.values(split.json.rivals)], "search: rivals");
  if (shots) await page.shot(path.join(shots, "search.png"));
  await keyboardReachesAll(page, "search");
  const mesh = run("tap", "scenarios/tour.dir", "--method", "tap", "--meshes", "--cost-model", "distsim", "--simulate");
  await page.open(mesh.html);
  await clean(page, "search of meshes");
  assert.deepEqual(await page.eval(() => [...document.querySelectorAll("#meshes data")].map(d => Number(d.value))), mesh.json.meshes.map(m => m.cost), "search: meshes");
  assert.deepEqual(await page.eval(() => [...document.querySelectorAll("#simulated tbody tr")].map(r => Number(r.querySelector("data")?.value))), mesh.json.simulated.map(r => r.step_time_ps), "search: simulated steps");
  if (shots) await page.shot(path.join(shots, "search-meshes.png"));
  const file = path.join(folder, "mixed.dir");
  fs.writeFileSync(file, MIXED);
  const {html, json} = run("tag", file, "-I", "scenarios", "--method", "tag", "--playouts", "16", "--groups", "6", "--simulations", "1");
  await page.open(html);
  await clean(page, "deployment");
  assert.deepEqual((await tableOf(page, "times")).map(r => Number(r[1])), [json.data_parallel, json.shares, json.best_subset, json.found].map(r => r.step_time_ps ?? 0), "deployment: steps");
  assert.deepEqual(await tableOf(page, "deployment"), json.deployment.flatMap(r => r.operations.map(o => [o, r.devices, r.way])), "deployment: operations");
  const machines = await page.eval(() => { const [head, ...body] = [...document.querySelectorAll("#deployment table")][0].rows; return body.map(r => [...r.cells].slice(1, -1).map((c, i) => c.textContent && `${head.cells[i + 1].textContent} x ${c.textContent}`).filter(t => t).sort()); });
  assert.deepEqual(machines, json.deployment.map(r => r.devices.split(", ").sort()), "deployment: devices");
  if (shots) await page.shot(path.join(shots, "deployment.png"));
  await keyboardReachesAll(page, "deployment");
}

// A sweep of which no candidate is legal still opens, and says so.
async function emptySweep(page) {
  const csv = path.join(folder, "none.csv"), html = path.join(folder, "none.html");
  try {
    execFileSync(distsim, ["sweep", "scenarios/gpt2-dp4.dir", "-q", "--vary", "strategy.tp=3,5", "-o", csv, "--html", html], {stdio: "ignore"});
  } catch (e) {
    assert.equal(e.status, 1);
  }
  await page.open(html);
  assert.match(await page.eval(() => document.body.innerText), /2 rows/);
  await clean(page, "sweep of no legal candidate");
}

// ---- other screens ----

async function otherScreens(page, file, name) {
  await page.scheme("dark");
  await page.open(file);
  await clean(page, name + ", dark");
  if (shots) await page.shot(path.join(shots, name + "-dark.png"));
  await page.scheme("light");
  await page.size(360, 740);
  await page.open(file);
  assert.ok(await page.eval(() => document.documentElement.scrollWidth <= 360), name + ": nothing is wider than a narrow screen");
  await clean(page, name + ", narrow");
  if (shots) await page.shot(path.join(shots, name + "-narrow.png"));
  await page.size(1240);
}

// The program's differences lead from each text to the next.
async function programsAgree(page) {
  const wrong = await page.eval(() => {
    const {passes} = DATA.runs[0].programs, out = [];
    for (let i = 1; i < passes.length; i++) {
      const d = window.drawn.program.diff(passes[i - 1][1], passes[i][1]);
      const old = d.filter(x => x[0] !== "+").map(x => x[1]), now = d.filter(x => x[0] !== "-").map(x => x[1]);
      if (String(old) !== String(passes[i - 1][1]) || String(now) !== String(passes[i][1])) out.push(passes[i][0]);
    }
    return out;
  });
  assert.deepEqual(wrong, [], "differences of programs");
}

async function main() {
  const {page, stop} = await start(chromium, modules);
  const timed = async (what, run) => {
    if (only && !what.includes(only)) return;
    const begin = Date.now();
    await run();
    console.log(`${what}: ${((Date.now() - begin) / 1000).toFixed(1)} s`);
  };
  try {
    await page.size(1240);
    await page.scheme("light");
    await timed(`${RUNS.length} runs`, () => runReports(page));
    await timed("comparisons", () => comparisons(page));
    let sweep;
    await timed("sweep", async () => { sweep = await sweeps(page); });
    await timed("plan", async () => { await plans(page); await emptySweep(page); });
    await timed("schedules", () => schedules(page));
    await timed("searches", () => searches(page));
    await timed("keyboard, dark and narrow screens", async () => {
      const file = path.join(folder, "gpt2-dp4.html");
      if (only) report("gpt2-dp4", ["run", "scenarios/gpt2-dp4.dir"]);
      await page.open(file);
      await page.eval(() => document.querySelectorAll("details").forEach(d => { d.open = true; }));
      await clean(page, "run with all tables");
      await programsAgree(page);
      await keyboardReachesAll(page, "run");
      await otherScreens(page, file, "run");
      if (sweep) await otherScreens(page, sweep, "sweep");
    });
  } finally {
    await stop();
    fs.rmSync(folder, {recursive: true});
  }
}

main().then(() => console.log("all agree"), e => {
  console.error(e);
  process.exit(1);
});
