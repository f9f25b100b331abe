// The texts of a page: a list that is sorted and filtered, one text with every measure, and other attentions tried on it.
// Text is only ever set as text.
"use strict";
(async () => {
const ROW = 3.4, AROUND = 5, FIRST_TOKENS = 60, SHADES = 10, MOST_CLASSES = 12, STEP = 0.01;
const KINDS = {f4: Float32Array, u4: Uint32Array, i4: Int32Array, u1: Uint8Array};
const made = (name, fields = {}, ...inside) => {
  const element = Object.assign(document.createElement(name), fields);
  element.append(...inside);
  return element;
};
const within = (value, low, high) => Math.min(high, Math.max(low, value));
const signed = (text) => text.replace("-", "\u2212");
const fixed = (value, digits) => (Number.isNaN(value) ? "undefined" : signed(value.toFixed(digits)));
const share = (weight) => `${fixed(100 * weight, weight < 0.0995 ? 1 : 0)}\u00a0%`;
const argmax = (values) => values.reduce((best, value, place) => (value > values[best] ? place : best), 0);

async function unpacked(data) {
  const text = atob(data.numbers), packed = new Uint8Array(text.length), numbers = {};
  for (let place = 0; place < text.length; place++) packed[place] = text.charCodeAt(place);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const planes = new Uint8Array(await new Response(stream).arrayBuffer());
  let start = 0;
  for (const [name, kind, size] of data.layout) {
    const width = KINDS[kind].BYTES_PER_ELEMENT, bytes = new Uint8Array(size * width);
    for (let plane = 0; plane < width; plane++) {
      for (let place = 0; place < size; place++) bytes[place * width + plane] = planes[start + plane * size + place];
    }
    numbers[name] = new KINDS[kind](bytes.buffer);
    start += size * width;
  }
  return numbers;
}

// ---- the numbers of each text
const COLUMNS = { // by which texts are sorted and filtered: of the text in a row
  place: (texts, row) => row,
  length: ({numbers}, row) => numbers.lengths[row],
  largest: (texts, row) => (texts.numbers.lengths[row] ? Math.max(...texts.scores(0, row)) : NaN),
  gold: (texts, row) => (texts.numbers.labels[row] < 0 ? NaN : texts.probs(row)[texts.numbers.labels[row]]),
  predicted: (texts, row) => argmax(texts.probs(row)),
  flips: (texts, row) => texts.numbers.flips?.[row] ?? whatIf.smallestFlip(texts.text(row))?.size ?? NaN,
};
class Texts {
  constructor(data, numbers) {
    Object.assign(this, {data, numbers, count: data.ids.length, classes: data.classes.length, columns: {}});
    this.starts = new Uint32Array(this.count + 1);
    numbers.lengths.forEach((length, row) => { this.starts[row + 1] = this.starts[row] + length; });
  }
  slice(name, row, by = 1) { return this.numbers[name].subarray(this.starts[row] * by, this.starts[row + 1] * by); }
  ofClasses(name, row) { return this.numbers[name].subarray(row * this.classes, (row + 1) * this.classes); }
  probs(row) { return this.ofClasses("probs", row); }
  scores(measure, row) { return this.slice(`scores${measure}`, row); }
  token(place) { return this.data.vocabulary[this.numbers.tokens[place]]; }
  get affine() { return "values" in this.numbers; }
  own(row) { return whatIf.normalised(Float64Array.from(this.scores(0, row))); }
  text(row) {
    const values = Float64Array.from(this.slice("values", row, this.classes));
    return {own: this.own(row), values, bias: Float64Array.from(this.ofClasses("bias", row))};
  }
  of(name, row) { return COLUMNS[name](this, row); }
  // of every text; computed when it is first asked for, since a page of thousands is opened to see a few
  column(name, compared) {
    if (name === "tau") return this.numbers[`tau${compared}`];
    return (this.columns[name] ??= Float64Array.from({length: this.count}, (_, row) => this.of(name, row)));
  }
  // which texts hold every one of these words, in small letters; of sentences, in any of them
  holding(words) {
    const known = this.data.vocabulary.map((token) => token.toLowerCase());
    const of = words.map((word) => known.map((token) =>
      (this.data.unit === "sentence" ? token.includes(word) : token === word || token === `##${word}`)));
    return (row) => of.every((holds) => this.slice("tokens", row).some((token) => holds[token]));
  }
  chosen(asked) {
    const number = (name) => (asked[name] ? Math.fround(Number(asked[name])) : null), tests = []; // as float32 as they are
    const between = (values, low, high) => {
      if (low !== null) tests.push((row) => values[row] >= low);
      if (high !== null) tests.push((row) => values[row] <= high);
    };
    const compared = asked.compared ?? 0, {labels} = this.numbers;
    if ("tau0" in this.numbers) between(this.column("tau", compared), number("tauLow"), number("tauHigh"));
    if (asked.largestLow || asked.largestHigh) {
      between(this.column("largest"), number("largestLow"), number("largestHigh"));
    }
    const flips = asked.flips && this.column("flips"), predicted = (asked.error || asked.predicted) && this.column("predicted");
    if (asked.flips === "never") tests.push((row) => this.numbers.lengths[row] > 1 && Number.isNaN(flips[row]));
    else if (asked.flips) between(flips, null, number("flips"));
    if (asked.error) tests.push((row) => labels[row] >= 0 && (labels[row] === predicted[row]) === (asked.error === "right"));
    if (asked.label) tests.push((row) => labels[row] === number("label"));
    if (asked.predicted) tests.push((row) => predicted[row] === number("predicted"));
    const words = (asked.word ?? "").toLowerCase().split(/\s+/).filter(Boolean);
    if (words.length) tests.push(this.holding(words));
    const rows = Array.from({length: this.count}, (_, row) => row).filter((row) => tests.every((test) => test(row)));
    const values = this.column(asked.by ?? "place", compared), way = asked.order === "down" ? -1 : 1;
    const last = (row) => Number(Number.isNaN(values[row])); // what is undefined comes last, either way
    return rows.sort((one, other) =>
      last(one) - last(other) || (last(one) ? 0 : way * (values[one] - values[other])) || one - other);
  }
}

const shaded = (value, largest, hue, negative) =>
  `m${value < 0 ? negative : hue}s${largest > 0 && !Number.isNaN(value) ? Math.round((SHADES * Math.abs(value)) / largest) : 0}`;
const largestOf = (values) => values.reduce((most, value) => (Math.abs(value) > most ? Math.abs(value) : most), 0);

// ---- the page of one cell
function open(root, texts) {
  const {data, numbers} = texts, find = (selector) => root.querySelector(selector);
  const form = find("form"), list = find(".list"), spacer = list.firstElementChild;
  const state = {rows: [], active: 0, row: null, place: 0, attention: null, own: null, seed: 0, pressed: null, more: false};
  const rowHeight = ROW * parseFloat(getComputedStyle(document.documentElement).fontSize);
  const named = (number) => made("bdi", {textContent: data.classes[number]});

  // the list
  function option(at) {
    const row = state.rows[at], label = numbers.labels[row], attention = texts.scores(0, row), largest = largestOf(attention);
    const start = texts.starts[row], compared = form.elements.compared?.value ?? 0, predicted = texts.of("predicted", row);
    const facts = made("small", {}, named(predicted), ` ${fixed(texts.probs(row)[predicted], 2)}`);
    if (label >= 0 && label !== predicted) facts.append(made("b", {className: "wrong", textContent: " wrong"}));
    if ("tau0" in numbers) facts.append(` · τ ${fixed(texts.column("tau", compared)[row], 2)}`);
    facts.append(` · largest weight ${attention.length ? fixed(texts.of("largest", row), 2) : "none"}`);
    const words = made("span", {dir: numbers.backward[row] ? "rtl" : "ltr", lang: ""});
    attention.subarray(0, FIRST_TOKENS).forEach((weight, place) => words.append(
      made("i", {className: shaded(weight, largest, 0, data.negative)}, made("bdi", {textContent: texts.token(start + place)})), " "));
    const name = made("span", {}, made("bdi", {textContent: data.ids[row]}), facts);
    const element = made("div", {id: `${root.id}-option${at}`}, name, words);
    const count = {"aria-setsize": state.rows.length, "aria-posinset": at + 1};
    const attributes = {role: "option", "aria-selected": row === state.row, ...count};
    Object.entries(attributes).forEach(([name, value]) => element.setAttribute(name, value));
    element.style.top = `${at * ROW}rem`;
    element.addEventListener("click", () => choose(at));
    return element;
  }
  function draw() {
    const first = Math.max(0, Math.floor(list.scrollTop / rowHeight) - AROUND);
    const last = Math.min(state.rows.length, Math.ceil((list.scrollTop + list.clientHeight) / rowHeight) + AROUND);
    spacer.replaceChildren(...Array.from({length: Math.max(0, last - first)}, (_, number) => option(first + number)));
    if (state.rows[state.active] === state.row && state.active >= first && state.active < last) {
      list.setAttribute("aria-activedescendant", `${root.id}-option${state.active}`);
    } else list.removeAttribute("aria-activedescendant");
  }
  function sift() {
    state.rows = texts.chosen(Object.fromEntries(new FormData(form)));
    state.active = Math.max(0, state.rows.indexOf(state.row));
    spacer.style.height = `${state.rows.length * ROW}rem`;
    find(".count").textContent = `${state.rows.length.toLocaleString("en")} of ${texts.count.toLocaleString("en")} text${texts.count === 1 ? "" : "s"}`;
    list.scrollTop = 0;
    if (state.rows.length) choose(0);
    else draw();
  }
  function choose(at) {
    state.active = within(at, 0, state.rows.length - 1);
    const top = state.active * rowHeight;
    if (top < list.scrollTop) list.scrollTop = top;
    if (top + rowHeight > list.scrollTop + list.clientHeight) list.scrollTop = top + rowHeight - list.clientHeight;
    if (state.row !== state.rows[state.active]) show(state.rows[state.active]);
    draw();
  }
  const jumps = {ArrowDown: 1, ArrowUp: -1, PageDown: 6, PageUp: -6, Home: -Infinity, End: Infinity};
  list.addEventListener("keydown", (event) => {
    if (!(event.key in jumps) || !state.rows.length) return;
    event.preventDefault();
    choose(within(state.active + jumps[event.key], 0, state.rows.length - 1));
  });
  list.addEventListener("scroll", draw);
  form.addEventListener("input", sift);
  form.addEventListener("reset", () => setTimeout(sift));
  form.addEventListener("submit", (event) => event.preventDefault());

  // one text
  function show(row) {
    const label = numbers.labels[row], predicted = texts.of("predicted", row), length = numbers.lengths[row];
    state.row = row;
    find(".chosen > .name").replaceChildren(made("bdi", {textContent: data.ids[row]}));
    const facts = find(".said-of");
    facts.replaceChildren("predicted class ", named(predicted), ` (probability ${fixed(texts.probs(row)[predicted], 2)}), gold class `);
    if (label < 0) facts.append("unknown");
    else facts.append(label === predicted ? named(label) : made("span", {className: "wrong"}, named(label), " (wrong)"));
    facts.append(` · ${length} ${data.unit}${length === 1 ? "" : "s"}${numbers.truncated[row] ? ", cut at the length limit" : ""}`);
    if (data.queries) find(".asked").replaceChildren("query: ", made("bdi", {textContent: data.queries[row], dir: "auto"}));
    heat(row);
    state.own = texts.own(row);
    state.text = texts.affine ? texts.text(row) : null;
    state.place = argmax(state.own);
    put("own");
  }
  function tauOf(name, row) {
    const number = data.compared.indexOf(name);
    return number < 0 ? [] : [made("small", {textContent: `τ ${fixed(texts.column("tau", number)[row], 2)}`})];
  }
  function heat(row) {
    const start = texts.starts[row], length = numbers.lengths[row], box = find(".heat"), tried = find(".tried");
    const gold = (place) => "gold" in numbers && numbers.gold[start + place];
    const lines = data.measures.map(([name, hue], number) => {
      const values = texts.scores(number, row), largest = largestOf(values), words = made("div", {className: "words"});
      values.forEach((value, place) => {
        const percent = largest > 0 ? signed(String(Math.round((100 * value) / largest))) : "0";
        words.append(made("span", {
          tabIndex: -1, className: `${shaded(value, largest, hue, data.negative)}${gold(place) ? " gold" : ""}`,
          title: Number.isNaN(value) ? `${name}: undefined` : `${name}: ${signed(String(Number(value.toPrecision(4))))}, ${percent} % of the largest`,
        }, made("bdi", {textContent: texts.token(start + place)})), " ");
      });
      return made("div", {className: "line"}, made("div", {className: "name"}, name, ...tauOf(name, row)), words);
    });
    const first = lines.slice(0, data.main), more = lines.slice(data.main), shown = made("div", {className: data.unit === "sentence" ? "sentences" : ""}, ...first);
    if (more.length) {
      const fold = made("details", {open: state.more}, made("summary", {textContent: `${more.length} more measure${more.length === 1 ? "" : "s"}`}), ...more);
      fold.addEventListener("toggle", () => { state.more = fold.open; });
      shown.append(fold);
    }
    [box, tried].filter(Boolean).forEach((one) => { one.dir = numbers.backward[row] ? "rtl" : "ltr"; });
    box.replaceChildren(length ? shown : made("p", {className: "note", textContent: `A text without ${data.unit}s.`}));
    const changes = texts.affine || data.recorded.some((one) => one.kind === "attention" || one.kind === "set");
    tried?.replaceChildren(...Array.from({length: changes ? length : 0}, (_, place) => {
      const token = texts.token(start + place);
      return made("span", {className: "token"}, bar(place, token), made("bdi", {textContent: token}));
    }));
  }

  // other attentions
  function bar(place, token) {
    const element = made("span", {className: "bar"}, made("i"), made("b"));
    if (!texts.affine) return element;
    element.setAttribute("role", "slider");
    element.setAttribute("aria-label", `weight of ${token}`);
    element.setAttribute("aria-orientation", "vertical");
    element.setAttribute("aria-valuemin", 0);
    element.setAttribute("aria-valuemax", 100);
    const drag = (event) => {
      const {bottom, height} = element.getBoundingClientRect();
      set(place, within((bottom - event.clientY) / height, 0, 1) ** 2); // bars are as high as square roots, to see small ones
    };
    element.addEventListener("pointerdown", (event) => {
      element.setPointerCapture(event.pointerId);
      element.focus();
      drag(event);
    });
    element.addEventListener("pointermove", (event) => element.hasPointerCapture(event.pointerId) && drag(event));
    element.addEventListener("focus", () => { state.place = place; mark(); });
    element.addEventListener("keydown", (event) => keys(event, place));
    return element;
  }
  const bars = () => Array.from(root.querySelectorAll(".bar"));
  function keys(event, place) {
    const weight = state.attention[place], forward = numbers.backward[state.row] ? "ArrowLeft" : "ArrowRight";
    const steps = {ArrowUp: weight + STEP, ArrowDown: weight - STEP, PageUp: weight + 10 * STEP, PageDown: weight - 10 * STEP};
    const weights = {...steps, Home: 0, End: 1};
    if (event.key in weights) set(place, within(weights[event.key], 0, 1));
    else if (event.key === "Delete") perform("remove");
    else if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      bars()[within(place + (event.key === forward ? 1 : -1), 0, state.own.length - 1)].focus();
    } else return;
    event.preventDefault();
  }
  function mark() {
    bars().forEach((element, place) => {
      const weight = state.attention[place], percent = share(weight);
      element.firstChild.style.height = `${100 * Math.sqrt(weight)}%`;
      element.lastChild.style.bottom = `${100 * Math.sqrt(state.own[place])}%`;
      element.title = `${percent}; the model’s own ${share(state.own[place])}`;
      if (!texts.affine) return;
      element.tabIndex = place === state.place ? 0 : -1;
      element.toggleAttribute("data-chosen", place === state.place);
      element.setAttribute("aria-valuenow", (100 * weight).toFixed(2));
      element.setAttribute("aria-valuetext", percent);
      element.dataset.weight = weight;
    });
  }
  const quoted = (place) => `“${texts.token(texts.starts[state.row] + place)}”`;
  function set(place, weight) {
    state.place = place;
    put("drag", whatIf.dragged(state.attention, place, weight), `${share(weight)} of attention on ${quoted(place)}`);
  }

  // name: of the button that was pressed. attention: what is tried. what: it in words; probs: of it, where they were measured
  function put(name, attention = state.own, what = "The model’s own attention", probs = null) {
    if (!find(".try")) return;
    state.attention = attention;
    state.pressed = name;
    root.querySelectorAll("[data-do],[data-recorded]").forEach((button) =>
      button.setAttribute("aria-pressed", (button.dataset.do ?? button.dataset.recorded) === String(name)));
    mark();
    const own = state.text ? whatIf.probabilities(state.text, state.own) : Float64Array.from(texts.probs(state.row));
    const said = probs ?? (state.text ? whatIf.probabilities(state.text, attention) : name === "own" ? own : null);
    const answer = find(".outcome"), from = argmax(own), to = said ? argmax(said) : from;
    answer.replaceChildren(made("bdi", {textContent: what}));
    if (said) {
      answer.append(": ", named(to), ` ${fixed(said[to], 3)}`, to === from ? "" : ", another answer");
      if (name !== "own") answer.append(`. The prediction moves by ${fixed(whatIf.distance(own, said), 3)} (TVD)`);
    } else answer.append(": the prediction was not recorded");
    if (name !== "own" && attention.some((weight) => weight > 0)) {
      const nats = fixed(whatIf.divergence(state.own, attention), 3);
      answer.append(`; this attention is ${nats} nats (JSD) from the model’s own, of at most 0.693`);
    }
    answer.append(".");
    const shown = said ?? own, byShare = Array.from(shown.keys()).sort((one, other) => shown[other] - shown[one] || one - other);
    find(".classes").replaceChildren(...byShare.slice(0, MOST_CLASSES).sort((one, other) => one - other).map((number) => {
      const width = made("i"), line = made("li", {}, named(number), made("span", {}, width),
        made("span", {textContent: `${fixed(shown[number], 3)} (own ${fixed(own[number], 3)})`}));
      width.style.width = `${100 * shown[number]}%`;
      line.dataset.probability = shown[number];
      return line;
    }));
  }
  function perform(name) {
    const count = state.own.length, alone = `One ${data.unit} has all the weight there is`;
    const epsilon = Number(find("[name=epsilon]")?.value);
    if (name === "own") return put(name);
    if (!count) return put("own", state.own, `A text without ${data.unit}s has no other attention`);
    if (name === "uniform") return put(name, whatIf.uniform(count), "Equal weights");
    if (name === "permute") {
      state.seed += 1;
      return put(name, whatIf.permuted(state.own, state.seed), `The weights dealt out anew (draw ${state.seed})`);
    }
    if (name === "remove") {
      const taken = Uint8Array.from(state.own.keys(), (place) => Number(place === state.place));
      return put(name, whatIf.without(state.attention, taken), `No weight on ${quoted(state.place)}`);
    }
    if (name === "furthest") {
      const best = whatIf.furthest(state.text, epsilon);
      return best ? put(name, best.attention, `The furthest attention that moves the prediction by at most ${fixed(epsilon, 3)}`)
        : put("own", state.own, alone);
    }
    const smallest = whatIf.smallestFlip(state.text);
    if (!smallest) return put("own", state.own, alone);
    if (!smallest.size) return put("own", state.own, "No removal of weights changes the answer");
    const units = `${smallest.size} ${data.unit}${smallest.size === 1 ? "" : "s"}`;
    const words = `Without the weights of ${units} (${share(smallest.mass)} of attention)`;
    return put(name, whatIf.without(state.own, smallest.taken), smallest.empty ? `${words}, which are all` : words);
  }
  function recall(number) {
    const one = data.recorded[number], held = (name) => numbers[`recorded${number}_${name}`];
    if (one.kind === "draws") {
      put(number, state.own, one.label, Float64Array.from(texts.probs(state.row)));
      const [change, flips] = ["change", "flips"].map((name) => held(name)[state.row]);
      find(".outcome").textContent = Number.isNaN(change) ? `${one.label}: not measured of this text.`
        : `${one.label}: the prediction moves by ${fixed(change, 3)} on average (TVD), and ${share(flips)} of draws give another answer.`;
      return;
    }
    const weights = held("weights") ? Float64Array.from(texts.slice(`recorded${number}_weights`, state.row)) : state.own;
    const probs = held("probs") ? Float64Array.from(texts.ofClasses(`recorded${number}_probs`, state.row)) : null;
    if (Number.isNaN(weights[0] ?? NaN) || (one.kind === "set" && !weights.some((weight) => weight > 0))) {
      return put("own", state.own, `${one.label}: there is none for this text`);
    }
    const tried = one.kind === "set" ? whatIf.without(state.own, weights) : whatIf.normalised(weights);
    put(number, tried, one.label, probs && !Number.isNaN(probs[0]) ? probs : null);
  }
  root.querySelectorAll("[data-do]").forEach((button) => button.addEventListener("click", () => perform(button.dataset.do)));
  root.querySelectorAll("[data-recorded]").forEach((button) =>
    button.addEventListener("click", () => recall(Number(button.dataset.recorded))));
  find("[name=epsilon]")?.addEventListener("input", (event) => {
    find("output").textContent = Number(event.target.value).toFixed(3);
    perform("furthest");
  });

  root.hidden = false;
  sift();
}

if ("DecompressionStream" in window) {
  for (const root of document.querySelectorAll(".instrument")) {
    const data = JSON.parse(root.querySelector("script").textContent);
    open(root, new Texts(data, await unpacked(data)));
    document.querySelectorAll(`[data-without="${root.id}"]`).forEach((one) => { one.hidden = true; });
  }
}
document.documentElement.dataset.ready = "yes";
})();
