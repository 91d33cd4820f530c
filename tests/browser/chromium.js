// One Chromium without a window, and a page in it: what tests and the benchmark share.
"use strict";
const {spawn} = require("node:child_process");
const fs = require("node:fs"), os = require("node:os"), path = require("node:path");
const {createRequire} = require("node:module");

const FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync", "--remote-debugging-port=0", "--window-size=1240,900", "about:blank"];

// Starts Chromium; `modules` is the folder with node_modules.
async function start(chromium, modules) {
  const require_ = createRequire(path.resolve(modules, "package.json"));
  const profile = fs.mkdtempSync(path.join(os.tmpdir(), "distsim-chromium-"));
  const process_ = spawn(chromium, [`--user-data-dir=${profile}`, ...FLAGS], {stdio: ["ignore", "ignore", "pipe"]});
  let said = "";
  const port = await new Promise((resolve, reject) => {
    process_.stderr.on("data", d => {
      said += d;
      const m = /DevTools listening on ws:\/\/[^:]*:(\d+)/.exec(said);
      if (m) resolve(Number(m[1]));
    });
    process_.on("error", reject);
    process_.on("exit", () => reject(new Error("Chromium ended: " + said)));
  });
  const client = await require_("chrome-remote-interface")({port, local: true});
  const stop = async () => {
    await client.Browser.close().catch(() => {});
    await new Promise(resolve => (process_.exitCode === null ? process_.on("exit", resolve) : resolve()));
    fs.rmSync(profile, {recursive: true, force: true, maxRetries: 5, retryDelay: 100});
  };
  const axe = fs.readFileSync(path.join(path.dirname(require_.resolve("axe-core/package.json")), "axe.min.js"), "utf8");
  return {page: await pageOf(client, axe), stop};
}

async function pageOf(client, axe) {
  const {Page, Runtime, Network, Log, Input, Emulation} = client;
  const page = {client, faults: []};
  await Promise.all([Page.enable(), Runtime.enable(), Network.enable(), Log.enable()]);
  Runtime.exceptionThrown(e => page.faults.push("exception: " + (e.exceptionDetails.exception?.description || e.exceptionDetails.text)));
  Runtime.consoleAPICalled(e => ["error", "warning", "assert"].includes(e.type) && page.faults.push(`console ${e.type}: ` + e.args.map(a => a.value ?? a.description).join(" ")));
  Log.entryAdded(e => e.entry.level === "error" && page.faults.push("log: " + e.entry.text));
  Network.requestWillBeSent(e => /^(file|data|blob):/.test(e.request.url) || page.faults.push("request: " + e.request.url));

  page.eval = async (expression, ...args) => {
    const text = typeof expression === "function" ? `(${expression})(...${JSON.stringify(args)})` : expression;
    const r = await Runtime.evaluate({expression: text, awaitPromise: true, returnByValue: true});
    if (r.exceptionDetails) throw new Error(r.exceptionDetails.exception?.description || r.exceptionDetails.text);
    return r.result.value;
  };
  page.frames = () => page.eval(() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done()))));
  page.open = async (file, hash = "") => {
    page.faults.length = 0;
    const loaded = Page.loadEventFired();
    await Page.navigate({url: "about:blank"});
    await loaded;
    const again = Page.loadEventFired();
    await Page.navigate({url: "file://" + path.resolve(file) + hash});
    await again;
    await page.frames();
  };
  page.size = (width, height = 900) => Emulation.setDeviceMetricsOverride({width, height, deviceScaleFactor: 1, mobile: false});
  page.scheme = value => Emulation.setEmulatedMedia({features: [{name: "prefers-color-scheme", value}]});
  page.shot = async (file, full = true) => {
    const r = await Page.captureScreenshot({format: "png", captureBeyondViewport: full, ...(full ? {clip: {x: 0, y: 0, ...(await page.eval(() => ({width: innerWidth, height: Math.min(document.documentElement.scrollHeight, 12000)}))), scale: 1}} : {})});
    fs.writeFileSync(file, Buffer.from(r.data, "base64"));
  };
  page.key = async (key, code = key, keyCode = 0, modifiers = 0) => {
    const text = key.length === 1 ? key : key === "Enter" ? "\r" : undefined;
    await Input.dispatchKeyEvent({type: "keyDown", key, code, windowsVirtualKeyCode: keyCode, text, modifiers});
    await Input.dispatchKeyEvent({type: "keyUp", key, code, windowsVirtualKeyCode: keyCode, modifiers});
  };
  page.click = async (x, y) => {
    for (const type of ["mousePressed", "mouseReleased"]) await Input.dispatchMouseEvent({type, x, y, button: "left", clickCount: 1});
  };
  page.drag = async (x, y, to) => {
    const event = (type, y) => Input.dispatchMouseEvent({type, x, y, button: "left", buttons: 1, clickCount: 1});
    await event("mousePressed", y);
    await event("mouseMoved", (y + to) / 2);
    await event("mouseMoved", to);
    await event("mouseReleased", to);
  };
  page.wheel = (x, y, deltaY) => Input.dispatchMouseEvent({type: "mouseWheel", x, y, deltaX: 0, deltaY});
  // Where an element is in the window, after scrolling so that its line `y` is in the middle.
  page.place = (selector, y) => page.eval((s, y) => {
    const e = document.querySelector(s);
    scrollTo({top: scrollY + e.getBoundingClientRect().y + y - innerHeight / 2, behavior: "instant"});
    const r = e.getBoundingClientRect();
    return {x: r.x, y: r.y, width: r.width, height: r.height};
  }, selector, y);
  page.axe = async () => {
    await page.eval(axe + ";0");
    return page.eval(async () => (await axe.run(document, {resultTypes: ["violations"]})).violations.map(v => `${v.id}: ${v.nodes.slice(0, 3).map(n => n.target + " " + n.failureSummary.split("\n").slice(1, 2)).join("; ")}`));
  };
  return page;
}

module.exports = {start};
