// The tree of spans (sim/report/page_tree.c): equal bodies are stored once, and a span's start is the
// sum of the gaps and durations on the way down to it.
"use strict";

class Tree {
  constructor(t) {
    Object.assign(this, t);
    this.dur = new Float64Array(this.nodes.length);
    this.cache = new Array(this.nodes.length);
    for (let i = 0; i < this.nodes.length; i++) { // children come before their parents
      const n = this.nodes[i];
      let at = 0;
      for (let k = 0; k < n.length; k += 3) at += n[k] + this.length(n[k + 1]);
      this.dur[i] = at;
    }
  }

  length(child) { return child >= 0 ? this.dur[child] : this.leaves[-1 - child][1]; }

  // Starts of a node's children, relative to the node.
  starts(node) {
    if (this.cache[node]) return this.cache[node];
    const n = this.nodes[node], out = new Float64Array(n.length / 3);
    let at = 0;
    for (let k = 0; k < n.length; k += 3) {
      at += n[k];
      out[k / 3] = at;
      at += this.length(n[k + 1]);
    }
    return this.cache[node] = out;
  }

  // The first child that ends after `time`, relative to the node.
  firstAfter(node, time) {
    const starts = this.starts(node);
    let low = 0, high = starts.length;
    while (low < high) {
      const mid = (low + high) >> 1;
      if (starts[mid] + this.length(this.nodes[node][3 * mid + 1]) > time) high = mid;
      else low = mid + 1;
    }
    return low;
  }

  // A leaf as an object.
  span(leaf, start, path) {
    const l = this.leaves[leaf], name = i => this.names[i], span = {start, ps: l[1], end: start + l[1], path: path.join("/")};
    if (l.length > 2) Object.assign(span, {kind: this.kinds[l[2]], wait: this.waits[l[3]], cls: l[4]});
    if (l[0] < 0) return {...span, op: "call", family: "call", derivation: "", isCall: true};
    const o = this.ops[l[0]];
    return {...span, op: name(o[0]), summed: name(o[1]), family: name(o[2]), derivation: name(o[3]), flop: o[4], bytes: o[5], by: name(o[6]), group: o[7]};
  }

  // The span at `time` below a root; null in a gap.
  at(root, time) {
    const path = [];
    for (let node = root, t0 = 0; ;) {
      const i = this.firstAfter(node, time - t0);
      if (i >= this.starts(node).length) return null;
      const start = t0 + this.starts(node)[i], child = this.nodes[node][3 * i + 1];
      if (start > time) return null;
      path.push(this.names[this.nodes[node][3 * i + 2]]);
      if (child < 0) return this.span(-1 - child, start, path);
      node = child;
      t0 = start;
    }
  }

  // Visits all spans that overlap [from, to] in order of time, until visit returns false.
  each(root, from, to, visit, t0 = 0, path = []) {
    const n = this.nodes[root], starts = this.starts(root);
    for (let i = this.firstAfter(root, from - t0); i < starts.length; i++) {
      const start = t0 + starts[i], child = n[3 * i + 1], name = this.names[n[3 * i + 2]];
      if (start >= to) break;
      const go = child < 0 ? visit(this.span(-1 - child, start, [...path, name])) !== false
        : this.each(child, from, to, visit, start, [...path, name]);
      if (!go) return false;
    }
    return true;
  }

  // The node whose children are the items of a step: below nodes of one child.
  top(root) {
    let node = root, t0 = 0;
    while (this.nodes[node].length === 3 && this.nodes[node][1] >= 0) {
      t0 += this.nodes[node][0];
      node = this.nodes[node][1];
    }
    return [node, t0];
  }
}
