// The page of a pair of sentences: one measure, layer, head and row of attention at a time.
(async () => {
const bytes = await unpacked(view.weights);
const values = new Int16Array(bytes.buffer, 0, bytes.length / 2);
const wide = view.source.length, high = view.target.length, area = wide * high, NONE = -1, LISTED = 8;
const SURE = 2, POSSIBLE = 1;
let start = 0;
view.measures.forEach((measure) => {
  const [layers, heads, rows] = measure.sizes;
  measure.start = start;
  start += Math.max(1, layers) * Math.max(1, heads) * Math.max(1, rows) * area;
});

// ---- what is chosen. head: NONE is the mean of heads; of target and source words NONE is none
const state = {measure: 0, row: 0, layer: 0, head: NONE, target: NONE, source: NONE};
const measure = () => view.measures[state.measure];
state.layer = Math.max(0, measure().sizes[0] - 1);
function mapOf(layer, head) {
  const {sizes: [, heads, rows], start: first, largest} = measure(), many = Math.max(1, heads);
  const chosen = head === NONE ? Array.from({length: many}, (_, one) => one) : [head], sum = new Float32Array(area);
  chosen.forEach((one) => {
    const place = first + ((layer * many + one) * Math.max(1, rows) + (rows ? state.row : 0)) * area;
    for (let at = 0; at < area; at++) sum[at] += values[place + at] * largest / view.steps / chosen.length;
  });
  return sum;
}
const amountOf = (weights) => {
  const largest = measure().share ? 1 : weights.reduce((one, other) => Math.max(one, Math.abs(other)), 1e-30);
  return (weight) => Math.sign(weight) * Math.sqrt(Math.abs(weight) / largest);
};
const number = (weight) => measure().share ? percent(weight) : `${Number(weight.toPrecision(3))}`.replace("-", "−");
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
  buttons[side] = words.map((text, place) => {
    const button = made("button", {type: "button", textContent: text, tabIndex: place ? -1 : 0, className: "first"});
    if (side === "target") button.title = `probability ${view.probs[place].toFixed(2)}`;
    button.addEventListener("click", () => choose({[side]: state[side] === place ? NONE : place, [side === "source" ? "target" : "source"]: NONE}));
    return button;
  });
  part(side).append(...buttons[side]);
  part(side).addEventListener("keydown", (event) => {
    const arrow = arrows[event.key];
    if (!arrow) return;
    event.preventDefault();
    const forward = getComputedStyle(part(side)).direction === "rtl" ? -arrow[0] : arrow[0];
    const place = within(state[side] + forward + arrow[1], 0, words.length - 1);
    choose({source: NONE, target: NONE, [side]: place});
    buttons[side][place].focus();
  });
});
part("rows-of-map").append(...view.target.map((text) => made("bdi", {textContent: text})));
part("columns").append(...view.source.map((text) => made("bdi", {textContent: text})));

const nameOf = (layer, head) => [measure().title, measure().sizes[0] ? `layer ${layer}` : "", head === NONE ? (measure().sizes[1] ? "mean of heads" : "") : `head ${head}`].filter(Boolean).join(", ");
function say(weights) {
  const said = part("said"), links = linked(weights), {target, source} = state;
  said.replaceChildren();
  const words = (places, of) => places.flatMap((place, count) => [count ? ", " : "", quoted(of[place])]);
  const best = (shares, of) => largestOf(shares, 3).flatMap((place, count) => [count ? ", " : "", quoted(of[place]), "\u00a0", made("b", {textContent: number(shares[place])})]);
  if (target !== NONE && source !== NONE) {
    said.append(quoted(view.target[target]), " reads ", quoted(view.source[source]), ": ", made("b", {textContent: number(weights[target * wide + source])}), view.links ? `; ${["no link", "a possible link", "a sure link"][gold(target, source)]} in gold.` : ".");
  } else if (target !== NONE) {
    const known = Array.from({length: wide}, (_, place) => place).filter((place) => gold(target, place));
    said.append(quoted(view.target[target]), " reads ", ...best(rowOf(weights, target), view.source), ...(view.links ? ["; in gold ", ...(known.length ? words(known, view.source) : ["nothing"])] : []), ".");
  } else if (source !== NONE) {
    const known = Array.from({length: high}, (_, place) => place).filter((place) => gold(place, source));
    said.append(quoted(view.source[source]), " is read most by ", ...best(columnOf(weights, source), view.target), ...(view.links ? ["; in gold by ", ...(known.length ? words(known, view.target) : ["nothing"])] : []), ".");
  } else if (view.links) {
    const kinds = links.map((place, one) => gold(one, place)), sure = view.links.filter((kind) => kind === SURE).length;
    const both = kinds.filter((kind) => kind === SURE).length, allowed = kinds.filter(Boolean).length;
    const error = high + sure ? 1 - (both + allowed) / (high + sure) : NaN;
    said.append("Linked by its largest weight, ", made("b", {textContent: `${allowed} of ${high}`}), " target words are linked as in gold; ", made("b", {textContent: `${both} of ${sure}`}), " sure links are there. Error rate of this pair: ", made("b", {textContent: error.toFixed(2)}), ".");
  } else {
    said.append("Choose a word for what it reads, or who reads it.");
  }
}

