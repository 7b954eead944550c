"use strict";
// The program of a report's page: it unpacks the data, draws the charts and tables, and reacts to input.
// Texts of a dump reach the page only as text nodes.

const SVG = "http://www.w3.org/2000/svg";
const byId = (id) => document.getElementById(id);

// ---- elements

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "click") made.addEventListener("click", value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null) made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

// Returns the sentence of a term from the page's list of words, null for none.
function meaning(term) {
  return byId(`word-${(term ?? "").replace(/ /g, "-")}`)?.nextElementSibling.textContent ?? null;
}

function drawn(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function text(number) {
  if (number === null || number === undefined || Number.isNaN(number)) return "";
  if (!Number.isFinite(number)) return number > 0 ? "∞" : "−∞";
  const size = Math.abs(number);
  if (Number.isInteger(number) && size < 1e6) return String(number);
  return size !== 0 && (size < 1e-3 || size >= 1e6) ? number.toExponential(3) : String(Number(number.toPrecision(5)));
}

// ---- data

async function unpacked(chunk) {
  const letters = atob(chunk);
  const bytes = new Uint8Array(letters.length);
  for (let place = 0; place < letters.length; place += 1) bytes[place] = letters.charCodeAt(place);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

async function numbers(chunks, name) {
  const bytes = await unpacked(chunks[name]);
  const bits = new Uint32Array((bytes.length - 1) / bytes[0]);
  for (let plane = 0; plane < bytes[0]; plane += 1) {
    const start = 1 + plane * bits.length;
    for (let place = 0; place < bits.length; place += 1) {
      bits[place] |= bytes[start + place] << (24 - 8 * plane);
    }
  }
  return new Float32Array(bits.buffer);
}

const decoded = (coded) => coded.codes.map((code) => coded.texts[code]);

// The content of a report, column by column.
class Report {
  constructor(content, states, chunks) {
    this.content = content;
    this.chunks = chunks;
    this.states = states;
    this.iterations = content.iterations;
    const columns = content.operators;
    this.names = columns.name;
    this.count = columns.name.length;
    this.types = decoded(columns.type);
    this.places = decoded(columns.place);
    this.sources = decoded(columns.source);
    this.verdicts = decoded(columns.verdict);
    this.parameters = decoded(columns.parameters);
    this.reads = columns.reads.map((steps, place) => steps.map((step) => place - step));
    const cell = (value) => (value === null ? Number.NaN : Number(value));
    this.distances = columns.distance.map(cell);
    this.owns = columns.own.map(cell);
    this.ranks = columns.rank;
    this.orders = columns.order;
    let operator = 0;
    this.tensorOperators = content.tensors.operator.map((step) => (operator += step));
    this.forms = decoded(content.tensors.form);
    this.firstTensor = new Int32Array(this.count).fill(-1);
    this.tensorOperators.forEach((place, row) => {
      if (this.firstTensor[place] < 0) this.firstTensor[place] = row;
    });
    this.problemOf = new Map();
    content.problems.forEach((problem, number) => {
      if (problem.operator >= 0 && !this.problemOf.has(problem.operator)) this.problemOf.set(problem.operator, number);
    });
    this.accused = new Set(content.problems.filter((problem) => problem.accused).map((problem) => problem.operator));
    this.tables = new Map();
    this.readerLists = null;
  }

  // Returns a table of numbers, unpacked at its first use.
  async table(name) {
    if (!this.tables.has(name)) this.tables.set(name, await numbers(this.chunks, name));
    return this.tables.get(name);
  }

  // Returns the row of a table that shows an operator, -1 for none.
  rowOf(name, operator) {
    return name === "distance" ? operator : this.firstTensor[operator];
  }

  tensorsOf(operator) {
    const rows = [];
    const first = this.firstTensor[operator];
    for (let row = first; row >= 0 && this.tensorOperators[row] === operator; row += 1) rows.push(row);
    return rows;
  }

  // Returns the states of an operator in each iteration: of all its tensors.
  statesOf(operator) {
    const width = this.iterations.length;
    const states = new Uint8Array(width);
    for (const row of this.tensorsOf(operator)) {
      for (let column = 0; column < width; column += 1) states[column] |= this.states[row * width + column];
    }
    return states;
  }

  isStruck(operator) {
    return this.statesOf(operator).some((state) => state & 6);
  }

  // Returns how an operator is marked: "accused" where a fault is in it, "touched" where one reaches it.
  markOf(operator) {
    if (this.accused.has(operator)) return "accused";
    return this.problemOf.has(operator) || this.isStruck(operator) ? "touched" : null;
  }

  readersOf(operator) {
    if (this.readerLists === null) {
      this.readerLists = new Map();
      this.reads.forEach((places, reader) => {
        for (const place of places) {
          if (!this.readerLists.has(place)) this.readerLists.set(place, []);
          this.readerLists.get(place).push(reader);
        }
      });
    }
    return this.readerLists.get(operator) ?? [];
  }
}

function stateText(state) {
  const words = [];
  if (state & 2) words.push("NaN");
  if (state & 4) words.push("∞");
  if (state & 8) words.push("−∞");
  return words.join(" ");
}

// ---- charts

const WIDTH = 560;
const HEIGHT = 200;
const LEFT = 62;
const BOTTOM = 26;

function scaleOf(values, isLog) {
  const usable = values.filter((value) => Number.isFinite(value) && (!isLog || value > 0));
  let low = Infinity;
  let high = -Infinity;
  for (const value of usable) {
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  if (!usable.length) return { low: 0, high: 1, at: () => 0.5 };
  const [from, to] = isLog ? [Math.log10(low), Math.log10(high)] : [low, high];
  if (from === to) return { low, high, at: () => 0.5 };
  return { low, high, at: (value) => ((isLog ? Math.log10(value) : value) - from) / (to - from) };
}

function axes(svg, low, high, left, right) {
  svg.append(
    drawn("path", { class: "axis", d: `M${LEFT} 8V${HEIGHT - BOTTOM}H${WIDTH - 8}` }),
    drawn("text", { x: LEFT - 5, y: 16, "text-anchor": "end" }, text(high)),
    drawn("text", { x: LEFT - 5, y: HEIGHT - BOTTOM, "text-anchor": "end" }, text(low)),
    drawn("text", { x: LEFT, y: HEIGHT - 8 }, String(left)),
    drawn("text", { x: WIDTH - 8, y: HEIGHT - 8, "text-anchor": "end" }, String(right)),
  );
}

function figure(caption, svg) {
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", caption);
  return element("figure", {}, svg, element("figcaption", {}, caption));
}

// Draws numbers over places; NaN and infinities are marked at the upper edge.
function lineChart(caption, values, labels, { marks = [] } = {}) {
  const svg = drawn("svg", { width: WIDTH, height: HEIGHT, viewBox: `0 0 ${WIDTH} ${HEIGHT}` });
  const scale = scaleOf(values, false);
  const across = (place) => LEFT + 4 + (place / Math.max(1, values.length - 1)) * (WIDTH - LEFT - 16);
  const up = (value) => HEIGHT - BOTTOM - 4 - scale.at(value) * (HEIGHT - BOTTOM - 16);
  axes(svg, scale.low, scale.high, labels[0] ?? "", labels[labels.length - 1] ?? "");
  let path = "";
  let isDown = false;
  const step = Math.max(1, Math.ceil(values.length / 2000));
  for (let place = 0; place < values.length; place += step) {
    const isShown = Number.isFinite(values[place]);
    if (isShown) path += `${isDown ? "L" : "M"}${across(place).toFixed(1)} ${up(values[place]).toFixed(1)}`;
    isDown = isShown;
  }
  svg.append(drawn("path", { class: "first", d: path || "M0 0", "stroke-linecap": "round" }));
  if (values.length === 1 && Number.isFinite(values[0])) {
    svg.append(drawn("circle", { class: "dot", cx: across(0), cy: up(values[0]), r: 3 }));
  }
  for (const place of marks) {
    const at = across(place);
    svg.append(drawn("path", { class: "mark", d: `M${at - 4} 4h8l-4 7z` }, drawn("title", {}, `${labels[place]}: NaN or ∞`)));
  }
  return figure(caption, svg);
}

function scatter(caption, points, onPick) {
  const svg = drawn("svg", { width: WIDTH, height: HEIGHT, viewBox: `0 0 ${WIDTH} ${HEIGHT}` });
  const scale = scaleOf(points.map((point) => point.value), true);
  axes(svg, scale.low, scale.high, "first operator", "last");
  const last = Math.max(1, points[points.length - 1]?.place ?? 1);
  for (const point of points) {
    const at = LEFT + 4 + (point.place / last) * (WIDTH - LEFT - 16);
    const level = point.value > 0 ? scale.at(point.value) : 0;
    const dot = drawn("circle", {
      class: point.isBad ? "mark" : "dot", r: point.isBad ? 3.5 : 2, cx: at.toFixed(1),
      cy: (HEIGHT - BOTTOM - 4 - level * (HEIGHT - BOTTOM - 16)).toFixed(1),
    });
    dot.append(drawn("title", {}, point.title));
    dot.addEventListener("click", () => onPick(point.operator));
    svg.append(dot);
  }
  return figure(caption, svg);
}

function histogramChart(report, histogram) {
  const svg = drawn("svg", { width: WIDTH, height: HEIGHT, viewBox: `0 0 ${WIDTH} ${HEIGHT}` });
  const top = Math.max(1, ...histogram.counts, ...histogram.golden);
  const wide = (WIDTH - LEFT - 12) / histogram.counts.length;
  axes(svg, 0, top, text(histogram.low), text(histogram.high));
  for (const [counts, name] of [[histogram.counts, "fill-first"], [histogram.golden, "fill-second"]]) {
    counts.forEach((count, bin) => {
      const high = (count / top) * (HEIGHT - BOTTOM - 12);
      if (count) {
        svg.append(drawn("rect", {
          class: name, x: (LEFT + 2 + bin * wide).toFixed(1), y: (HEIGHT - BOTTOM - high).toFixed(1),
          width: Math.max(1, wide - 1).toFixed(1), height: high.toFixed(1),
        }));
      }
    });
  }
  const sampled = histogram.sampled < histogram.size ? `, ${histogram.sampled} of ${histogram.size} elements` : "";
  const bad = histogram.nonfinite ? `, ${histogram.nonfinite} NaN or infinite` : "";
  const golden = histogram.golden.length ? ", outlined: golden" : "";
  const name = report.names[histogram.operator];
  return figure(`${name} ${histogram.tensor}, iteration ${histogram.iteration}${sampled}${bad}${golden}`, svg);
}

function sparkline(values, states) {
  const wide = 110;
  const high = 20;
  const svg = drawn("svg", { class: "spark", width: wide, height: high, "aria-hidden": "true" });
  const scale = scaleOf(values, false);
  const across = (place) => 3 + (place / Math.max(1, values.length - 1)) * (wide - 6);
  let path = "";
  let isDown = false;
  values.forEach((value, place) => {
    const isShown = Number.isFinite(value);
    if (isShown) path += `${isDown ? "L" : "M"}${across(place).toFixed(1)} ${(high - 3 - scale.at(value) * (high - 6)).toFixed(1)}`;
    isDown = isShown;
    if (states[place] & 6) svg.append(drawn("circle", { class: "mark", cx: across(place).toFixed(1), cy: 4, r: 2.5 }));
  });
  if (path) svg.append(drawn("path", { class: "first", d: path.includes("L") ? path : `${path}h2` }));
  return svg;
}

// The colour map viridis, readable without red and green; colours between these are interpolated.
const RAMP = [[68, 1, 84], [71, 44, 122], [59, 81, 139], [44, 113, 142], [33, 144, 141], [39, 173, 129], [92, 200, 99], [170, 220, 50], [253, 231, 37]];
const STRUCK_COLOUR = [213, 94, 0];

function colour(share) {
  const at = Math.min(Math.max(share, 0), 1) * (RAMP.length - 1);
  const low = Math.min(Math.floor(at), RAMP.length - 2);
  return RAMP[low].map((value, channel) => value + (RAMP[low + 1][channel] - value) * (at - low));
}

// ---- neighbourhood

// Draws an operator in the middle, its sources above, its readers below; two steps each way.
function neighbourhood(report, operator, onPick) {
  const most = 8;
  const step = (places, next) => {
    const members = new Set();
    for (const place of places) for (const other of next(place)) members.add(other);
    return [...members].slice(0, most);
  };
  const above = step([operator], (place) => report.reads[place]);
  const higher = step(above, (place) => report.reads[place]).filter((place) => !above.includes(place) && place !== operator);
  const below = step([operator], (place) => report.readersOf(place)).filter((place) => !above.includes(place));
  const lower = step(below, (place) => report.readersOf(place)).filter((place) => ![operator, ...below, ...above, ...higher].includes(place));
  const layers = [higher, above, [operator], below, lower].filter((layer) => layer.length);
  const [wide, high, gap] = [190, 38, 34];
  const width = Math.max(...layers.map((layer) => layer.length)) * (wide + 12);
  const svg = drawn("svg", { width, height: layers.length * (high + gap), "aria-label": `Neighbourhood of ${report.names[operator]}` });
  const spots = new Map();
  layers.forEach((layer, row) => {
    layer.forEach((place, column) => {
      spots.set(place, [width / 2 + (column - (layer.length - 1) / 2) * (wide + 12), row * (high + gap) + 2]);
    });
  });
  for (const place of spots.keys()) {
    for (const source of report.reads[place]) {
      if (!spots.has(source)) continue;
      const [[from, top], [to, foot]] = [spots.get(source), spots.get(place)];
      svg.append(drawn("path", { class: "edge", d: `M${from} ${top + high}C${from} ${top + high + 18} ${to} ${foot - 18} ${to} ${foot}` }));
    }
  }
  for (const [place, [x, y]] of spots) svg.append(node(report, place, x - wide / 2, y, [wide, high], { isSelf: place === operator, onPick }));
  return svg;
}

function node(report, place, x, y, [wide, high], { isSelf, onPick }) {
  const mark = report.markOf(place);
  const last = report.names[place].split("/").slice(-2).join("/");
  const group = drawn("g", {
    class: `node${isSelf ? " self" : ""}${mark === "accused" ? " struck" : ""}${mark === "touched" ? " touched" : ""}`, tabindex: "0", role: "button",
    "aria-label": `${report.names[place]}${mark === null ? "" : mark === "accused" ? ", at fault" : ", reached by a fault"}`, transform: `translate(${x} ${y})`,
  });
  const shown = last.length > 25 ? `…${last.slice(-24)}` : last;
  const type = report.types[place].length > 24 ? `${report.types[place].slice(0, 23)}…` : report.types[place];
  group.append(
    drawn("title", {}, report.names[place]),
    drawn("rect", { width: wide, height: high, rx: 4 }),
    drawn("text", { x: 7, y: 15 }, `${type}${mark === null ? "" : mark === "accused" ? " ●" : " ○"}`),
    drawn("text", { x: 7, y: 30 }, shown),
  );
  group.addEventListener("click", () => onPick(place));
  group.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      onPick(place);
    }
  });
  return group;
}

