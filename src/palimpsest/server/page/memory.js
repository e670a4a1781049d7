// What a stream's memory events say (docs/server.md, "Memory maps"): which heads keep which token, now and at any
// time before.
export class Memory {
  constructor() {
    this.texts = [];    // of each position
    this.read = 0;      // tokens that the model has read
    this.layout = null; // {heads: [of each layer], tables: [of each head], method, budget, sinks}
    this.bytes = [0, 0, 0]; // cache, limit, full
    this.weight = [];   // heads of each table
    this.gone = [];     // per table: position -> tokens of the text when it was evicted
    this.into = [];     // per table: position -> [[when, position of the token it was merged into], ...]
    this.heads = {};    // flat head -> [position, slot, score, into, ...]
    this.kept = [];     // heads with a slot of their own, by position: the current state
    this.merged = [];   // heads in which it is merged
    this.done = false;
  }

  get headCount() { return this.layout ? this.layout.tables.length : 0; }

  put(event) {
    if (event.layout) {
      this.layout = event.layout;
      const tables = Math.max(...event.layout.tables) + 1;
      this.weight = Array(tables).fill(0);
      for (const table of event.layout.tables) ++this.weight[table];
      this.gone = Array.from({length: tables}, () => new Map());
      this.into = Array.from({length: tables}, () => new Map());
    }
    const changed = new Set();
    event.tokens.forEach((text, i) => { this.texts[event.first + i] = text; });
    if (event.start) this.restart(event.start, changed);
    for (let i = 0; i < event.changes.length; i += 4) {
      const [at, table, position, into] = event.changes.slice(i, i + 4);
      this.advance(at);
      this.change(at, table, position, into);
      changed.add(position);
    }
    this.advance(event.read);
    this.bytes = event.bytes;
    Object.assign(this.heads, event.heads);
    this.done = Boolean(event.last);
    return changed;
  }

  advance(read) {
    for (; this.read < read; ++this.read) {
      this.kept[this.read] = this.headCount;
      this.merged[this.read] = 0;
    }
  }

  change(at, table, position, into) {
    const merges = this.into[table].get(position) ?? [];
    if (merges.length) this.merged[position] -= this.weight[table];
    else this.kept[position] -= this.weight[table];
    if (into >= 0) {
      this.merged[position] += this.weight[table];
      this.into[table].set(position, [...merges, [at, into]]);
    } else {
      this.gone[table].set(position, at);
    }
  }

  // The server says what the tables keep: of what is missing, it is not known when it went.
  restart(start, changed) {
    this.advance(start.at);
    start.kept.forEach((ranges, table) => {
      const merged = new Map();
      for (let i = 0; i < start.merged.length; i += 3)
        if (start.merged[i] === table) merged.set(start.merged[i + 1], start.merged[i + 2]);
      let range = 0;
      for (let p = 0; p < start.at; ++p) {
        while (range < ranges.length && ranges[range + 1] <= p) range += 2;
        if (range < ranges.length && ranges[range] <= p) continue;
        const into = merged.get(p) ?? -1, before = this.state(table, p, Infinity);
        if (before.kept ? true : before.into !== undefined && before.into !== into) this.change(start.at, table, p, into);
        changed.add(p);
      }
    });
  }

  // {kept, into, gone} of a token in one table when `time` tokens had been read.
  state(table, position, time) {
    const current = time >= this.read, happened = (at) => current || at < time;
    const gone = this.gone[table].get(position);
    if (gone !== undefined && happened(gone)) return {kept: false, gone};
    let into;
    for (const [at, other] of this.into[table].get(position) ?? []) if (happened(at)) into = other;
    return {kept: into === undefined, into};
  }

  // Per position, heads that keep the token, at `time`: [own slots, merged].
  counts(time) {
    if (time >= this.read) return [this.kept, this.merged];
    const kept = Array(time).fill(this.headCount), merged = Array(time).fill(0);
    this.weight.forEach((weight, table) => {
      for (const [position, at] of this.gone[table]) if (at < time && position < time) kept[position] -= weight;
      for (const [position, list] of this.into[table]) {
        if (position >= time || !(list[0][0] < time)) continue;
        if ((this.gone[table].get(position) ?? Infinity) < time) continue;
        kept[position] -= weight;
        merged[position] += weight;
      }
    });
    return [kept, merged];
  }

  // Tokens that a head keeps at `time`.
  keptBy(head, time) {
    const table = this.layout.tables[head], end = Math.min(time, this.read);
    let count = end;
    for (const [position, at] of this.gone[table]) if (position < end && (time >= this.read || at < time)) --count;
    return count;
  }

  // When the last head dropped it; undefined: one keeps it.
  goneAt(position) {
    let last = 0;
    for (const gone of this.gone) {
      const at = gone.get(position);
      if (at === undefined) return undefined;
      last = Math.max(last, at);
    }
    return last;
  }

  // {slot, score, into} in a head, as far as events have told it.
  place(head, position) {
    const list = this.heads[head];
    if (!list) return undefined;
    let low = 0, high = list.length / 4;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (list[4 * middle] < position) low = middle + 1;
      else high = middle;
    }
    return list[4 * low] === position ? {slot: list[4 * low + 1], score: list[4 * low + 2], into: list[4 * low + 3]} : undefined;
  }
}
