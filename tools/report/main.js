// Draws the report that the data ask for.
"use strict";

const DRAW = {run: drawRun, compare: drawCompare, sweep: drawSweep, plan: drawPlan, kinds: drawKinds, schedules: drawSchedules, search: drawSearch};
document.getElementById("foot").textContent = `distsim ${DATA.version}. One file, no network: it opens from disk.`;
DRAW[DATA.kind]();
requestAnimationFrame(() => requestAnimationFrame(() => { window.drawn.first = performance.now(); }));