// ---- table of operators

const whenIdle = window.requestIdleCallback ?? ((work) => setTimeout(work, 50));
const BY_NAME = new Intl.Collator(undefined, { numeric: true });

class OperatorTable {
  constructor(report, onPick) {
    this.report = report;
    this.onPick = onPick;
    this.sortKey = "order";
    this.isDescending = false;
    this.page = 0;
    this.order = Int32Array.from({ length: report.count }, (_, place) => place);
    this.keys = new Map();
    this.orders = new Map();
    this.kept = null;
    this.words = null;
    this.opened = new Set();
    this.columns = this.#columns();
    this.values = null;
    this.statistic = "";
    this.onChange = () => {};
  }

  #columns() {
    const { report } = this;
    const columns = [
      { key: "order", title: "#", number: (place) => place, cell: (place) => String(report.orders[place]) },
      { key: "name", title: "Operator", word: (place) => report.names[place] },
      { key: "type", title: "Type", word: (place) => report.types[place] },
    ];
    if (new Set(report.ranks).size > 1) columns.push({ key: "rank", title: "Rank", term: "rank", number: (place) => report.ranks[place] });
    if (new Set(report.places).size > 1) columns.push({ key: "place", title: "Network", word: (place) => report.places[place], isPath: true });
    columns.push({ key: "value", title: "", number: (place) => this.#latest(place), isStatistic: true });
    columns.push({ key: "holds", title: "Non-finite", term: "non-finite", word: (place) => stateText(report.statesOf(place).reduce((all, state) => all | state, 0)), isBad: true });
    if (report.content.hasVerdicts) {
      columns.push(
        { key: "verdict", title: "Verdict", term: "verdict", word: (place) => report.verdicts[place] },
        { key: "distance", title: "Distance", term: "distance", number: (place) => report.distances[place] },
        { key: "own", title: "Own error", term: "own error", number: (place) => report.owns[place] },
      );
    }
    if (report.sources.some(Boolean)) columns.push({ key: "source", title: "Source", word: (place) => report.sources[place], isPath: true });
    return columns;
  }

  #latest(place) {
    const row = this.report.rowOf(this.statistic, place);
    if (row < 0 || this.values === null) return Number.NaN;
    const width = this.report.iterations.length;
    for (let column = width - 1; column >= 0; column -= 1) {
      const value = this.values[row * width + column];
      if (!Number.isNaN(value)) return value;
    }
    return Number.NaN;
  }