// ---- the map: cells, frames of links, gold
function drawMap(weights) {
  const square = part("square"), canvas = part("cells"), width = square.clientWidth, cell = width / wide, ratio = window.devicePixelRatio || 1;
  const image = made("canvas");
  paint(image, wide, high, weights, amountOf(weights));
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(cell * high * ratio);
  canvas.style.height = `${cell * high}px`;
  const pen = canvas.getContext("2d");
  pen.imageSmoothingEnabled = false;
  pen.drawImage(image, 0, 0, canvas.width, canvas.height);
  pen.scale(ratio, ratio);
  const box = (target, source, inset, colour, size) => {
    pen.strokeStyle = colour;
    pen.lineWidth = size;
    pen.strokeRect(source * cell + inset, target * cell + inset, cell - 2 * inset, cell - 2 * inset);
  };
  linked(weights).forEach((source, target) => box(target, source, 1, style("--ink"), 1.5));
  for (let target = 0; target < high; target++) {
    for (let source = 0; source < wide; source++) {
      const kind = gold(target, source), inset = cell * 0.36;
      if (!kind) continue;
      pen.fillStyle = kind === SURE ? style("--readers") : style("--paper");
      pen.fillRect(source * cell + inset, target * cell + inset, cell - 2 * inset, cell - 2 * inset);
      box(target, source, inset, kind === POSSIBLE ? style("--readers") : style("--paper"), 1.5);
    }
  }
  pen.strokeStyle = style("--ink");
  pen.lineWidth = 2;
  if (state.target !== NONE) pen.strokeRect(1, state.target * cell, width - 2, cell);
  if (state.source !== NONE) pen.strokeRect(state.source * cell, 1, cell, cell * high - 2);
  part("map-head").textContent = nameOf(state.layer, state.head);
  part("cell").textContent = "Point at a cell for its weight.";
}
let shown = null;
const cellAt = (event) => {
  const box = part("cells").getBoundingClientRect();
  return [[(event.clientY - box.top) / box.height, high], [(event.clientX - box.left) / box.width, wide]].map(([share, count]) => within(Math.floor(share * count), 0, count - 1));
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
const grid = part("grid");
let cells = [], painted = "";
function buildGrid() {
  const [layers, heads] = measure().sizes, top = made("tr"), head = made("thead"), body = made("tbody");
  top.append(made("th"), made("th", {scope: "col", textContent: "all"}));
  for (let one = 0; one < heads; one++) top.append(made("th", {scope: "col", textContent: one}));
  head.append(top);
  cells = Array.from({length: Math.max(1, layers)}, (_, layer) => {
    const line = made("tr");
    line.append(made("th", {scope: "row", textContent: layers ? layer : ""}));
    body.append(line);
    return Array.from({length: heads + 1}, (_, place) => {
      const cell = made("td", {className: place ? "" : "whole"}), button = made("button", {type: "button"}), canvas = made("canvas");
      cell.role = "presentation";
      button.setAttribute("role", "gridcell");
      canvas.style.aspectRatio = `${wide} / ${high}`;
      button.append(canvas);
      button.addEventListener("click", () => choose({layer, head: place - 1}));
      cell.append(button);
      line.append(cell);
      return button;
    });
  });
  grid.replaceChildren(head, body);
  grid.style.maxWidth = `${2 + 5 * (heads + 1)}rem`;
}
function drawGrid() {
  const now = `${state.measure} ${state.row} ${style("--paper")}`;
  if (now !== painted) buildGrid();
  cells.forEach((line, layer) => line.forEach((button, place) => {
    const chosen = layer === state.layer && place - 1 === state.head;
    button.setAttribute("aria-selected", chosen);
    button.setAttribute("aria-label", nameOf(layer, place - 1));
    button.tabIndex = chosen ? 0 : -1;
    if (now === painted) return;
    const weights = mapOf(layer, place - 1);
    paint(button.firstChild, wide, high, weights, amountOf(weights));
  }));
  painted = now;
}
grid.addEventListener("keydown", (event) => {
  const arrow = arrows[event.key];
  if (!arrow) return;
  event.preventDefault();
  choose({layer: within(state.layer + arrow[1], 0, cells.length - 1), head: within(state.head + arrow[0], NONE, cells[0].length - 2)});
  cells[state.layer][state.head + 1].focus();
});

// ---- all of it, whenever something is chosen
function draw() {
  shown = mapOf(state.layer, state.head);
  const {target, source} = state, row = target === NONE ? null : rowOf(shown, target), column = source === NONE ? null : columnOf(shown, source);
  say(shown);
  listed("reads", row ? largestOf(row, LISTED) : [], row, (place) => view.source[place], number, (place) => choose({source: place, target: NONE}));
  listed("readers", column ? largestOf(column, LISTED) : [], column, (place) => view.target[place], number, (place) => choose({target: place, source: NONE}));
  ["reads", "readers"].forEach((id) => part(id).parentElement.classList.toggle("alone", !(row && column)));
  shade(buttons.source, row, "var(--reads)");
  shade(buttons.target, column, "var(--readers)");
  Object.entries(buttons).forEach(([side, all]) => all.forEach((one, place) => {
    one.setAttribute("aria-pressed", place === state[side]);
    one.tabIndex = place === Math.max(0, state[side]) ? 0 : -1;
  }));
  document.querySelectorAll("[name=measure]").forEach((one) => { one.checked = one.value === measure().name; });
  document.querySelectorAll("[name=row]").forEach((one) => {
    one.checked = Number(one.value) === state.row;
    one.disabled = !measure().sizes[2];
  });
  drawGrid();
  drawMap(shown);
}
function choose(change) {
  Object.assign(state, change);
  const [layers, heads] = measure().sizes;
  state.layer = within(state.layer, 0, Math.max(1, layers) - 1);
  state.head = within(state.head, NONE, heads - 1);
  draw();
  try {
    history.replaceState(null, "", `#${[measure().name, state.row, state.layer, state.head, state.target, state.source].join(".")}`);
  } catch { /* a page within a notebook has no address of its own */ }
}
part("measures").addEventListener("change", (event) => choose({measure: view.measures.findIndex((one) => one.name === event.target.value)}));
part("rows-of-attention")?.addEventListener("change", (event) => choose({row: Number(event.target.value)}));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
new ResizeObserver(() => drawMap(shown)).observe(part("matrix"));

// ---- what the address asks for, where that is there
const [name, ...asked] = location.hash.slice(1).split("."), [row, layer, head, target, source] = asked.map(Number);
const place = view.measures.findIndex((one) => one.name === name);
if (place >= 0 && isThere(row, 0, 1) && isThere(target, NONE, high - 1) && isThere(source, NONE, wide - 1)) {
  Object.assign(state, {measure: place, row, target, source});
  if (isThere(layer, 0, measure().sizes[0] - 1)) state.layer = layer;
  if (isThere(head, NONE, measure().sizes[1] - 1)) state.head = head;
}
state.layer = within(state.layer, 0, Math.max(1, measure().sizes[0]) - 1);
draw();
document.documentElement.dataset.ready = "yes";
})();
