// The page of a view: what is chosen, and from it all that is drawn.
(async () => {
const length = view.tokens.length, area = length * length, depth = view.layers, last = depth + 1;
const LISTED = 8, HEAD = 27, LEAST = 0.01, MOST = 5000, ALL = -2, TRACK = -1;

// ---- positions that are seen, and the line that each has: markers are hidden until they are asked for
const places = Array.from(view.tokens.keys()), inside = places.filter((place) => view.inside[place]);
const hasMarkers = inside.length > 0 && inside.length < length;
let seen = places, lineOf = places;
function see(markers) {
  seen = markers || !hasMarkers ? places : inside;
  lineOf = places.map((place) => seen.indexOf(place));
}
const seenOf = (shares) => Array.from(shares, (share, place) => (lineOf[place] < 0 ? 0 : share));
const cutOf = (weights) => (seen === places ? weights : Float32Array.from(seen.flatMap((from) => seen.map((to) => weights[from * length + to]))));

// ---- weights: square roots in steps, those of what is multiplied in two planes of bytes, then those of heads
const bytes = await unpacked(view.weights);
const weightOf = (steps, limit) => (steps / limit) ** 2;
const planes = view.kept.length * depth * area, maps = {}, heads = [];
view.kept.forEach((name, number) => {
  maps[name] = Array.from({length: depth}, (_, layer) => {
    const start = (number * depth + layer) * area;
    return Float32Array.from({length: area}, (_, place) =>
      weightOf(256 * bytes[start + place] + bytes[planes + start + place], view.steps[0]));
  });
});
if (view.measures.includes("rollout")) {
  maps.rollout = maps.attention.map((one) =>
    one.map((weight, place) => (weight + (Math.floor(place / length) === place % length ? 1 : 0)) / 2));
}
let start = 2 * planes;
view.heads.forEach((count) => {
  heads.push(Array.from({length: count}, (_, head) => bytes.subarray(start + head * area, start + (head + 1) * area)));
  start += count * area;
});
const headMap = (layer, head) => Float32Array.from(heads[layer][head], (steps) => weightOf(steps, view.steps[1]));

// ---- what is chosen. column: states between layers, 0 the tokens, `last` the answer; TRACK a token in all layers
const state = {measure: view.measures[0], column: last, token: 0, layer: depth - 1, head: -1, down: false, markers: false};
const own = Array(depth).fill(-1); // of each layer the head whose map is taken, -1 the mean
const chosenHeads = new Map();
const matrix = (layer) => {
  if (state.measure !== "attention" || own[layer] < 0) return maps[state.measure][layer];
  const key = `${layer}.${own[layer]}`;
  if (!chosenHeads.has(key)) chosenHeads.set(key, headMap(layer, own[layer]));
  return chosenHeads.get(key);
};

// shares of what one node reads, column by column below it, and the lines that they flow along: [column and place of the
// reader, place and column of what it reads, share]. Where layers are no stack each reads the tokens themselves.
function below(column, shares) {
  const columns = [], lines = [];
  columns[column] = shares;
  for (let at = column; at > 0; at = at === last || view.stacked ? at - 1 : 0) {
    const next = new Float64Array(length), under = at === last || view.stacked ? at - 1 : 0;
    if (at === last) {
      view.reads.forEach((weight, to) => { next[to] = weight; if (weight) lines.push([at, 0, to, under, weight]); });
    } else {
      const weights = matrix(at - 1);
      for (let from = 0; from < length; from++) {
        if (!columns[at][from]) continue;
        for (let to = 0; to < length; to++) {
          const share = columns[at][from] * weights[from * length + to];
          next[to] += share;
          if (share > 0.002) lines.push([at, from, to, under, share]);
        }
      }
    }
    columns[under] = normalised(next);
  }
  return {columns, lines};
}
// shares that nodes above one take of it
function above(column, shares) {
  const columns = [], lines = [];
  columns[column] = shares;
  for (let at = column + 1; at <= last; at++) {
    const next = new Float64Array(at === last ? 1 : length), weights = at === last ? view.reads : matrix(at - 1);
    const under = at === last || view.stacked ? at - 1 : 0, taken = columns[under] ?? new Float64Array(length);
    for (let from = 0; from < next.length; from++) {
      for (let to = 0; to < length; to++) {
        const share = weights[from * length + to] * taken[to];
        next[from] += share;
        if (share > 0.002) lines.push([at, from, to, under, share]);
      }
    }
    columns[at] = next;
  }
  return {columns, lines};
}
function normalised(shares) {
  const sum = shares.reduce((one, other) => one + other, 0);
  return sum > 0 ? shares.map((share) => share / sum) : shares;
}
const unit = (token, size = length) => Float64Array.from({length: size}, (_, place) => (place === token ? 1 : 0));
function strongest() {
  const lines = [];
  for (let at = 1; at <= depth; at++) {
    const weights = matrix(at - 1), largest = weights.reduce((one, other) => Math.max(one, other), 0);
    const ordered = Array.from(weights.keys()).filter((place) => weights[place] > largest / 10);
    ordered.sort((one, other) => weights[other] - weights[one]).slice(0, 4 * length).forEach((place) =>
      lines.push([at, Math.floor(place / length), place % length, view.stacked ? at - 1 : 0, weights[place] / largest]));
  }
  view.reads.forEach((weight, to) => weight && lines.push([last, 0, to, depth, weight]));
  return lines;
}
function flows() {
  const {column, token} = state;
  if (column === ALL) return {reads: null, readers: null, lines: strongest()};
  if (column === last) return {reads: below(last, unit(0, 1)), readers: null};
  return column === TRACK ? {reads: below(depth, unit(token)), readers: above(0, unit(token))}
    : {reads: below(column, unit(token)), readers: above(column, unit(token))};
}

// ---- words
const label = (place) => (firstOfWord(place) ? "" : "·") + view.tokens[place];
const firstOfWord = (place) => !place || view.words[place] === null || view.words[place] !== view.words[place - 1];
const where = (column) => (column === 0 ? "as a token" : `after layer ${column - 1}`);

function say(flow) {
  const said = part("said"), {column, token} = state;
  const put = (...pieces) => said.append(...pieces.map((piece) => (Array.isArray(piece) ? quoted(piece[0]) : piece)));
  const most = (shares) => largestOf(seenOf(shares), 3).flatMap((place, number) =>
    [number ? ", " : "", [label(place)], "\u00a0", made("b", {textContent: percent(shares[place])})]);
  said.replaceChildren();
  if (column === ALL) return put("The strongest lines of every layer. Choose a token, a dot or the answer to follow what flows.");
  if (column === last) {
    put("The answer, ", [view.answer], ", takes most of ", ...most(flow.reads.columns[0]));
    const marked = flow.reads.columns[0].reduce((sum, share, place) => sum + (lineOf[place] < 0 ? share : 0), 0);
    return put(...(seen === places ? ["."] : ["; ", made("b", {textContent: percent(marked)}), " lies on markers."]));
  }
  const taken = made("b", {textContent: percent(flow.readers.columns[last][0])});
  if (column === TRACK) {
    put([label(token)], ": as the last layer leaves it, it reads ", ...most(flow.reads.columns[0]), "; as a token it is read most by ",
      ...most(flow.readers.columns[depth]), ". ", taken, " of the answer is of it.");
  } else {
    put([label(token)], ` ${where(column)}`, ...(column ? [" reads ", ...most(flow.reads.columns[0])] : []),
      ...(column < depth ? [column ? "; it" : "", " is read most by ", ...most(flow.readers.columns[depth])] : []), ". ",
      taken, " of the answer goes through it.");
  }
}
function list(id, shares, column, most) {
  const found = shares ? largestOf(seenOf(shares), most) : [];
  listed(id, found, shares, label, percent, (place) => choose({column, token: place}));
  part(id).parentElement.classList.toggle("alone", most > LISTED);
}

// ---- the graph
const canvas = part("lines"), step = length > 90 ? 15 : length > 45 ? 18 : 23;
const across = (column, width) => 10 + (width - 34) * column / last;
const down = (line) => HEAD + step * (line + 0.5);
function answerLine() {
  const shares = seenOf(view.reads), sum = shares.reduce((one, other) => one + other, 0);
  return sum > 0 ? shares.reduce((total, share, place) => total + share * lineOf[place], 0) / sum : (seen.length - 1) / 2;
}
function drawGraph(flow) {
  const width = canvas.clientWidth, height = HEAD + step * seen.length + 4, answerPlace = answerLine(), ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  pen.font = `12px ${getComputedStyle(document.body).fontFamily}`;
  pen.textAlign = "center";
  pen.fillStyle = style("--quiet");
  const every = Math.ceil(22 * last / width);
  for (let column = 0; column <= depth; column++) {
    if (column % every === 0 || column === depth) pen.fillText(column ? column - 1 : "in", across(column, width), 14);
  }
  pen.textAlign = "right";
  pen.fillText("answer", width - 1, 14);
  pen.lineCap = "round";
  const lineAt = (place) => (lineOf[place] < 0 ? answerPlace : lineOf[place]); // a hidden marker that the answer reads
  const stroke = (lines, colour) => {
    const largest = lines.reduce((most, line) => (line[0] < last ? Math.max(most, line[4]) : most), 0.01); // the answer's may be 1
    pen.strokeStyle = colour;
    const drawn = lines.filter((line) => line[4] >= LEAST * largest && (line[3] === depth || lineOf[line[2]] >= 0) && (line[0] >= depth || lineOf[line[1]] >= 0)).sort((one, other) => one[4] - other[4]).slice(-MOST);
    drawn.forEach(([at, from, to, under, share]) => {
      const x1 = across(at, width), y1 = down(at === last ? answerPlace : at === depth ? lineAt(from) : lineOf[from]), x2 = across(under, width), y2 = down(lineAt(to));
      const strength = Math.min(1, share / largest), middle = (x1 + x2) / 2;
      pen.globalAlpha = 0.12 + 0.88 * Math.sqrt(strength);
      pen.lineWidth = 0.5 + (flow.lines ? 1.5 : 5) * strength;
      pen.beginPath();
      pen.moveTo(x1, y1);
      pen.bezierCurveTo(middle, y1, middle, y2, x2, y2);
      pen.stroke();
    });
    pen.globalAlpha = 1;
  };
  if (flow.lines) stroke(flow.lines, style("--reads"));
  if (flow.readers) stroke(flow.readers.lines, style("--readers"));
  if (flow.reads) stroke(flow.reads.lines, style("--reads"));
  const dot = (column, place, colour, size) => {
    pen.fillStyle = colour;
    pen.beginPath();
    pen.arc(across(column, width), down(column === last ? answerPlace : lineOf[place]), size, 0, 7);
    pen.fill();
  };
  for (let column = 0; column < last; column++) {
    const read = flow.reads?.columns[column], reader = flow.readers?.columns[column];
    const largest = [read, reader].map((shares) => (shares ? Math.max(...shares) : 1));
    for (const place of seen) {
      const parts = [read?.[place] / largest[0] || 0, reader?.[place] / largest[1] || 0];
      const strength = Math.max(...parts);
      dot(column, place, strength < 0.1 ? style("--line") : style(parts[0] >= parts[1] ? "--reads" : "--readers"), 1.8 + 2.6 * Math.sqrt(strength));
    }
  }
  dot(last, 0, state.column === last ? style("--reads") : flow.readers ? style("--readers") : style("--quiet"), 6);
  const ring = (column) => {
    pen.strokeStyle = style("--ink");
    pen.lineWidth = 2;
    pen.beginPath();
    pen.arc(across(column, width), down(column === last ? answerPlace : lineOf[state.token]), column === last ? 8 : 6.5, 0, 7);
    pen.stroke();
  };
  if (state.column === TRACK) [0, depth].forEach(ring);
  else if (state.column >= 0) ring(state.column);
}

// ---- small maps, and the large one
const nameOf = (layer, head) => (head < 0 ? `layer ${layer}, ${state.measure === "attention" ? "mean of heads" : view.titles[state.measure]}` : `layer ${layer}, head ${head}`);
const grid = part("grid"), buttons = [];
function buildGrid() {
  const most = Math.max(0, ...view.heads), row = made("tr");
  row.append(made("th"), made("th", {scope: "col", textContent: "all", title: "the measure, all heads together"}));
  for (let head = 0; head < most; head++) row.append(made("th", {scope: "col", textContent: head}));
  const headRow = made("thead"), body = made("tbody");
  headRow.append(row);
  for (let layer = 0; layer < depth; layer++) {
    const line = made("tr");
    line.append(made("th", {scope: "row", textContent: layer}));
    buttons.push([]);
    for (let head = -1; head < (view.heads[layer] ?? 0); head++) {
      const cell = made("td", {className: head < 0 ? "whole" : ""}), button = made("button", {type: "button", tabIndex: -1});
      cell.role = "presentation";
      button.setAttribute("role", "gridcell");
      button.append(made("canvas"));
      button.addEventListener("click", () => chooseMap(layer, head));
      cell.append(button);
      line.append(cell);
      buttons[layer].push(button);
    }
    body.append(line);
  }
  grid.append(headRow, body);
  grid.style.maxWidth = `${2 + 3.6 * (most + 1)}rem`;
}
let painted = "";
function drawGrid() {
  const now = `${state.measure} ${state.markers} ${style("--paper")}`;
  buttons.forEach((row, layer) => row.forEach((button, place) => {
    const chosen = layer === state.layer && place - 1 === state.head;
    button.setAttribute("aria-selected", chosen);
    button.setAttribute("aria-label", nameOf(layer, place - 1));
    button.tabIndex = chosen ? 0 : -1;
    if (now === painted) return;
    const target = button.firstChild;
    if (place) paint(target, seen.length, seen.length, cutOf(heads[layer][place - 1]), (steps) => steps / view.steps[1]);
    else paint(target, seen.length, seen.length, cutOf(maps[state.measure][layer]), Math.sqrt);
  }));
  painted = now;
}
function shownMap() {
  if (!state.down) return state.head < 0 ? maps[state.measure][state.layer] : headMap(state.layer, state.head);
  const whole = new Float32Array(area);
  for (let place = 0; place < length; place++) whole.set(below(state.layer + 1, unit(place)).columns[0], place * length);
  return whole;
}
let weights = null;
function drawMap() {
  weights = shownMap();
  paint(part("cells"), seen.length, seen.length, cutOf(weights), Math.sqrt);
  part("map-head").textContent = `Map: ${nameOf(state.layer, state.head)}`;
  part("map").classList.toggle("labelled", part("map").clientWidth / (seen.length + 6) > 9.5);
  part("cells").setAttribute("aria-label", `${nameOf(state.layer, state.head)}; the line below says what the chosen token reads in it`);
  const marked = state.column !== last && state.column !== ALL;
  [[".row", "top", "height"], [".column", "left", "width"]].forEach(([name, side, size]) => {
    const line = part("square").querySelector(name);
    line.style.display = marked ? "block" : "none";
    line.style[side] = `${100 * lineOf[state.token] / seen.length}%`;
    line.style[size] = `${100 / seen.length}%`;
  });
  if (!marked) return part("cell").replaceChildren("Point at a cell for its weight.");
  const row = weights.subarray(state.token * length, (state.token + 1) * length);
  const column = Float32Array.from({length}, (_, place) => weights[place * length + state.token]);
  const named = (shares) => largestOf(seenOf(shares), 3).flatMap((place, number) => [number ? ", " : "", quoted(label(place)), `\u00a0${percent(shares[place])}`]);
  part("cell").replaceChildren("In this map ", quoted(label(state.token)), " reads ", ...named(row), "; it is read by ", ...named(column), ".");
}
part("square").addEventListener("pointermove", (event) => {
  const box = part("cells").getBoundingClientRect();
  const [from, to] = [(event.clientY - box.top) / box.height, (event.clientX - box.left) / box.width].map((share) => seen[within(Math.floor(share * seen.length), 0, seen.length - 1)]);
  part("cell").replaceChildren(quoted(label(from)), " reads ", quoted(label(to)), `: ${percent(weights[from * length + to])}`);
  part("square").dataset.token = from;
});
part("square").addEventListener("pointerleave", drawMap);
part("square").addEventListener("click", () => choose({column: TRACK, token: Number(part("square").dataset.token ?? state.token)}));

// ---- tokens: in the text, and at both ends of the graph
const words = view.tokens.map((text, place) => {
  const button = made("button", {type: "button", textContent: text, tabIndex: -1});
  button.className = `${view.inside[place] ? "" : "marker "}${firstOfWord(place) ? "first" : ""}`;
  button.addEventListener("click", () => choose({column: TRACK, token: place}));
  return button;
});
part("words").append(...words);
const ends = ["below", "above"].map((id) => view.tokens.map((text, place) => {
  const one = made("bdi", {textContent: label(place), title: text, className: view.inside[place] ? "" : "marker"});
  one.addEventListener("click", () => choose({column: TRACK, token: place}));
  part(id).append(one);
  return one;
}));
["rows", "columns"].forEach((id) => part(id).append(...places.map((place) => made("bdi", {textContent: label(place)}))));
const byPlace = [words, ...ends, ...["rows", "columns"].map((id) => Array.from(part(id).children))];
part("graph").style.setProperty("--step", `${step}px`);

// ---- all of it, whenever something is chosen
function draw() {
  byPlace.forEach((all) => all.forEach((one, place) => { one.hidden = lineOf[place] < 0; }));
  const flow = flows();
  say(flow);
  const both = [flow.reads && state.column !== 0 ? flow.reads.columns[0] : null, flow.readers && state.column !== depth ? flow.readers.columns[depth] : null];
  const most = both.every(Boolean) ? LISTED : 2 * LISTED;
  list("reads", both[0], 0, most);
  list("readers", both[1], depth, most);
  drawGraph(flow);
  shade(words, flow.reads?.columns[0], "var(--reads)");
  shade(ends[0], flow.reads?.columns[0], "var(--reads)");
  shade(ends[1], flow.readers?.columns[depth], "var(--readers)");
  const token = state.column === last || state.column === ALL ? -1 : state.token;
  words.forEach((one, place) => {
    one.setAttribute("aria-pressed", place === token);
    one.tabIndex = place === state.token ? 0 : -1;
  });
  ends.forEach((end) => end.forEach((one, place) => one.classList.toggle("chosen", place === token)));
  part("about").textContent = view.about[state.measure];
  document.querySelectorAll("[name=measure]").forEach((one) => { one.checked = one.value === state.measure; });
  part("down").checked = state.down;
  if (part("markers")) part("markers").checked = state.markers;
  drawGrid();
  drawMap();
}
function choose(change) {
  Object.assign(state, change);
  if (state.measure !== "attention") { own.fill(-1); state.head = -1; }
  see(state.markers);
  if (lineOf[state.token] < 0) state.token = seen[0];
  draw();
  const {measure, column, token, layer, head} = state;
  try {
    history.replaceState(null, "", `#${[measure, column, token, layer, head].join(".")}`);
  } catch { /* a page within a notebook has no address of its own */ }
}
function chooseMap(layer, head) {
  own.fill(-1);
  if (head >= 0) own[layer] = head;
  choose({layer, head, ...(head >= 0 ? {measure: "attention"} : {})});
}
part("graph").addEventListener("keydown", (event) => {
  const arrow = arrows[event.key];
  if (!arrow && !["Enter", "Escape"].includes(event.key)) return;
  event.preventDefault();
  if (event.key === "Escape") return choose({column: last});
  if (event.key === "Enter") return choose({column: TRACK});
  const first = state.column < 0 ? 0 : state.column;
  choose({token: seen[within(lineOf[state.token] + arrow[1], 0, seen.length - 1)], column: arrow[0] ? within(first + arrow[0], 0, last) : state.column === last || state.column === ALL ? TRACK : state.column});
});
part("words").addEventListener("keydown", (event) => {
  const arrow = arrows[event.key];
  if (!arrow) return;
  event.preventDefault();
  const forward = getComputedStyle(part("words")).direction === "rtl" ? -arrow[0] : arrow[0];
  const token = seen[within(lineOf[state.token] + forward + arrow[1], 0, seen.length - 1)];
  choose({column: TRACK, token});
  words[token].focus();
});
grid.addEventListener("keydown", (event) => {
  const arrow = arrows[event.key];
  if (!arrow) return;
  event.preventDefault();
  const layer = within(state.layer + arrow[1], 0, depth - 1);
  chooseMap(layer, within(state.head + arrow[0], -1, (view.heads[layer] ?? 0) - 1));
  buttons[layer][state.head + 1].focus();
});
canvas.addEventListener("click", (event) => {
  const box = canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
  const columns = Array.from({length: last + 1}, (_, column) => Math.abs(across(column, box.width) - x));
  const column = columns.indexOf(Math.min(...columns));
  choose(column === last ? {column} : {column, token: seen[within(Math.floor((y - HEAD) / step), 0, seen.length - 1)]});
});
part("answer").addEventListener("click", () => choose({column: last}));
part("all").addEventListener("click", () => choose({column: ALL}));
part("markers")?.addEventListener("change", (event) => choose({markers: event.target.checked}));
part("down").addEventListener("change", (event) => choose({down: event.target.checked}));
part("measures").addEventListener("change", (event) => choose({measure: event.target.value}));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
new ResizeObserver(() => drawGraph(flows())).observe(part("graph"));

// ---- what the address asks for, where that is there
buildGrid();
const [measure, ...numbers] = location.hash.slice(1).split(".");
const [column, token, layer, head] = numbers.map(Number);
if (view.measures.includes(measure) && isThere(column, ALL, last) && isThere(token, 0, length - 1) && isThere(layer, 0, depth - 1)) {
  Object.assign(state, {measure, column, token, layer, markers: column !== last && hasMarkers && !view.inside[token]});
  if (isThere(head, 0, (view.heads[layer] ?? 0) - 1)) { state.head = head; own[layer] = head; }
}
see(state.markers);
if (lineOf[state.token] < 0) state.token = seen[0];
draw();
document.documentElement.dataset.ready = "yes";
})();