  async choose(statistic) {
    this.statistic = statistic;
    this.values = statistic ? await this.report.table(statistic) : null;
    this.keys.delete("value");
    this.orders.delete("value");
    this.columns.find((column) => column.isStatistic).title = statistic || "Value";
  }

  // Returns the sort keys of a column; the key of a text is its place among all texts of the column.
  #keysOf(column) {
    if (this.keys.has(column.key)) return this.keys.get(column.key);
    const keys = new Float64Array(this.report.count);
    if (column.number) {
      for (let place = 0; place < keys.length; place += 1) keys[place] = column.number(place);
    } else {
      const words = Array.from({ length: keys.length }, (_, place) => column.word(place) ?? "");
      const unique = [...new Set(words)].sort(BY_NAME.compare);
      const ranks = new Map(unique.map((word, rank) => [word, word === "" ? Number.NaN : rank]));
      words.forEach((word, place) => { keys[place] = ranks.get(word); });
    }
    this.keys.set(column.key, keys);
    return keys;
  }

  // Returns all operators in the ascending order of a column, and the number of operators with a value.
  // Equal operators keep the execution order; operators without a value come last.
  #orderOf(column) {
    if (this.orders.has(column.key)) return this.orders.get(column.key);
    const keys = this.#keysOf(column);
    const known = [];
    const unknown = [];
    for (let place = 0; place < keys.length; place += 1) (Number.isNaN(keys[place]) ? unknown : known).push(place);
    known.sort((one, other) => keys[one] - keys[other] || one - other);
    const order = { all: Int32Array.from([...known, ...unknown]), count: known.length, keys };
    this.orders.set(column.key, order);
    return order;
  }

  // Computes the orders of all columns in idle time, so that a click is fast.
  prepare() {
    const column = this.columns.find((each) => !this.orders.has(each.key));
    if (!column) return;
    this.#orderOf(column);
    whenIdle(() => this.prepare());
  }

  // Sorts the shown operators; operators without a value come last, equal ones keep the execution order.
  sort(key, isDescending) {
    this.sortKey = key;
    this.isDescending = isDescending;
    const { all, count, keys } = this.#orderOf(this.columns.find((column) => column.key === key));
    const sorted = new Int32Array(this.order.length);
    let filled = 0;
    const take = (from, to) => {
      for (let at = from; at < to; at += 1) {
        if (this.kept === null || this.kept[all[at]]) {
          sorted[filled] = all[at];
          filled += 1;
        }
      }
    };
    if (isDescending) {
      for (let to = count; to > 0;) {
        let from = to - 1;
        while (from > 0 && keys[all[from - 1]] === keys[all[to - 1]]) from -= 1;
        take(from, to);
        to = from;
      }
    } else take(0, count);
    take(count, all.length);
    this.order = sorted;
    this.page = 0;
  }

  filter({ words, type, rank, onlyWrong }) {
    const { report } = this;
    if (words.length && this.words === null) {
      this.words = report.names.map((name, place) => `${name} ${report.types[place]} ${report.sources[place]} ${report.verdicts[place]}`.toLowerCase());
    }
    const kept = new Uint8Array(report.count);
    let count = 0;
    for (let place = 0; place < report.count; place += 1) {
      if (type && report.types[place] !== type) continue;
      if (rank !== "" && report.ranks[place] !== Number(rank)) continue;
      if (words.length && !words.every((word) => this.words[place].includes(word))) continue;
      if (onlyWrong && report.markOf(place) === null) continue;
      kept[place] = 1;
      count += 1;
    }
    this.kept = count === report.count ? null : kept;
    this.order = new Int32Array(count);
    this.sort(this.sortKey, this.isDescending);
  }

  // Returns the shown rows: operators, or scopes and the operators of opened scopes if folded.
  rows(isFolded) {
    if (!isFolded) return null;
    const root = { path: "", scopes: new Map(), operators: [] };
    for (const place of this.order) {
      let at = root;
      const parts = this.report.names[place].split("/").slice(0, -1);
      for (const part of parts) {
        const path = at.path ? `${at.path}/${part}` : part;
        if (!at.scopes.has(part)) at.scopes.set(part, { path, part, scopes: new Map(), operators: [] });
        at = at.scopes.get(part);
        at.total = (at.total ?? 0) + 1;
        at.wrong = (at.wrong ?? 0) + (this.report.markOf(place) === null ? 0 : 1);
      }
      at.operators.push(place);
    }
    const shown = [];
    const walk = (at, depth) => {
      for (const scope of at.scopes.values()) {
        shown.push({ scope, depth });
        if (this.opened.has(scope.path)) walk(scope, depth + 1);
      }
      for (const place of at.operators) shown.push({ place, depth });
    };
    walk(root, 0);
    return shown;
  }

  unfold(isOpen) {
    this.opened.clear();
    if (!isOpen) return;
    for (const name of this.report.names) {
      const parts = name.split("/");
      for (let count = 1; count < parts.length; count += 1) this.opened.add(parts.slice(0, count).join("/"));
    }
  }

  render(isFolded, pageSize) {
    const rows = this.rows(isFolded);
    const count = rows === null ? this.order.length : rows.length;
    const pages = Math.max(1, Math.ceil(count / pageSize));
    this.page = Math.min(Math.max(this.page, 0), pages - 1);
    const start = this.page * pageSize;
    const shown = [];
    for (let at = start; at < Math.min(count, start + pageSize); at += 1) {
      shown.push(rows === null ? this.#row(this.order[at], 0) : this.#folded(rows[at]));
    }
    byId("table").tBodies[0].replaceChildren(...shown);
    this.#head();
    byId("page-number").textContent = `page ${this.page + 1} of ${pages}`;
    byId("count").textContent = `${this.order.length.toLocaleString()} of ${this.report.count.toLocaleString()} operators`;
    return pages;
  }

  #head() {
    const head = byId("table").tHead.rows[0];
    head.replaceChildren(...this.columns.map((column) => {
      const isSorted = column.key === this.sortKey;
      const arrow = isSorted ? (this.isDescending ? " ▼" : " ▲") : "";
      const sorted = isSorted ? (this.isDescending ? "descending" : "ascending") : "none";
      const button = element("button", { type: "button", "data-sort": column.key, title: meaning(column.term), click: () => this.#resort(column.key) }, `${column.title}${arrow}`);
      const cells = [element("th", { scope: "col", "aria-sort": sorted }, button)];
      return cells[0];
    }));
  }

  #resort(key) {
    // numbers are sorted largest first
    const isNumber = Boolean(this.columns.find((column) => column.key === key).number) && key !== "order";
    const isDescending = key === this.sortKey ? !this.isDescending : isNumber;
    const before = performance.now();
    this.sort(key, isDescending);
    this.onChange();
    document.body.dataset.sortMs = (performance.now() - before).toFixed(1);
    byId("table").tHead.querySelector(`[data-sort="${key}"]`).focus();
  }

  #folded(row) {
    if (row.place !== undefined) return this.#row(row.place, row.depth);
    const { scope, depth } = row;
    const isOpen = this.opened.has(scope.path);
    const toggle = () => {
      if (isOpen) this.opened.delete(scope.path);
      else this.opened.add(scope.path);
      this.onChange();
      byId("table").querySelector(`[data-scope="${CSS.escape(scope.path)}"]`)?.focus();
    };
    const button = element("button", { type: "button", class: "fold", "aria-expanded": String(isOpen), "data-scope": scope.path, "aria-label": `${isOpen ? "fold" : "unfold"} ${scope.path}`, click: toggle }, isOpen ? "−" : "+");
    const wrong = scope.wrong ? element("span", { class: "bad" }, ` ● ${scope.wrong} with problems`) : "";
    const cell = element("th", { scope: "row", colspan: this.columns.length }, "\u2003".repeat(depth), button, scope.part, ` (${scope.total})`, wrong);
    return element("tr", { class: "scope" }, cell);
  }

  #row(place, depth) {
    const { report } = this;
    const cells = this.columns.map((column) => {
      if (column.key === "name") {
        const button = element("button", { type: "button", class: "link", "data-operator": place, click: () => this.onPick(place) }, report.names[place]);
        return element("th", { scope: "row" }, "\u2003".repeat(depth), button);
      }
      if (column.isStatistic) return this.#statisticCell(column, place);
      if (column.number) return element("td", { class: "number" }, column.cell ? column.cell(place) : text(column.number(place)));
      const word = column.word(place) ?? "";
      return element("td", { class: `${column.isPath ? "" : "word"}${column.isBad && word ? " bad" : ""}`, title: column.key === "verdict" ? meaning(word) : null }, word);
    });
    return element("tr", { class: report.markOf(place) }, ...cells);
  }

  #statisticCell(column, place) {
    const { report } = this;
    const width = report.iterations.length;
    const row = report.rowOf(this.statistic, place);
    if (row < 0 || this.values === null) return element("td", {}, report.content.operators.dumped[place] ? "" : "not dumped");
    const values = Array.from(this.values.subarray(row * width, (row + 1) * width));
    return element("td", { class: "number" }, width > 1 ? sparkline(values, report.statesOf(place)) : "", ` ${text(column.number(place))}`);
  }
}

