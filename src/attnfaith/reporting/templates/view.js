// The page of a view: one measure, layer and head at a time; of a text and of a pair of sentences.
(async () => {
const view = JSON.parse(document.getElementById("view").textContent);
const part = (id) => document.getElementById(id);
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const isBetween = (value, low, high) => Number.isInteger(value) && value >= low && value <= high;
const ABOUT = {
  attention: "The weights themselves, of each head and their mean. For the answer layers are multiplied, as if there were no residual connections.",
  rollout: "Half of each layer is its attention, the mean of the heads, and half the residual connection (Abnar & Zuidema 2020). It uses weights alone, not the values that they weigh.",
  alti: "How near the vector that a token adds brings the state after attention, in L1 (ALTI, Ferrando et al. 2022).",
  value_zeroing: "How far a layer's result turns when a token's values are zeros in that layer (Mohebbi et al. 2023).",
};
const NONE = -1, LISTED = 8, SURE = 2, POSSIBLE = 1, MOST_LABELS = 40;

// ---- words: of a text they read themselves, of a pair target words read source words
const isText = "words" in view, source = isText ? view.words : view.source, target = isText ? view.words : view.target;
const wide = source.length, high = target.length, area = wide * high;
const isWord = (place) => !view.inside || Boolean(view.inside[place]);
const hasMarkers = isText && view.inside.includes(0) && view.inside.includes(1);
// ---- the target and source words that are shown: markers on demand
const isShown = (_, place) => !hasMarkers || isWord(place) || part("markers").checked;
const placesOf = (words) => Array.from(words.keys()).filter((place) => isShown(null, place));
let rows = placesOf(target), columns = placesOf(source);
const next = (places, now, by) => places[within(places.indexOf(now) + by, 0, places.length - 1)];

// ---- weights, in steps of the largest of their measure
const bytes = await unpacked(view.weights), values = new Int16Array(bytes.buffer, 0, bytes.length / 2);
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
const ofWords = (shares) => shares.map((share, place) => (isWord(place) ? share : 0));
const rowOf = (weights, row) => Array.from(weights.subarray(row * wide, (row + 1) * wide));
const columnOf = (weights, column) => Array.from({length: high}, (_, row) => weights[row * wide + column]);
// the link of each target word: its largest weight, the first of equal ones
const linked = (weights) => Array.from({length: high}, (_, row) => {
  const shares = rowOf(weights, row);
  return shares.indexOf(Math.max(...shares));
});
const gold = (row, column) => (view.links ? view.links[row * wide + column] : 0);

// ---- toolbars of words; arrow keys go from one to the next
const buttons = {};
for (const side of isText ? ["words"] : ["source", "target"]) {
  buttons[side] = view[side].map((text, place) => element("button", {type: "button", textContent: text,
    className: `first${isText && !isWord(place) ? " marker" : ""}`, title: side === "target" ? `probability ${view.probs[place].toFixed(2)}` : ""}));
  const choice = (place) => (isText ? {target: place, source: place} : {target: NONE, source: NONE, [side]: place});
  const box = part(side);
  box.append(...buttons[side]);
  buttons[side].forEach((button, place) =>
    button.addEventListener("click", () => choose(choice(state[isText ? "target" : side] === place ? NONE : place))));
  box.addEventListener("keydown", (event) => {
    const arrow = arrows[event.key], at = buttons[side].findIndex((button) => button.tabIndex === 0);
    if (!arrow && event.key !== "Escape") return;
    event.preventDefault();
    if (!arrow) return choose({target: NONE, source: NONE});
    const step = (getComputedStyle(box).direction === "rtl" ? -arrow[0] : arrow[0]) + arrow[1];
    const place = next(side === "source" ? columns : rows, at, step);
    choose(choice(place));
    buttons[side][place].focus();
  });
}
const named = (words) => words.map((text) => element("bdi", {textContent: text}));
part("rows").append(...named(target));
part("columns").append(...named(source));
part("matrix").classList.toggle("labelled", Math.max(wide, high) <= MOST_LABELS || !isText);

// ---- what is chosen, in a sentence
const quoted = (text) => element("span", {}, "“", element("bdi", {textContent: text.length > 40 ? `${text.slice(0, 39)}…` : text}), "”");
const bold = (text) => element("b", {textContent: text});
const largest = (shares, words, count = 3) => largestPlaces(shares, count).flatMap((place, index) =>
  [index ? ", " : "", quoted(words[place]), "\u00a0", bold(number(shares[place]))]);
const nameOf = (layer, head) => [measure().title, measure().sizes[0] ? `layer ${layer}` : "",
  head >= 0 ? `head ${head}` : measure().sizes[1] ? "mean of heads" : ""].filter(Boolean).join(", ");
function say(weights, row, column) {
  const put = (...pieces) => part("sentence").replaceChildren(...pieces), kinds = ["no link", "a possible link", "a sure link"];
  if (isText && !row) {
    const shares = view.answers[measure().name], markers = shares.reduce((sum, share, place) => sum + (isWord(place) ? 0 : share), 0);
    return put("The answer, ", quoted(view.answer), ", takes most of ", ...largest(ofWords(shares), source),
      hasMarkers ? `; ${percent(markers)} lies on markers.` : ".");
  }
  if (row && column && (!isText || state.target !== state.source)) {
    return put(quoted(target[state.target]), " reads ", quoted(source[state.source]), ": ", bold(number(row[state.source])),
      view.links ? `; ${kinds[gold(state.target, state.source)]} in gold.` : ".");
  }
  const links = (words, goldOf) => {
    const places = Array.from(words.keys()).filter(goldOf);
    return places.length ? places.flatMap((place, index) => [index ? ", " : "", quoted(words[place])]) : ["nothing"];
  };
  const pieces = [];
  if (row) {
    pieces.push(quoted(target[state.target]), " reads ", ...largest(ofWords(row), source));
    if (view.links) pieces.push("; in gold ", ...links(source, (place) => gold(state.target, place)));
  }
  if (column) {
    pieces.push(...(row ? ["; it"] : [quoted(source[state.source])]), " is read most by ", ...largest(ofWords(column), target));
    if (view.links) pieces.push("; in gold by ", ...links(target, (place) => gold(place, state.source)));
  }
  if (pieces.length) return put(...pieces, ".");
  if (!view.links) return put("Choose a word for what it reads, or who reads it.");
  const found = linked(weights).map((place, word) => gold(word, place)), sure = view.links.filter((kind) => kind === SURE).length;
  const both = found.filter((kind) => kind === SURE).length, allowed = found.filter(Boolean).length;
  return put("Linked by its largest weight, ", bold(`${allowed} of ${high}`), " target words are linked as in gold; ", bold(`${both} of ${sure}`),
    " sure links are there. Error rate of this pair: ", bold((1 - (both + allowed) / (high + sure)).toFixed(2)), ".");
}
// a list of the largest shares, each of which can be chosen; hidden where there is none
function listed(id, shares, words, choice) {
  const places = shares ? largestPlaces(shares, LISTED) : [];
  part(id).replaceChildren(...places.map((place) => {
    const bar = element("i"), button = element("button", {type: "button"}, bar,
      element("bdi", {textContent: words[place]}), element("span", {textContent: number(shares[place])}));
    bar.style.width = `${(100 * shares[place]) / shares[places[0]]}%`;
    button.addEventListener("click", () => choose(choice(place)));
    return element("li", {}, button);
  }));
  part(id).parentElement.hidden = !places.length;
}

// ---- colours: of words, and of maps, from paper over the hue to the deepest
function shade(nodes, shares, colour) {
  const most = shares ? Math.max(...shares.map(Math.abs)) : 1;
  nodes.forEach((node, place) => {
    const amount = shares && most ? Math.sqrt(Math.abs(shares[place]) / most) : 0;
    node.style.background = amount > 0.05 ? `color-mix(in srgb, ${colour} calc(var(--mix) * ${amount.toFixed(3)}), transparent)` : "";
  });
}
const channels = (name) => [1, 3, 5].map((place) => parseInt(style(name).slice(place, place + 2), 16));
function paint(canvas, weights) { // below 0 in the other hue
  const amount = amountOf(weights), places = rows.flatMap((row) => columns.map((column) => row * wide + column));
  Object.assign(canvas, {width: columns.length, height: rows.length});
  const pen = canvas.getContext("2d"), image = pen.createImageData(columns.length, rows.length);
  const paper = channels("--paper"), deep = channels("--deep"), hues = [channels("--reads"), channels("--readers")];
  places.forEach((weight, place) => {
    const signed = within(amount(weights[weight]), -1, 1), strength = Math.abs(signed), hue = hues[signed < 0 ? 1 : 0];
    const [from, to, share] = signed < 0 ? [paper, hue, strength]
      : strength < 0.65 ? [paper, hue, strength / 0.65] : [hue, deep, (strength - 0.65) / 0.35];
    for (let channel = 0; channel < 3; channel++) image.data[4 * place + channel] = from[channel] + (to[channel] - from[channel]) * share;
    image.data[4 * place + 3] = 255;
  });
  pen.putImageData(image, 0, 0);
}

// ---- the map: cells, frames of links, gold
let shown = null;
function drawMap() {
  const canvas = part("cells"), width = part("square").clientWidth, cell = width / columns.length, ratio = window.devicePixelRatio || 1, image = element("canvas");
  paint(image, shown);
  Object.assign(canvas, {width: Math.round(width * ratio), height: Math.round(cell * rows.length * ratio)});
  canvas.style.height = `${cell * rows.length}px`;
  const pen = canvas.getContext("2d");
  pen.imageSmoothingEnabled = false;
  pen.drawImage(image, 0, 0, canvas.width, canvas.height);
  pen.scale(ratio, ratio);
  const box = (row, column, inset, colour) => {
    Object.assign(pen, {strokeStyle: style(colour), lineWidth: 1.5});
    pen.strokeRect(column * cell + inset, row * cell + inset, cell - 2 * inset, cell - 2 * inset);
  };
  if (!isText) linked(shown).forEach((column, row) => box(row, column, 1, "--ink"));
  (view.links ?? []).forEach((kind, place) => {
    const row = Math.floor(place / wide), column = place % wide, inset = cell * 0.36;
    if (!kind) return;
    pen.fillStyle = style(kind === SURE ? "--readers" : "--paper");
    pen.fillRect(column * cell + inset, row * cell + inset, cell - 2 * inset, cell - 2 * inset);
    box(row, column, inset, kind === POSSIBLE ? "--readers" : "--paper");
  });
  Object.assign(pen, {strokeStyle: style("--ink"), lineWidth: 2});
  if (rows.includes(state.target)) pen.strokeRect(1, rows.indexOf(state.target) * cell, width - 2, cell);
  if (columns.includes(state.source)) pen.strokeRect(columns.indexOf(state.source) * cell, 1, cell, cell * rows.length - 2);
  part("map-head").textContent = nameOf(state.layer, state.head);
  part("cell").textContent = "Point at a cell for its weight.";
}
const cellAt = (event) => {
  const box = part("cells").getBoundingClientRect();
  return [[(event.clientY - box.top) / box.height, rows], [(event.clientX - box.left) / box.width, columns]]
    .map(([share, places]) => places[within(Math.floor(share * places.length), 0, places.length - 1)]);
};
part("square").addEventListener("pointermove", (event) => {
  const [row, column] = cellAt(event);
  part("cell").replaceChildren(quoted(target[row]), " reads ", quoted(source[column]), `: ${number(shown[row * wide + column])}`);
});
part("square").addEventListener("click", (event) => {
  const [row, column] = cellAt(event);
  choose({target: row, source: column});
});
part("matrix").addEventListener("keydown", (event) => {
  const arrow = arrows[event.key];
  if (!arrow && event.key !== "Escape") return;
  event.preventDefault();
  if (!arrow) return choose({target: NONE, source: NONE});
  choose(arrow[1] ? {target: next(rows, state.target, arrow[1])} : {source: next(columns, state.source, arrow[0])});
});

// ---- small maps: a row for each layer, first of all heads together
let grid = [], painted = "";
function makeGrid() {
  const [layers, heads] = measure().sizes, numbers = Array.from({length: heads}, (_, head) => element("th", {scope: "col", textContent: head}));
  grid = Array.from({length: Math.max(1, layers)}, (_, layer) => Array.from({length: heads + 1}, (_, place) => {
    const button = element("button", {type: "button", role: "gridcell"}, element("canvas"));
    button.addEventListener("click", () => choose({layer, head: place - 1}));
    return button;
  }));
  part("grid").replaceChildren(
    element("thead", {}, element("tr", {}, element("th"), element("th", {scope: "col", textContent: "all"}), ...numbers)),
    element("tbody", {}, ...grid.map((row, layer) => element("tr", {}, element("th", {scope: "row", textContent: layers ? layer : ""}),
      ...row.map((button, place) => element("td", {className: place ? "" : "whole", role: "presentation"}, button))))));
  part("grid").style.maxWidth = `${2 + 4 * (heads + 1)}rem`;
}
part("grid").addEventListener("keydown", (event) => {
  const arrow = arrows[event.key];
  if (!arrow) return;
  event.preventDefault();
  choose({layer: state.layer + arrow[1], head: state.head + arrow[0]});
  grid[state.layer][state.head + 1].focus();
});
function drawMaps() {
  const now = `${state.measure} ${state.row} ${style("--paper")}`;
  if (now.split(" ")[0] !== painted.split(" ")[0]) makeGrid();
  grid.forEach((row, layer) => row.forEach((button, place) => {
    const chosen = layer === state.layer && place - 1 === state.head;
    Object.assign(button, {ariaSelected: chosen, ariaLabel: nameOf(layer, place - 1), tabIndex: chosen ? 0 : -1});
    if (now === painted) return;
    button.firstChild.style.aspectRatio = `${columns.length} / ${rows.length}`;
    paint(button.firstChild, mapOf(layer, place - 1));
  }));
  painted = now;
}

// ---- all of it, whenever something is chosen
function draw() {
  shown = mapOf(state.layer, state.head);
  const row = state.target === NONE ? null : rowOf(shown, state.target), column = state.source === NONE ? null : columnOf(shown, state.source);
  const reads = isText ? ofWords(row ?? view.answers[measure().name]) : row;
  say(shown, row, column);
  part("about").textContent = isText ? ABOUT[measure().name] : "";
  part("reads-head").textContent = isText && !row ? "The answer reads" : "Reads";
  listed("reads", reads, source, (place) => (isText ? {target: place, source: place} : {source: place, target: NONE}));
  listed("readers", column && ofWords(column), target, (place) => (isText ? {target: place, source: place} : {target: place, source: NONE}));
  ["reads", "readers"].forEach((id) => part(id).parentElement.classList.toggle("alone", !(reads && column)));
  if (isText) shade(buttons.words, reads, "var(--reads)");
  else {
    shade(buttons.source, row, "var(--reads)");
    shade(buttons.target, column, "var(--readers)");
  }
  Object.entries(buttons).forEach(([side, nodes]) => nodes.forEach((node, place) => {
    const chosen = state[isText ? "target" : side];
    Object.assign(node, {ariaPressed: place === chosen, tabIndex: place === Math.max(0, chosen) ? 0 : -1});
  }));
  document.querySelectorAll("[name=measure]").forEach((node) => { node.checked = node.value === measure().name; });
  document.querySelectorAll("[name=row]").forEach((node) =>
    Object.assign(node, {checked: Number(node.value) === state.row, disabled: !measure().sizes[2]}));
  drawMaps();
  drawMap();
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
function showMarkers() {
  [rows, columns] = [placesOf(target), placesOf(source)];
  painted = painted && `${state.measure} `; // to be painted anew
  [buttons.words ?? [], part("rows").childNodes, part("columns").childNodes].forEach((nodes) =>
    nodes.forEach((node, place) => { node.hidden = !isShown(node, place); }));
}
if (hasMarkers) {
  showMarkers();
  part("markers").addEventListener("change", () => { showMarkers(); draw(); });
}
part("measures").addEventListener("change", (event) => choose({measure: view.measures.findIndex(({name}) => name === event.target.value)}));
part("rows-of-attention")?.addEventListener("change", (event) => choose({row: Number(event.target.value)}));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
new ResizeObserver(drawMap).observe(part("matrix"));

// ---- what the address asks for, where that is there
const [name, ...numbers] = location.hash.slice(1).split("."), [row, layer, head, chosenTarget, chosenSource] = numbers.map(Number);
const place = view.measures.findIndex((each) => each.name === name);
const isThere = place >= 0 && isBetween(row, 0, 1) && isBetween(chosenTarget, NONE, high - 1) && isBetween(chosenSource, NONE, wide - 1);
if (isThere) Object.assign(state, {measure: place, row, target: chosenTarget, source: chosenSource});
const [layers, heads] = measure().sizes;
state.layer = isThere && isBetween(layer, 0, layers - 1) ? layer : Math.max(0, layers - 1);
if (isThere && isBetween(head, NONE, heads - 1)) state.head = head;
draw();
document.documentElement.dataset.ready = "yes";
})();
