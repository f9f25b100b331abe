// The page of a pair of sentences: one measure, layer, head and row of attention at a time.
(async () => {
const bytes = await unpacked(view.weights), values = new Int16Array(bytes.buffer, 0, bytes.length / 2);
const wide = view.source.length, high = view.target.length, area = wide * high, LISTED = 8, SURE = 2, POSSIBLE = 1;
let start = 0;
view.measures.forEach((measure) => {
  measure.start = start;
  start += measure.sizes.reduce((size, axis) => size * Math.max(1, axis), area);
});

// ---- what is chosen. head: NONE is the mean of heads; of target and source words NONE is none
const state = {measure: 0, row: 0, layer: 0, head: NONE, target: NONE, source: NONE};
const measure = () => view.measures[state.measure];
function mapOf(layer, head) {
  const {sizes: [, heads, rows], start: first, largest: unit} = measure(), many = Math.max(1, heads), sum = new Float32Array(area);
  const chosen = head === NONE ? Array.from({length: many}, (_, number) => number) : [head];
  chosen.forEach((number) => {
    const place = first + ((layer * many + number) * Math.max(1, rows) + (rows ? state.row : 0)) * area;
    for (let at = 0; at < area; at++) sum[at] += (values[place + at] * unit) / view.steps / chosen.length;
  });
  return sum;
}
const amountOf = (weights) => {
  const most = measure().share ? 1 : weights.reduce((size, weight) => Math.max(size, Math.abs(weight)), 1e-30);
  return (weight) => Math.sign(weight) * Math.sqrt(Math.abs(weight) / most);
};
const number = (weight) => (measure().share ? percent(weight) : minus(`${Number(weight.toPrecision(3))}`));
const rowOf = (weights, target) => Array.from(weights.subarray(target * wide, (target + 1) * wide));
const columnOf = (weights, source) => Array.from({length: high}, (_, target) => weights[target * wide + source]);
// the link of each target word: its largest weight, the first of equal ones
const linked = (weights) => Array.from({length: high}, (_, target) => {
  const row = rowOf(weights, target);
  return row.indexOf(Math.max(...row));
});
const gold = (target, source) => (view.links ? view.links[target * wide + source] : 0);

// ---- words
const sides = {source: view.source, target: view.target}, buttons = {};
Object.entries(sides).forEach(([side, words]) => {
  buttons[side] = words.map((text, place) => element("button", {type: "button", textContent: text, className: "first",
    title: side === "target" ? `probability ${view.probs[place].toFixed(2)}` : ""}));
  toolbar(side, buttons[side], (place, byKey) => choose({target: NONE, source: NONE, [side]: !byKey && state[side] === place ? NONE : place}));
});
part("rows-of-map").append(...view.target.map((text) => element("bdi", {textContent: text})));
part("columns").append(...view.source.map((text) => element("bdi", {textContent: text})));

const nameOf = (layer, head) => [measure().title, measure().sizes[0] ? `layer ${layer}` : "",
  head >= 0 ? `head ${head}` : measure().sizes[1] ? "mean of heads" : ""].filter(Boolean).join(", ");
function say(weights) {
  const {target, source} = state, put = (...pieces) => part("sentence").replaceChildren(...pieces), bold = (text) => element("b", {textContent: text});
  const names = (words, places) => (places.length ? places.flatMap((place, index) => [index ? ", " : "", quoted(words[place])]) : ["nothing"]);
  if (target !== NONE && source !== NONE) {
    const kind = ["no link", "a possible link", "a sure link"][gold(target, source)];
    return put(quoted(view.target[target]), " reads ", quoted(view.source[source]), ": ", bold(number(weights[target * wide + source])), view.links ? `; ${kind} in gold.` : ".");
  }
  if (target !== NONE || source !== NONE) {
    const rows = target !== NONE, words = rows ? view.source : view.target, shares = rows ? rowOf(weights, target) : columnOf(weights, source);
    const links = Array.from(words.keys()).filter((place) => (rows ? gold(target, place) : gold(place, source)));
    return put(quoted(rows ? view.target[target] : view.source[source]), rows ? " reads " : " is read most by ",
      ...largest(shares, (place) => words[place], number), ...(view.links ? [rows ? "; in gold " : "; in gold by ", ...names(words, links)] : []), ".");
  }
  if (!view.links) return put("Choose a word for what it reads, or who reads it.");
  const kinds = linked(weights).map((place, word) => gold(word, place)), sure = view.links.filter((kind) => kind === SURE).length;
  const both = kinds.filter((kind) => kind === SURE).length, allowed = kinds.filter(Boolean).length;
  return put("Linked by its largest weight, ", bold(`${allowed} of ${high}`), " target words are linked as in gold; ", bold(`${both} of ${sure}`),
    " sure links are there. Error rate of this pair: ", bold((1 - (both + allowed) / (high + sure)).toFixed(2)), ".");
}

// ---- the map: cells, frames of links, gold
function drawMap(weights) {
  const canvas = part("cells"), width = part("square").clientWidth, cell = width / wide, ratio = window.devicePixelRatio || 1, image = element("canvas");
  paint(image, wide, high, weights, amountOf(weights));
  Object.assign(canvas, {width: Math.round(width * ratio), height: Math.round(cell * high * ratio)});
  canvas.style.height = `${cell * high}px`;
  const pen = canvas.getContext("2d");
  pen.imageSmoothingEnabled = false;
  pen.drawImage(image, 0, 0, canvas.width, canvas.height);
  pen.scale(ratio, ratio);
  const box = (target, source, inset, colour) => {
    Object.assign(pen, {strokeStyle: style(colour), lineWidth: 1.5});
    pen.strokeRect(source * cell + inset, target * cell + inset, cell - 2 * inset, cell - 2 * inset);
  };
  linked(weights).forEach((source, target) => box(target, source, 1, "--ink"));
  (view.links ?? []).forEach((kind, place) => {
    const target = Math.floor(place / wide), source = place % wide, inset = cell * 0.36;
    if (!kind) return;
    pen.fillStyle = style(kind === SURE ? "--readers" : "--paper");
    pen.fillRect(source * cell + inset, target * cell + inset, cell - 2 * inset, cell - 2 * inset);
    box(target, source, inset, kind === POSSIBLE ? "--readers" : "--paper");
  });
  Object.assign(pen, {strokeStyle: style("--ink"), lineWidth: 2});
  if (state.target !== NONE) pen.strokeRect(1, state.target * cell, width - 2, cell);
  if (state.source !== NONE) pen.strokeRect(state.source * cell, 1, cell, cell * high - 2);
  part("map-head").textContent = nameOf(state.layer, state.head);
  part("cell").textContent = "Point at a cell for its weight.";
}
let shown = null;
const cellAt = (event) => {
  const box = part("cells").getBoundingClientRect();
  return [[(event.clientY - box.top) / box.height, high], [(event.clientX - box.left) / box.width, wide]]
    .map(([share, count]) => within(Math.floor(share * count), 0, count - 1));
};
part("square").addEventListener("pointermove", (event) => {
  const [target, source] = cellAt(event);
  part("cell").replaceChildren(quoted(view.target[target]), " reads ", quoted(view.source[source]), `: ${number(shown[target * wide + source])}`);
});
part("square").addEventListener("click", (event) => {
  const [target, source] = cellAt(event);
  choose({target, source});
});
part("matrix").addEventListener("keydown", (event) => {
  const arrow = arrows[event.key];
  if (!arrow && event.key !== "Escape") return;
  event.preventDefault();
  if (!arrow) return choose({target: NONE, source: NONE});
  choose(arrow[1] ? {target: within(state.target + arrow[1], 0, high - 1)} : {source: within(state.source + arrow[0], 0, wide - 1)});
});

// ---- small maps
let drawGrid = null, gridOf = null, painted = "";
function drawMaps() {
  const now = `${state.measure} ${state.row} ${style("--paper")}`, [layers, heads] = measure().sizes;
  if (gridOf !== state.measure) drawGrid = tableOfMaps(Array(Math.max(1, layers)).fill(heads), layers, (layer, head) => choose({layer, head}));
  gridOf = state.measure;
  drawGrid(state.layer, state.head, nameOf, now === painted ? null : (canvas, layer, head) => {
    const weights = mapOf(layer, head);
    canvas.style.aspectRatio = `${wide} / ${high}`;
    paint(canvas, wide, high, weights, amountOf(weights));
  });
  painted = now;
}

// ---- all of it, whenever something is chosen
function draw() {
  shown = mapOf(state.layer, state.head);
  const {target, source} = state, row = target === NONE ? null : rowOf(shown, target), column = source === NONE ? null : columnOf(shown, source);
  say(shown);
  listed("reads", row, LISTED, (place) => view.source[place], number, (place) => choose({source: place, target: NONE}));
  listed("readers", column, LISTED, (place) => view.target[place], number, (place) => choose({target: place, source: NONE}));
  ["reads", "readers"].forEach((id) => part(id).parentElement.classList.toggle("alone", !(row && column)));
  shade(buttons.source, row, "var(--reads)");
  shade(buttons.target, column, "var(--readers)");
  Object.entries(buttons).forEach(([side, nodes]) => nodes.forEach((node, place) =>
    Object.assign(node, {ariaPressed: place === state[side], tabIndex: place === Math.max(0, state[side]) ? 0 : -1})));
  document.querySelectorAll("[name=measure]").forEach((node) => { node.checked = node.value === measure().name; });
  document.querySelectorAll("[name=row]").forEach((node) =>
    Object.assign(node, {checked: Number(node.value) === state.row, disabled: !measure().sizes[2]}));
  drawMaps();
  drawMap(shown);
}
function choose(change) {
  Object.assign(state, change);
  const [layers, heads] = measure().sizes;
  state.layer = within(state.layer, 0, Math.max(1, layers) - 1);
  state.head = within(state.head, NONE, heads - 1);
  draw();
  setAddress([measure().name, state.row, state.layer, state.head, state.target, state.source]);
}
part("measures").addEventListener("change", (event) => choose({measure: view.measures.findIndex(({name}) => name === event.target.value)}));
part("rows-of-attention")?.addEventListener("change", (event) => choose({row: Number(event.target.value)}));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
new ResizeObserver(() => drawMap(shown)).observe(part("matrix"));

// ---- what the address asks for, where that is there
const [name, ...numbers] = address(), [row, layer, head, target, source] = numbers.map(Number);
const place = view.measures.findIndex((each) => each.name === name);
state.layer = Math.max(0, measure().sizes[0] - 1);
if (place >= 0 && isBetween(row, 0, 1) && isBetween(target, NONE, high - 1) && isBetween(source, NONE, wide - 1)) {
  Object.assign(state, {measure: place, row, target, source});
  if (isBetween(layer, 0, measure().sizes[0] - 1)) state.layer = layer;
  if (isBetween(head, NONE, measure().sizes[1] - 1)) state.head = head;
}
state.layer = within(state.layer, 0, Math.max(1, measure().sizes[0]) - 1);
draw();
document.documentElement.dataset.ready = "yes";
})();