// ---- heat map

class HeatMap {
  constructor(report, table, onPick) {
    Object.assign(this, { report, table, onPick, canvas: byId("heat"), cursor: [0, 0], values: null, name: "" });
    this.canvas.addEventListener("mousemove", (event) => this.#point(event));
    this.canvas.addEventListener("click", (event) => {
      this.#point(event);
      this.#pick();
    });
    this.canvas.addEventListener("keydown", (event) => this.#key(event));
  }

  async show(name) {
    this.name = name;
    this.values = await this.report.table(name);
    this.draw();
  }

  draw() {
    if (this.values === null || byId("map").hidden) return;
    const { canvas, report } = this;
    const width = report.iterations.length;
    this.members = [...this.table.order].filter((place) => report.rowOf(this.name, place) >= 0);
    const ratio = window.devicePixelRatio || 1;
    canvas.width = Math.max(1, Math.round(canvas.clientWidth * ratio));
    canvas.height = Math.max(1, Math.round(canvas.clientHeight * ratio));
    const isLog = byId("map-log").checked;
    this.#scale(isLog);
    const context = canvas.getContext("2d");
    const image = context.createImageData(canvas.width, canvas.height);
    const [across, down] = [width, this.members.length];
    for (let y = 0; y < canvas.height && down; y += 1) {
      // of several operators in one line of pixels the largest is shown
      const first = Math.floor((y * down) / canvas.height);
      const last = Math.max(first + 1, Math.floor(((y + 1) * down) / canvas.height));
      for (let column = 0; column < across; column += 1) {
        const shade = this.#shade(first, last, column);
        const from = Math.round((column * canvas.width) / across);
        const to = Math.round(((column + 1) * canvas.width) / across);
        for (let x = from; x < to; x += 1) image.data.set(shade, (y * canvas.width + x) * 4);
      }
    }
    context.putImageData(image, 0, 0);
    this.#legend(isLog);
    this.#mark(context);
  }

  #mark(context) {
    if (document.activeElement !== this.canvas || !this.members.length) return;
    const [row, column] = this.cursor;
    const wide = this.canvas.width / this.report.iterations.length;
    const high = Math.max(4, this.canvas.height / this.members.length);
    context.strokeStyle = "#ffffff";
    context.lineWidth = 3;
    context.strokeRect(column * wide, (row * this.canvas.height) / this.members.length, wide, high);
    context.strokeStyle = "#000000";
    context.lineWidth = 1;
    context.strokeRect(column * wide, (row * this.canvas.height) / this.members.length, wide, high);
  }

  #scale(isLog) {
    const width = this.report.iterations.length;
    let low = Infinity;
    let high = -Infinity;
    for (const place of this.members) {
      const row = this.report.rowOf(this.name, place);
      for (let at = row * width; at < (row + 1) * width; at += 1) {
        const value = isLog ? Math.abs(this.values[at]) : this.values[at];
        if (!Number.isFinite(value) || (isLog && value === 0)) continue;
        low = Math.min(low, value);
        high = Math.max(high, value);
      }
    }
    if (low > high) [low, high] = [0, 1];
    const [from, to] = isLog ? [Math.log10(low), Math.log10(high)] : [low, high];
    this.range = [low, high];
    this.share = (value) => {
      if (isLog && value === 0) return 0;
      return from === to ? 1 : ((isLog ? Math.log10(Math.abs(value)) : value) - from) / (to - from);
    };
  }

