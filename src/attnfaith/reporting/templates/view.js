// The page of a view: what is chosen, and from it all that is drawn.
(async () => {
const length = view.tokens.length, area = length * length, depth = view.layers, last = depth + 1;
const LISTED = 8, HEAD = 27, LEAST = 0.01, MOST = 5000, TRACK = -1;

// ---- positions that are seen, and the line that each has: markers are hidden until they are asked for
const places = Array.from(view.tokens.keys()), inside = places.filter((place) => view.inside[place]);
const hasMarkers = inside.length > 0 && inside.length < length;
let seen = places, lineOf = places;
function see(markers) {
  seen = markers || !hasMarkers ? places : inside;
  lineOf = places.map((place) => seen.indexOf(place));
}
const seenOf = (shares) => Array.from(shares, (share, place) => (lineOf[place] < 0 ? 0 : share));
const seenMap = (weights) => (seen === places ? weights : Float32Array.from(seen.flatMap((from) => seen.map((to) => weights[from * length + to]))));

// ---- weights: square roots in steps, those of what is multiplied in two planes of bytes, then those of heads
const bytes = await unpacked(view.weights), planes = view.kept.length * depth * area, maps = {}, heads = [];
view.kept.forEach((name, number) => {
  maps[name] = Array.from({length: depth}, (_, layer) => Float32Array.from({length: area}, (_, at) => {
    const place = (number * depth + layer) * area + at;
    return ((256 * bytes[place] + bytes[planes + place]) / view.steps[0]) ** 2;
  }));
});
if (view.measures.includes("rollout")) {
  maps.rollout = maps.attention.map((map) => map.map((weight, place) => (weight + Number(Math.floor(place / length) === place % length)) / 2));
}
let start = 2 * planes;
view.heads.forEach((count) => {
  heads.push(Array.from({length: count}, (_, head) => bytes.subarray(start + head * area, start + (head + 1) * area)));
  start += count * area;
});
const headMap = (layer, head) => Float32Array.from(heads[layer][head], (steps) => (steps / view.steps[1]) ** 2);

// ---- what is chosen. column: states between layers, 0 the tokens, `last` the answer; TRACK a token in all layers. head: of
// the chosen layer, which takes the place of its heads' mean
const state = {measure: view.measures[0], column: last, token: 0, layer: depth - 1, head: NONE, markers: false};
const matrix = (layer) => (state.head !== NONE && layer === state.layer ? headMap(layer, state.head) : maps[state.measure][layer]);

// shares of what one node reads, column by column below it, and the lines that they flow along: [column and place of the
// reader, place and column of what it reads, share]. Where layers are no stack each reads the tokens themselves.
const under = (column) => (column === last || view.stacked ? column - 1 : 0);
function below(column, shares) {
  const columns = [], lines = [];
  columns[column] = shares;
  for (let at = column; at > 0; at = under(at)) {
    const next = new Float64Array(length), weights = at === last ? view.reads : matrix(at - 1);
    columns[at].forEach((share, from) => {
      for (let to = 0; share && to < length; to++) {
        const flow = share * weights[from * length + to];
        next[to] += flow;
        if (flow > 0.002) lines.push([at, from, to, under(at), flow]);
      }
    });
    const sum = next.reduce((total, share) => total + share, 0);
    columns[under(at)] = sum > 0 ? next.map((share) => share / sum) : next;
  }
  return {columns, lines};
}
// shares that nodes above one take of it
function above(column, shares) {
  const columns = [], lines = [];
  columns[column] = shares;
  for (let at = column + 1; at <= last; at++) {
    const next = new Float64Array(at === last ? 1 : length), weights = at === last ? view.reads : matrix(at - 1);
    const taken = columns[under(at)] ?? new Float64Array(length);
    for (let from = 0; from < next.length; from++) {
      for (let to = 0; to < length; to++) {
        const flow = weights[from * length + to] * taken[to];
        next[from] += flow;
        if (flow > 0.002) lines.push([at, from, to, under(at), flow]);
      }
    }
    columns[at] = next;
  }
  return {columns, lines};
}
const unit = (token, size = length) => Float64Array.from({length: size}, (_, place) => Number(place === token));
function flows() {
  const {column, token} = state;
  if (column === last) return {reads: below(last, unit(0, 1)), readers: null};
  return column === TRACK ? {reads: below(depth, unit(token)), readers: above(0, unit(token))}
    : {reads: below(column, unit(token)), readers: above(column, unit(token))};
}

// ---- words
const isFirst = (place) => !place || view.words[place] === null || view.words[place] !== view.words[place - 1];
const label = (place) => (isFirst(place) ? "" : "·") + view.tokens[place];
function say(flow) {
  const {column, token} = state, most = (shares) => largest(seenOf(shares), label), put = (...pieces) => part("sentence").replaceChildren(...pieces);
  if (column === last) {
    const shares = flow.reads.columns[0], marked = shares.reduce((sum, share, place) => sum + (lineOf[place] < 0 ? share : 0), 0);
    const markers = seen === places ? ["."] : ["; ", element("b", {textContent: percent(marked)}), " lies on markers."];
    return put("The answer, ", quoted(view.answer), ", takes most of ", ...most(shares), ...markers);
  }
  const taken = element("b", {textContent: percent(flow.readers.columns[last][0])});
  if (column === TRACK) {
    return put(quoted(label(token)), ": as the last layer leaves it, it reads ", ...most(flow.reads.columns[0]), "; as a token it is read most by ",
      ...most(flow.readers.columns[depth]), ". ", taken, " of the answer is of it.");
  }
  put(quoted(label(token)), column ? ` after layer ${column - 1} reads ` : " as a token", ...(column ? most(flow.reads.columns[0]) : []),
    ...(column < depth ? [`${column ? "; it" : ""} is read most by `, ...most(flow.readers.columns[depth])] : []), ". ", taken, " of the answer goes through it.");
}

// ---- the graph
const canvas = part("lines"), step = length > 90 ? 15 : length > 45 ? 18 : 23;
const across = (column, width) => 10 + ((width - 34) * column) / last;
const down = (line) => HEAD + step * (line + 0.5);
function answerLine() {
  const shares = seenOf(view.reads), sum = shares.reduce((total, share) => total + share, 0);
  return sum > 0 ? shares.reduce((total, share, place) => total + share * lineOf[place], 0) / sum : (seen.length - 1) / 2;
}
function drawGraph(flow) {
  const width = canvas.clientWidth, height = HEAD + step * seen.length + 4, answer = answerLine(), ratio = window.devicePixelRatio || 1;
  Object.assign(canvas, {width: Math.round(width * ratio), height: Math.round(height * ratio)});
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  Object.assign(pen, {font: `12px ${getComputedStyle(document.body).fontFamily}`, textAlign: "center", fillStyle: style("--quiet"), lineCap: "round"});
  const every = Math.ceil((22 * last) / width);
  for (let column = 0; column <= depth; column++) {
    if (column % every === 0 || column === depth) pen.fillText(column ? column - 1 : "in", across(column, width), 14);
  }
  pen.textAlign = "right";
  pen.fillText("answer", width - 1, 14);
  const heightOf = (column, place) => down(column === last || lineOf[place] < 0 ? answer : lineOf[place]); // a hidden marker that the answer reads
  const visible = (column, place) => column >= depth || lineOf[place] >= 0;
  const stroke = (lines, colour) => {
    const most = lines.reduce((size, line) => (line[0] < last ? Math.max(size, line[4]) : size), 0.01); // the answer's may be 1
    const drawn = lines.filter(([at, from, to, lower, share]) => share >= LEAST * most && visible(at, from) && visible(lower, to));
    pen.strokeStyle = colour;
    drawn.sort((one, other) => one[4] - other[4]).slice(-MOST).forEach(([at, from, to, lower, share]) => {
      const strength = Math.min(1, share / most), x1 = across(at, width), x2 = across(lower, width), middle = (x1 + x2) / 2;
      const y1 = heightOf(at, from), y2 = heightOf(lower, to);
      pen.globalAlpha = 0.12 + 0.88 * Math.sqrt(strength);
      pen.lineWidth = 0.5 + 5 * strength;
      pen.beginPath();
      pen.moveTo(x1, y1);
      pen.bezierCurveTo(middle, y1, middle, y2, x2, y2);
      pen.stroke();
    });
    pen.globalAlpha = 1;
  };
  if (flow.readers) stroke(flow.readers.lines, style("--readers"));
  stroke(flow.reads.lines, style("--reads"));
  const circle = (column, place, size) => {
    pen.beginPath();
    pen.arc(across(column, width), heightOf(column, place), size, 0, 7);
  };
  for (let column = 0; column < last; column++) {
    const both = [flow.reads.columns[column], flow.readers?.columns[column]], most = both.map((shares) => (shares ? Math.max(...shares) : 1));
    for (const place of seen) {
      const [read, reader] = both.map((shares, side) => (shares?.[place] ?? 0) / most[side] || 0), strength = Math.max(read, reader);
      pen.fillStyle = style(strength < 0.1 ? "--line" : read >= reader ? "--reads" : "--readers");
      circle(column, place, 1.8 + 2.6 * Math.sqrt(strength));
      pen.fill();
    }
  }
  pen.fillStyle = style(state.column === last ? "--reads" : "--readers");
  circle(last, 0, 6);
  pen.fill();
  Object.assign(pen, {strokeStyle: style("--ink"), lineWidth: 2});
  for (const column of state.column === TRACK ? [0, depth] : [state.column]) {
    circle(column, state.token, column === last ? 8 : 6.5);
    pen.stroke();
  }
}

// ---- small maps, and the large one
const nameOf = (layer, head) => `layer ${layer}, ${head >= 0 ? `head ${head}` : state.measure === "attention" ? "mean of heads" : view.titles[state.measure]}`;
const drawGrid = tableOfMaps(Array.from({length: depth}, (_, layer) => view.heads[layer] ?? 0), true, chooseMap);
let painted = "";
function drawMaps() {
  const now = `${state.measure} ${state.markers} ${style("--paper")}`;
  drawGrid(state.layer, state.head, nameOf, now === painted ? null : (target, layer, head) => (head < 0
    ? paint(target, seen.length, seen.length, seenMap(maps[state.measure][layer]), Math.sqrt)
    : paint(target, seen.length, seen.length, seenMap(heads[layer][head]), (steps) => steps / view.steps[1])));
  painted = now;
}
const square = part("square");
let weights = null;
function drawMap() {
  weights = matrix(state.layer);
  paint(part("cells"), seen.length, seen.length, seenMap(weights), Math.sqrt);
  part("map-head").textContent = `Map: ${nameOf(state.layer, state.head)}`;
  part("map").classList.toggle("labelled", part("map").clientWidth / (seen.length + 6) > 9.5);
  part("cells").setAttribute("aria-label", `${nameOf(state.layer, state.head)}; the line below names what the chosen token reads in it`);
  [[".row", "top", "height"], [".column", "left", "width"]].forEach(([name, side, size]) => Object.assign(square.querySelector(name).style,
    {display: state.column === last ? "none" : "block", [side]: `${(100 * lineOf[state.token]) / seen.length}%`, [size]: `${100 / seen.length}%`}));
  if (state.column === last) return part("cell").replaceChildren("Point at a cell for its weight.");
  const row = weights.subarray(state.token * length, (state.token + 1) * length), column = places.map((place) => weights[place * length + state.token]);
  part("cell").replaceChildren("In this map ", quoted(label(state.token)), " reads ", ...largest(seenOf(row), label), "; it is read by ", ...largest(seenOf(column), label), ".");
}
square.addEventListener("pointermove", (event) => {
  const box = part("cells").getBoundingClientRect(), shares = [(event.clientY - box.top) / box.height, (event.clientX - box.left) / box.width];
  const [from, to] = shares.map((share) => seen[within(Math.floor(share * seen.length), 0, seen.length - 1)]);
  part("cell").replaceChildren(quoted(label(from)), " reads ", quoted(label(to)), `: ${percent(weights[from * length + to])}`);
  square.dataset.token = from;
});
square.addEventListener("pointerleave", drawMap);
square.addEventListener("click", () => choose({column: TRACK, token: Number(square.dataset.token ?? state.token)}));

// ---- tokens: in the text, and at both ends of the graph
const track = (token) => choose({column: TRACK, token});
const words = view.tokens.map((text, place) =>
  element("button", {type: "button", textContent: text, className: `${view.inside[place] ? "" : "marker "}${isFirst(place) ? "first" : ""}`}));
toolbar("words", words, track, () => seen);
const ends = ["below", "above"].map((id) => view.tokens.map((text, place) => {
  const node = element("bdi", {textContent: label(place), title: text, className: view.inside[place] ? "" : "marker"});
  node.addEventListener("click", () => track(place));
  part(id).append(node);
  return node;
}));
["rows", "columns"].forEach((id) => part(id).append(...places.map((place) => element("bdi", {textContent: label(place)}))));
const byPlace = [words, ...ends, ...["rows", "columns"].map((id) => Array.from(part(id).children))];
part("graph").style.setProperty("--step", `${step}px`);

// ---- all of it, whenever something is chosen
function draw() {
  byPlace.forEach((nodes) => nodes.forEach((node, place) => { node.hidden = lineOf[place] < 0; }));
  const flow = flows(), {column, token} = state, read = flow.reads.columns[0], readers = flow.readers?.columns[depth];
  say(flow);
  const lists = [column === 0 ? null : read, column === depth ? null : readers], most = lists.every(Boolean) ? LISTED : 2 * LISTED;
  ["reads", "readers"].forEach((id, side) => {
    listed(id, lists[side] && seenOf(lists[side]), most, label, percent, (place) => choose({column: side ? depth : 0, token: place}));
    part(id).parentElement.classList.toggle("alone", most > LISTED);
  });
  drawGraph(flow);
  shade(words, read, "var(--reads)");
  shade(ends[0], read, "var(--reads)");
  shade(ends[1], readers, "var(--readers)");
  words.forEach((node, place) => Object.assign(node, {ariaPressed: column !== last && place === token, tabIndex: place === token ? 0 : -1}));
  ends.forEach((end) => end.forEach((node, place) => node.classList.toggle("chosen", column !== last && place === token)));
  part("about").textContent = view.about[state.measure];
  document.querySelectorAll("[name=measure]").forEach((node) => { node.checked = node.value === state.measure; });
  if (part("markers")) part("markers").checked = state.markers;
  drawMaps();
  drawMap();
}
function choose(change) {
  Object.assign(state, change);
  if (state.measure !== "attention") state.head = NONE;
  see(state.markers);
  if (lineOf[state.token] < 0) state.token = seen[0];
  draw();
  setAddress([state.measure, state.column, state.token, state.layer, state.head]);
}
function chooseMap(layer, head) {
  choose({layer, head, ...(head >= 0 ? {measure: "attention"} : {})});
}
part("graph").addEventListener("keydown", (event) => {
  const arrow = arrows[event.key], {column} = state;
  if (!arrow && !["Enter", "Escape"].includes(event.key)) return;
  event.preventDefault();
  if (event.key === "Escape") return choose({column: last});
  if (event.key === "Enter") return choose({column: TRACK});
  choose({token: seen[within(lineOf[state.token] + arrow[1], 0, seen.length - 1)],
    column: arrow[0] ? within(Math.max(column, 0) + arrow[0], 0, last) : column === last ? TRACK : column});
});
canvas.addEventListener("click", (event) => {
  const box = canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
  const column = within(Math.round(((x - 10) * last) / (box.width - 34)), 0, last);
  choose(column === last ? {column} : {column, token: seen[within(Math.floor((y - HEAD) / step), 0, seen.length - 1)]});
});
part("answer").addEventListener("click", () => choose({column: last}));
part("markers")?.addEventListener("change", (event) => choose({markers: event.target.checked}));
part("measures").addEventListener("change", (event) => choose({measure: event.target.value}));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
new ResizeObserver(() => drawGraph(flows())).observe(part("graph"));

// ---- what the address asks for, where that is there
const [measure, ...numbers] = address(), [column, token, layer, head] = numbers.map(Number);
if (view.measures.includes(measure) && isBetween(column, TRACK, last) && isBetween(token, 0, length - 1) && isBetween(layer, 0, depth - 1)) {
  Object.assign(state, {measure, column, token, layer, markers: column !== last && hasMarkers && !view.inside[token]});
  if (measure === "attention" && isBetween(head, 0, (view.heads[layer] ?? 0) - 1)) state.head = head;
}
see(state.markers);
if (lineOf[state.token] < 0) state.token = seen[0];
draw();
document.documentElement.dataset.ready = "yes";
})();
