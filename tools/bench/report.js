// node report.js PAGE CHROMIUM MODULES: opens a sweep's page (bench_report ROWS PAGE writes one) and
// prints the time until the first picture, until all lines are drawn, and both for a filter.
"use strict";
const path = require("node:path");
const {start} = require(path.join(__dirname, "../../tests/browser/chromium.js"));
const [file, chromium, modules] = process.argv.slice(2);

async function main() {
  const {page, stop} = await start(chromium, modules);
  await page.size(1240);
  await page.open(file);
  const first = await page.eval(() => new Promise(done => {
    const paint = performance.getEntriesByName("first-contentful-paint")[0]?.startTime;
    const all = () => (window.drawn.parallel.lines === window.drawn.parallel.of ? done({picture: window.drawn.first, paint, all: performance.now(), rows: DATA.rows}) : setTimeout(all, 20));
    all();
  }));
  console.log(`${first.rows} rows: first pictures after ${Math.round(first.picture)} ms, all lines after ${Math.round(first.all)} ms`);
  for (const [what, act] of [["a value", `sweep.rows.filters.set(sweep.rows.byName.get("strategy.tp"), {values: new Set(["2", "4"])})`],
    ["a range", `sweep.rows.filters.set(sweep.rows.byName.get("peak_memory"), {low: 1e10, high: 4e10})`], ["no filter", "sweep.rows.filters.clear()"]]) {
    const t = await page.eval(`new Promise(done => {
      const {sweep} = window.drawn, begin = performance.now();
      ${act};
      sweep.update();
      const ready = performance.now() - begin;
      requestAnimationFrame(() => requestAnimationFrame(() => {
        const picture = performance.now() - begin;
        const all = () => (window.drawn.parallel.lines === window.drawn.parallel.of ? done({ready, picture, all: performance.now() - begin, shown: sweep.rows.count}) : setTimeout(all, 10));
        all();
      }));
    })`);
    console.log(`${what}: ${t.shown} rows, computed in ${Math.round(t.ready)} ms, first pictures after ${Math.round(t.picture)} ms, all lines after ${Math.round(t.all)} ms`);
  }
  await stop();
}
main();