  #shade(first, last, column) {
    const width = this.report.iterations.length;
    let best = -1;
    for (let at = first; at < last; at += 1) {
      const place = this.members[at];
      const row = this.report.rowOf(this.name, place);
      const value = this.values[row * width + column];
      const state = this.name === "distance" ? 0 : this.report.states[row * width + column];
      if (state & 6 || value === Infinity) return [...STRUCK_COLOUR, 255];
      if (Number.isFinite(value)) best = Math.max(best, this.share(value), 0);
    }
    return best < 0 ? [0, 0, 0, 0] : [...colour(best), 255];
  }

  #legend(isLog) {
    const ramp = element("canvas", { width: 160, height: 12, "aria-hidden": "true" });
    const context = ramp.getContext("2d");
    for (let x = 0; x < 160; x += 1) {
      context.fillStyle = `rgb(${colour(x / 159).map(Math.round).join(" ")})`;
      context.fillRect(x, 0, 1, 12);
    }
    const struck = element("canvas", { width: 12, height: 12, "aria-hidden": "true" });
    struck.getContext("2d").fillStyle = `rgb(${STRUCK_COLOUR.join(" ")})`;
    struck.getContext("2d").fillRect(0, 0, 12, 12);
    const [low, high] = this.range;
    const what = isLog ? `|${this.name}|, logarithmic` : this.name;
    byId("heat-legend").replaceChildren(`${what}: ${text(low)} `, ramp, ` ${text(high)}; `, struck, " NaN or infinity. Rows are operators in the order of the table, columns are iterations.");
  }

  #point(event) {
    const box = this.canvas.getBoundingClientRect();
    const row = Math.floor(((event.clientY - box.top) / box.height) * this.members.length);
    const column = Math.floor(((event.clientX - box.left) / box.width) * this.report.iterations.length);
    this.#move(row, column);
  }

  #key(event) {
    const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], PageUp: [-20, 0], PageDown: [20, 0] };
    if (event.key === "Enter") this.#pick();
    if (!(event.key in steps)) return;
    event.preventDefault();
    const [down, right] = steps[event.key];
    this.#move(this.cursor[0] + down, this.cursor[1] + right);
    this.draw();
  }

  #move(row, column) {
    if (!this.members?.length) return;
    const within = (value, count) => Math.min(Math.max(value, 0), count - 1);
    this.cursor = [within(row, this.members.length), within(column, this.report.iterations.length)];
    const place = this.members[this.cursor[0]];
    const at = this.report.rowOf(this.name, place) * this.report.iterations.length + this.cursor[1];
    const state = this.name === "distance" ? "" : stateText(this.report.states[at]);
    byId("heat-cell").textContent = `${this.report.names[place]}, iteration ${this.report.iterations[this.cursor[1]]}: ${this.name} ${text(this.values[at]) || "none"} ${state}`;
  }

  #pick() {
    if (this.members?.length) this.onPick(this.members[this.cursor[0]]);
  }
}

