// The view of one memory: text with fading ink, heat map of heads, slider of time, bytes.
import {bytes, h, visible} from "./dom.js";

const kShownTokens = 8000, kMaxLines = 300;

export class MemoryPane {
  // `number`: "1. " of two panes. `detail`: the element that describes the token pointed at; panes share it.
  constructor(number, label, detail) {
    const title = number + label;
    this.number = number;
    this.memory = null;
    this.head = -1;      // flat; -1: the mean over all heads
    this.time = Infinity;
    this.first = 0;      // position of the first shown token
    this.spans = [];
    this.cursor = -1;
    this.other = null;   // another memory to compare with
    this.title = h("h2", {}, visible(title));
    this.summary = h("p", {class: "summary"});
    this.bytes = h("div", {class: "bytes"});
    this.layer = h("select", {"aria-label": "Layer", onchange: () => this.pickHead()});
    this.kvHead = h("select", {"aria-label": "Head", onchange: () => this.pickHead()});
    this.heat = h("div", {class: "heat", "aria-hidden": "true", onclick: (event) => this.pickCell(event)});  // the lists do the same
    this.slider = h("input", {type: "range", min: "1", max: "1", value: "1", "aria-label": "Time: tokens read", oninput: () => this.slide()});
    this.clock = h("output", {});
    this.play = h("button", {type: "button", onclick: () => this.replay()}, "Replay");
    this.ink = h("div", {"aria-hidden": "true"});
    this.lines = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    this.lines.setAttribute("aria-hidden", "true");
    this.text = h("div", {class: "text", tabindex: "0", role: "group", "aria-label": "Text of the memory; arrow keys move from token to token",
      onkeydown: (event) => this.key(event), onmouseover: (event) => this.hover(event.target), onclick: (event) => this.hover(event.target)}, this.ink, this.lines);
    this.detail = detail;
    this.only = h("span", {hidden: true}, "dashed: only here");
    this.element = h("section", {class: "pane", "aria-label": `Memory: ${visible(title)}`}, this.title, this.summary, this.bytes,
      this.heat, h("div", {class: "controls"}, "Ink: layer", this.layer, "head", this.kvHead,
        h("span", {class: "legend"}, "or click a cell: a column is a layer, a cell a head; the fuller, the more tokens it keeps")),
      h("div", {class: "controls"}, "Time", this.slider, this.clock, this.play),
      h("p", {class: "legend"}, h("span", {}, "faint: fewer heads"), h("span", {}, "struck through: forgotten"),
        h("span", {}, "underlined: sink"), h("span", {}, "lines above and below: pinned"), h("span", {}, "italic: merged"), this.only),
      this.text);
    new ResizeObserver(() => this.drawMerges()).observe(this.text);
  }

  show(memory) {
    this.memory = memory;
    this.time = Infinity;
    this.spans = [];
    this.ink.replaceChildren();
    this.heads = null;
    this.update();
  }

  get now() { return Math.min(this.time, this.memory.read); }

