// The report of a search: how each operation is split and what it costs; or which devices compute what.
"use strict";

const timesOf = (x, least) => (x === least ? "" : `, ${digits(x / least)} ×`);

// ---- splits, by pase or tap ----

function splitCosts(s, text) {
  const all = [["found", s.cost], ...Object.entries(s.rivals)];
  part("costs", "Against what one would do without a search", h("p", {}, s.cost_model === "pase" ? "PaSE's own formulas, in FLOPs." : "The simulator's prices of operations and of tensors, one after the other."),
    bars("cost", "strategy", all.map(([name, cost], i) => [name, cost, text(cost) + timesOf(cost, s.cost), OKABE[i ? 1 : 0]])));
  if (s.meshes) part("meshes", "Meshes", bars("cost", "mesh", s.meshes.map(m => [`dp ${m.dp} × tp ${m.tp}${m.fits ? "" : ", does not fit"}`, m.cost, text(m.cost), m.fits ? OKABE[m.best ? 0 : 4] : GREY])));
  if (s.simulated) part("simulated", "Simulated steps", tableOf("whole steps with each strategy", [["strategy", r => r.strategy], ["step_time_ps", r => r.step_time_ps, plain], ["step time", r => r.step_time_ps, ps],
    ["peak memory", r => r.peak_memory_bytes, bytes], ["fits", r => (r.refused ? "" : String(r.fits))], ["refused", r => r.refused ?? ""]], s.simulated));
}

const MOST_DRAWN = 25;
function operationsPart(s, text) {
  const split = r => Object.entries(r.split).map(([axis, n]) => `${axis} ${n}`).join(" × ") || "whole", whole = r => (r.cost ?? 0) + r.moved;
  const dearest = s.strategy.slice().sort((a, b) => whole(b) - whole(a)).slice(0, MOST_DRAWN);
  const title = s.strategy.length > MOST_DRAWN ? `cost, the ${MOST_DRAWN} dearest` : "cost, dearest first";
  part("operations", "Operations", h("p", {}, "A split names the axes of an operation and into how many parts. Cost: of all turns of the operation, with the tensors that it reads from others split differently."),
    bars(title, "operation", dearest.map(r => [`${r.path}: ${split(r)}`, whole(r), text(whole(r)), OKABE[0]])),
    tableBelow("operations", "every operation in the order of the program", [["operation", r => r.path], ["op", r => r.op], ["turns", r => r.times ?? 1, plain], ["split", split],
      [`cost, ${s.unit}`, r => r.cost, plain], ["of moved tensors", r => r.moved, plain]], s.strategy, true));
}

function drawSplits(s) {
  const text = s.unit === "us" ? x => ps(1e6 * x) : flop, memory = s.memory_capacity_bytes;
  const over = Object.entries(s.rivals).map(([name, cost]) => `${name}: ${digits(cost / s.cost)} times as much`).join("; ");
  document.getElementById("answer").append("The least cost is ", h("strong", {}, text(s.cost)), ` over ${s.devices} devices, ${text(s.node_cost)} of operations and ${text(s.edge_cost)} of tensors; ${over}.`,
    memory ? ` ${bytes(s.memory_bytes)} of ${bytes(memory)} a device${s.fits ? "" : ": nothing found that fits"}.` : "", s.bound < s.cost ? ` No strategy costs less than ${text(s.bound)}.` : "");
  splitCosts(s, text);
  operationsPart(s, text);
}

// ---- deployments, by tag ----

// "node0 x 4, old x 2" as a Map.
const machinesOf = r => new Map(r.devices.split(", ").map(d => d.split(" x ")).map(([name, n]) => [name, Number(n)]));

function deploymentPart(rows) {
  const all = rows.map(machinesOf), names = [...new Set(all.flatMap(m => [...m.keys()]))].sort();
  const name = r => (r.operations.length > 1 ? `${r.operations[0]} … ${r.operations[r.operations.length - 1]} (${r.operations.length})` : r.operations[0]);
  const cell = n => h("td", {class: "n", style: n ? `background:${OKABE[4]};color:${inkOn(OKABE[4])}` : undefined}, n ? String(n) : "");
  part("deployment", "Which devices compute what", h("p", {}, "Devices of each machine that compute the operations of a row, in the order of the program; the way says how replicas agree on gradients."),
    h("div", {class: "scroll", tabindex: 0, role: "group", "aria-label": "Operations by machine"}, h("table", {}, h("caption", {}, "Devices by machine"),
      h("thead", {}, h("tr", {}, h("th", {scope: "col"}, "operations"), ...names.map(n => h("th", {scope: "col", class: "n"}, n)), h("th", {scope: "col"}, "way"))),
      h("tbody", {}, ...rows.map((r, i) => h("tr", {}, h("th", {scope: "row"}, name(r)), ...names.map(n => cell(all[i].get(n))), h("td", {}, r.way)))))),
    tableBelow("deployment", "every operation with its devices", [["operation", r => r.operation], ["devices", r => r.devices], ["way", r => r.way]], rows.flatMap(r => r.operations.map(operation => ({...r, operation})))));
}

function drawDeployment(s) {
  const names = {data_parallel: "all devices with all_reduce", shares: "all devices, shares by time", best_subset: "the best set of machines alone"};
  const all = [...Object.entries(names).map(([key, name]) => [name, s[key]]), ["found", s.found]], found = s.found.step_time_ps;
  document.getElementById("answer").append(...(found ? [h("strong", {}, ps(found)), ` a step${s.best_baseline ? `, ${digits(s.times_as_fast)} times as fast as ${names[s.best_baseline]}` : ""}${s.found.fits ? "" : "; it does not fit"}.`] : ["No deployment was found that runs."]));
  part("times", "Simulated steps", h("p", {}, "Grey: the step does not fit in memory."),
    bars("step time", "deployment", all.filter(([, r]) => r.step_time_ps).map(([name, r]) => [name, r.step_time_ps, ps(r.step_time_ps), r.fits ? OKABE[name === "found" ? 0 : 1] : GREY])),
    tableBelow("times", "the deployments", [["deployment", r => r[0]], ["step_time_ps", r => r[1].step_time_ps, plain], ["peak_memory_bytes", r => r[1].peak_memory_bytes, plain], ["fits", r => String(r[1].fits ?? "none runs")]], all, true));
  deploymentPart(s.deployment);
  part("search", "How it was found", h("p", {}, `${s.playouts} playouts over ${s.groups} groups of ${s.operations} operations and ${s.actions} actions, ${s.simulations} deployments simulated. The text of the found deployment${s.leaves_checked ? `, and of ${s.leaves_checked} others,` : ""} takes the same.`));
}

function drawSearch() {
  const s = DATA.search;
  document.title = `Search: ${DATA.file}`;
  document.getElementById("title").textContent = `${DATA.file}, searched by ${s.method}`;
  (s.method === "tag" ? drawDeployment : drawSplits)(s);
}