// ---- one operator

class Detail {
  constructor(report) {
    this.report = report;
    this.opener = null;
    byId("close").addEventListener("click", () => this.close());
    byId("detail").addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.close();
    });
  }

  close() {
    byId("detail").hidden = true;
    if (location.hash.startsWith("#operator-")) history.replaceState(null, "", "#operators");
    this.opener?.focus();
  }

  async show(place) {
    const { report } = this;
    if (!(place >= 0 && place < report.count)) return;
    if (!byId("detail").contains(document.activeElement)) this.opener = document.activeElement;
    history.replaceState(null, "", `#operator-${place}`);
    byId("detail-title").textContent = report.names[place];
    this.#facts(place);
    byId("neighbours").replaceChildren(neighbourhood(report, place, (other) => this.show(other)));
    const own = report.content.histograms.filter((each) => each.operator === place);
    byId("detail-histograms").replaceChildren(...own.map((each) => histogramChart(report, each)));
    byId("detail").hidden = false;
    byId("detail").scrollIntoView();
    byId("detail").focus({ preventScroll: true });
    await this.#numbers(place);
    document.body.dataset.shown = place;
  }

  #facts(place) {
    const { report } = this;
    const problem = report.problemOf.get(place);
    const facts = [
      ["Type", report.types[place]],
      ["Network", `${report.places[place]}, rank ${report.ranks[place]}, operator ${report.orders[place]}`],
      ["Source", report.sources[place]],
      ["Weights and inputs", report.parameters[place].split("\n").filter(Boolean).join(", ")],
      ["Verdict", [report.verdicts[place], meaning(report.verdicts[place])].filter(Boolean).join(": ")],
      ["Distance", text(report.distances[place])],
      ["Own error", text(report.owns[place])],
    ].filter(([, value]) => value);
    const items = facts.flatMap(([title, value]) => [element("dt", { title: meaning(title.toLowerCase()) }, title), element("dd", {}, value)]);
    if (problem !== undefined) {
      const link = element("a", { href: `#problem-${problem}` }, report.content.problems[problem].text);
      items.push(element("dt", {}, "Problem"), element("dd", {}, link));
    }
    byId("detail-facts").replaceChildren(...items);
  }

  async #numbers(place) {
    const { report } = this;
    const width = report.iterations.length;
    const rows = report.tensorsOf(place);
    const names = report.content.tables;
    const tables = new Map();
    for (const name of names) tables.set(name, await report.table(name));
    const charts = [];
    const lines = [];
    for (const name of names) {
      const of = name === "distance" ? [place] : rows;
      for (const row of of) {
        const values = Array.from(tables.get(name).subarray(row * width, (row + 1) * width));
        if (!values.some((value) => !Number.isNaN(value))) continue;
        const tensor = name === "distance" ? "" : this.#tensor(row);
        const marks = name === "distance" ? [] : [...values.keys()].filter((at) => report.states[row * width + at] & 6);
        if (width > 1 && charts.length < 6) charts.push(lineChart(`${name} ${tensor}`, values, report.iterations, { marks }));
        lines.push(element("tr", {}, element("th", { scope: "row" }, `${name} ${tensor}`), ...values.map((value) => element("td", { class: "number" }, text(value)))));
      }
    }
    const heads = [element("th", { scope: "col" }, "Statistic"), ...report.iterations.map((number) => element("th", { scope: "col" }, String(number)))];
    byId("detail-table").tHead.replaceChildren(element("tr", {}, ...heads));
    byId("detail-table").tBodies[0].replaceChildren(...lines);
    byId("detail-charts").replaceChildren(...charts);
  }

  #tensor(row) {
    const { input, slot } = this.report.content.tensors;
    return `of ${input[row] ? "input" : "output"} ${slot[row]} (${this.report.forms[row]})`;
  }
}