  // After an event; draws once per frame.
  update() {
    if (this.pending || !this.memory) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      if (this.memory.layout) this.draw();
    });
  }

  draw() {
    this.makeHeads();
    this.makeSpans();
    this.drawInk();
    this.drawHeat();
    this.drawBytes();
    this.drawMerges();
    this.slider.max = String(Math.max(1, this.memory.read));
    if (this.time === Infinity) this.slider.value = this.slider.max;
    this.clock.textContent = `${this.now} of ${this.memory.read} tokens`;
  }

  makeHeads() {
    if (this.heads === this.memory.layout) return;
    this.heads = this.memory.layout;
    const {heads, method, budget} = this.heads;
    this.title.textContent = `${this.number}${visible(method)}${budget > 0 ? `, budget ${budget.toLocaleString("en")}` : ""}`;
    this.layer.replaceChildren(h("option", {value: "-1"}, "all (mean)"), ...heads.map((_, l) => h("option", {value: String(l)}, String(l))));
    this.makeKvHeads();
    this.cells = [];
    this.heat.replaceChildren(...heads.map((count) => h("b", {}, Array.from({length: count}, () => {
      const cell = h("i", {});
      cell.dataset.head = this.cells.push(cell) - 1;
      return cell;
    }))));
    const head = this.head;
    this.head = -1;
    if (head >= 0 && head < this.memory.headCount) this.choose(head);
  }

  // What a request for events of this pane's head says; true: no head is chosen.
  get view() {
    if (this.head < 0 || !this.heads) return true;
    const [layer, head] = this.layerOf(this.head);
    return {layer, head};
  }

  makeKvHeads() {
    const layer = Number(this.layer.value);
    const count = layer < 0 ? 0 : this.heads.heads[layer];
    this.kvHead.replaceChildren(...Array.from({length: count}, (_, k) => h("option", {value: String(k)}, String(k))));
    this.kvHead.disabled = count === 0;
  }

  pickHead() {
    const layer = Number(this.layer.value);
    const before = this.kvHead.value;
    this.makeKvHeads();
    if ([...this.kvHead.options].some((option) => option.value === before)) this.kvHead.value = before;
    this.head = layer < 0 ? -1 : this.heads.heads.slice(0, layer).reduce((a, b) => a + b, 0) + Number(this.kvHead.value || 0);
    this.update();
  }

  pickCell(event) {
    const head = Number(event.target.dataset?.head ?? -1);
    if (head < 0) return;
    this.choose(head === this.head ? -1 : head);
  }

  choose(head) {
    this.head = head;
    const [layer, k] = this.layerOf(head);
    this.layer.value = String(layer);
    this.makeKvHeads();
    if (layer >= 0) this.kvHead.value = String(k);
    this.update();
  }

  layerOf(head) {
    for (let layer = 0, first = 0; layer < this.heads.heads.length; first += this.heads.heads[layer++])
      if (head >= first && head < first + this.heads.heads[layer]) return [layer, head - first];
    return [-1, 0];
  }

  makeSpans() {
    const {texts, read, layout} = this.memory;
    if (read - this.first > 2 * kShownTokens) {  // the newest are shown
      this.first = read - kShownTokens;
      this.spans = [];
      this.ink.replaceChildren();
    }
    if (this.first > read) this.first = 0;
    const more = document.createDocumentFragment();
    for (let p = this.first + this.spans.length; p < read; ++p) {
      const span = h("span", {}, visible(texts[p] ?? ""));
      span.dataset.p = p;
      if (p < layout.sinks) span.classList.add("sink");
      if (layout.pinned?.some(([first, end]) => p >= first && p < end)) span.classList.add("pinned");
      this.spans.push(span);
      more.append(span);
    }
    this.ink.append(more);
  }

  // The share of heads that keep a token, and whether it is merged there.
  drawInk() {
    const memory = this.memory, now = this.now, all = memory.headCount;
    const table = this.head < 0 ? -1 : memory.layout.tables[this.head];
    const [kept, merged] = memory.counts(this.time === Infinity ? Infinity : now);
    this.only.hidden = !this.other;
    const theirs = this.other?.layout ? this.other.counts(Infinity) : null;
    let whole = 0, some = 0, none = 0;
    for (let p = 0; p < now; ++p) {
      const count = kept[p] + merged[p];
      count >= all ? ++whole : count > 0 ? ++some : ++none;
    }
    for (let i = 0; i < this.spans.length; ++i) {
      const p = this.first + i, span = this.spans[i];
      let share = p < now ? (kept[p] + merged[p]) / all : 0, isMerged = p < now && merged[p] > kept[p];
      if (table >= 0 && p < now) {
        const state = memory.state(table, p, this.time === Infinity ? Infinity : now);
        share = state.kept || state.into !== undefined ? 1 : 0;
        isMerged = state.into !== undefined;
      }
      const only = theirs && this.time === Infinity && share > 0 && p < this.other.read && theirs[0][p] + theirs[1][p] === 0;
      const look = p < now ? `${share.toFixed(3)} ${kept[p]} ${isMerged} ${only}` : "later";
      if (span.dataset.look === look) continue;
      span.dataset.look = look;
      span.dataset.kept = p < now ? kept[p] : "";
      span.hidden = p >= now;
      span.style.setProperty("--k", `${(100 * share).toFixed(1)}%`);
      span.classList.toggle("gone", share === 0);
      span.classList.toggle("merged", isMerged);
      span.classList.toggle("only", Boolean(only));
    }
    this.summary.textContent = `Of ${now} tokens ${whole} are in all ${all} heads, ${some} in some, ${none} forgotten.` +
      (this.first > 0 ? ` The newest ${this.spans.length} are shown.` : "");
  }

  drawHeat() {
    const now = this.now || 1, time = this.time === Infinity ? Infinity : now;
    this.cells.forEach((cell, head) => {
      const kept = this.memory.keptBy(head, time), [layer, k] = this.layerOf(head);
      cell.style.setProperty("--k", `${(100 * kept / now).toFixed(1)}%`);
      cell.title = `layer ${layer}, head ${k}: keeps ${kept} of ${now} tokens`;
      cell.classList.toggle("chosen", head === this.head);
    });
  }

  drawBytes() {
    const [cache, limit, full] = this.memory.bytes, most = Math.max(cache, limit, full, 1);
    const bar = h("div", {class: "bar", "aria-hidden": "true"}, h("b"), limit ? h("u") : null);
    bar.style.setProperty("--w", `${100 * full / most}%`);
    bar.firstChild.style.setProperty("--w", `${100 * cache / most}%`);
    if (limit) bar.lastChild.style.setProperty("--w", `${100 * limit / most}%`);
    this.bytes.replaceChildren(bar,
      `Keys and values: ${bytes(cache)}${limit ? `, at most ${bytes(limit)} (line)` : ", no limit"}; ` +
      (cache === full ? "all tokens are kept." : `a cache of all tokens would take ${bytes(full)}.`));
  }

  // Merged tokens of the chosen head, joined by a line to the token whose slot they share.
  drawMerges() {
    this.lines.replaceChildren();
    if (!this.memory?.layout || this.head < 0) return;
    const table = this.memory.layout.tables[this.head], box = this.text.getBoundingClientRect();
    const time = this.time === Infinity ? Infinity : this.now, paths = [];
    for (const position of [...this.memory.into[table].keys()].reverse()) {
      const into = this.memory.state(table, position, time).into;
      const from = this.spans[position - this.first], to = this.spans[into - this.first];
      if (into === undefined || !from || !to || from.hidden || to.hidden || paths.length >= kMaxLines) continue;
      const a = from.getBoundingClientRect(), b = to.getBoundingClientRect();
      const x = a.left + a.width / 2 - box.left, y = a.bottom - box.top - 4, u = b.left + b.width / 2 - box.left, v = b.bottom - box.top - 4;
      const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
      path.setAttribute("d", `M${x},${y} Q${(x + u) / 2},${Math.max(y, v) + 14} ${u},${v}`);
      paths.push(path);
    }
    this.lines.append(...paths);
  }

  slide() {
    const value = Number(this.slider.value);
    this.time = value >= this.memory.read ? Infinity : value;
    this.update();
  }

  replay() {
    if (this.timer) return this.halt();
    this.play.textContent = "Halt";
    const steps = 120, end = this.memory.read;
    let step = 0;
    this.timer = setInterval(() => {
      this.time = ++step >= steps ? Infinity : Math.max(1, Math.round(end * step / steps));
      this.slider.value = String(Math.min(this.time, end));
      this.update();
      if (this.time === Infinity) this.halt();
    }, 50);
  }

  halt() {
    clearInterval(this.timer);
    this.timer = null;
    this.play.textContent = "Replay";
  }

  hover(target) {
    if (target.dataset?.p !== undefined) this.point(Number(target.dataset.p));
  }

  key(event) {
    const step = {ArrowRight: 1, ArrowLeft: -1, ArrowDown: 10, ArrowUp: -10}[event.key];
    if (!step) return;
    event.preventDefault();
    this.point(Math.max(this.first, Math.min(this.now - 1, this.cursor + step)));
    this.spans[this.cursor - this.first]?.scrollIntoView({block: "nearest"});
  }

  point(position) {
    this.spans[this.cursor - this.first]?.classList.remove("at");
    this.cursor = position;
    this.spans[position - this.first]?.classList.add("at");
    this.detail.textContent = this.describe(position);
  }

  describe(position) {
    const memory = this.memory, time = this.time === Infinity ? Infinity : this.now, [kept, merged] = memory.counts(time);
    const parts = [`“${visible(memory.texts[position] ?? "")}”, token ${position}`, `kept by ${kept[position]} of ${memory.headCount} heads`];
    if (merged[position]) parts.push(`merged in ${merged[position]}`);
    if (position < memory.layout.sinks) parts.push("a sink: protected");
    if (memory.layout.pinned?.some(([first, end]) => position >= first && position < end)) parts.push("pinned: never evicted");
    const at = memory.goneAt(position);
    if (at !== undefined) parts.push(`forgotten when ${at} tokens had been read`);
    if (this.head >= 0) {
      const [layer, k] = this.layerOf(this.head), state = memory.state(memory.layout.tables[this.head], position, time);
      const place = memory.place(this.head, position);
      if (state.gone !== undefined) parts.push(`layer ${layer}, head ${k}: evicted when ${state.gone} tokens had been read`);
      else if (state.into !== undefined) parts.push(`layer ${layer}, head ${k}: merged into “${visible(memory.texts[state.into] ?? "")}”, token ${state.into}`);
      if (place) parts.push(`layer ${layer}, head ${k}: slot ${place.slot}, score ${place.score === null ? "none" : Number(place.score.toPrecision(4))}`);
    }
    return parts.join("; ") + ".";
  }
}