// ---- the page

function options(select, values, chosen = null) {
  for (const value of values) select.append(element("option", { value, selected: value === chosen }, String(value)));
}

function reveal(section) {
  byId(section).hidden = false;
  const entry = document.querySelector(`[data-needs="${section}"]`);
  if (entry) entry.hidden = false;
}

function remembered(key, value) {
  try {
    if (value === undefined) return sessionStorage.getItem(key);
    sessionStorage.setItem(key, value);
  } catch {
    // browsers may forbid storage for local files
  }
  return null;
}

function showTheme() {
  const select = byId("theme");
  select.value = remembered("theme") ?? "";
  const apply = () => {
    if (select.value) document.documentElement.dataset.theme = select.value;
    else delete document.documentElement.dataset.theme;
    remembered("theme", select.value);
  };
  select.addEventListener("change", apply);
  apply();
  byId("page-controls").hidden = false;
}

function showCharts(report, onPick) {
  const { curves, histograms } = report.content;
  if (curves.length) {
    reveal("training");
    byId("curves").replaceChildren(...curves.map((curve) => {
      const values = curve.values.map((value) => (value === null ? Number.NaN : Number(value)));
      return lineChart(`${curve.name}, rank ${curve.rank}: ${curve.of}`, values, report.iterations);
    }));
  }
  if (histograms.length) {
    reveal("spread");
    byId("histograms").replaceChildren(...histograms.map((each) => histogramChart(report, each)));
  }
  const points = [];
  report.distances.forEach((value, operator) => {
    if (Number.isNaN(value)) return;
    points.push({ operator, place: operator, value, isBad: report.content.operators.accused[operator] === 1, title: `${report.names[operator]}: ${text(value)} ${report.verdicts[operator]}` });
  });
  if (points.length) {
    reveal("depth");
    const step = Math.max(1, Math.ceil(points.length / 5000));
    const shown = points.filter((point, place) => point.isBad || place % step === 0);
    byId("depth-chart").replaceChildren(scatter("Distance of each operator's outputs from golden, logarithmic, in execution order; large dots are operators at fault", shown, onPick));
  }
}

async function showTable(report, detail) {
  const pick = (place) => detail.show(place);
  const table = new OperatorTable(report, pick);
  const heat = new HeatMap(report, table, pick);
  const statistics = report.content.tables;
  options(byId("statistic"), statistics, statistics.includes("max") ? "max" : statistics[0]);
  options(byId("map-statistic"), statistics, statistics[0]);
  options(byId("of-type"), [...new Set(report.types)].sort());
  const ranks = [...new Set(report.ranks)];
  options(byId("of-rank"), ranks);
  byId("of-rank-label").hidden = ranks.length < 2;
  let pages = 1;
  const render = () => {
    const isFolded = byId("by-scope").checked;
    byId("unfold").hidden = !isFolded;
    pages = table.render(isFolded, Number(byId("page-size").value));
  };
  table.onChange = () => {
    render();
    requestAnimationFrame(() => heat.draw());
  };
  const filter = () => {
    const words = byId("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
    table.filter({ words, type: byId("of-type").value, rank: byId("of-rank").value, onlyWrong: byId("only-wrong").checked });
    table.onChange();
  };
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  for (const id of ["filter", "of-type", "of-rank", "only-wrong"]) byId(id).addEventListener("input", filter);
  for (const id of ["by-scope", "page-size"]) byId(id).addEventListener("input", render);
  byId("unfold").addEventListener("click", () => {
    table.unfold(table.opened.size === 0);
    byId("unfold").textContent = table.opened.size ? "Fold all" : "Unfold all";
    render();
  });
  byId("statistic").addEventListener("input", async () => {
    await table.choose(byId("statistic").value);
    render();
  });
  byId("pages").addEventListener("click", (event) => {
    const turn = { first: 0, before: table.page - 1, next: table.page + 1, last: pages - 1 };
    if (!(event.target.dataset.page in turn)) return;
    table.page = turn[event.target.dataset.page];
    render();
  });
  byId("map-statistic").addEventListener("input", () => heat.show(byId("map-statistic").value));
  byId("map-log").addEventListener("input", () => heat.draw());
  window.addEventListener("resize", () => heat.draw());
  reveal("operators");
  await table.choose(byId("statistic").value);
  render();
  whenIdle(() => table.prepare());
  if (statistics.length && report.tensorOperators.length) {
    reveal("map");
    await heat.show(statistics[0]);
  }
}

function showAddressed(detail) {
  const show = () => {
    const operator = /^#operator-(\d+)$/.exec(location.hash);
    if (operator) detail.show(Number(operator[1]));
    const problem = /^#problem-\d+$/.test(location.hash) ? byId(location.hash.slice(1)) : null;
    if (problem) problem.open = true;
  };
  window.addEventListener("hashchange", show);
  show();
}

async function main() {
  showTheme();
  const chunks = JSON.parse(byId("data").textContent);
  const content = JSON.parse(new TextDecoder().decode(await unpacked(chunks.report)));
  const report = new Report(content, await unpacked(chunks.states), chunks);
  const detail = new Detail(report);
  for (const link of document.querySelectorAll(".scripted")) link.hidden = false;
  if (report.count) await showTable(report, detail);
  showCharts(report, (place) => detail.show(place));
  showAddressed(detail);
  document.body.dataset.ready = "yes";
}

main();
