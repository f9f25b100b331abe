// The texts of a page: a list that is searched and sorted, one text with every measure, and other attentions tried on it.
(async () => {
const BATCH = 60, FIRST_TOKENS = 60, MOST_CLASSES = 12, STEP = 0.01;
const KINDS = {f4: Float32Array, u4: Uint32Array, i4: Int32Array, u1: Uint8Array};
const fixed = (value, digits) => (Number.isNaN(value) ? "undefined" : minus(value.toFixed(digits)));
const argmax = (values) => values.reduce((best, value, place) => (value > values[best] ? place : best), 0);
const largestOf = (values) => values.reduce((most, value) => Math.max(most, Math.abs(value) || 0), 0);
const counted = (count, unit) => `${count.toLocaleString("en")} ${unit}${count === 1 ? "" : "s"}`;

// the numbers by name: of each array the first byte of every number, then the second
async function arrays(data) {
  const planes = await unpacked(data.numbers), numbers = {};
  let start = 0;
  for (const [name, kind, size] of data.layout) {
    const width = KINDS[kind].BYTES_PER_ELEMENT, bytes = new Uint8Array(size * width);
    for (let place = 0; place < size * width; place++) bytes[place] = planes[start + (place % width) * size + Math.floor(place / width)];
    numbers[name] = new KINDS[kind](bytes.buffer);
    start += size * width;
  }
  return numbers;
}

class Texts {
  constructor(data, numbers) {
    Object.assign(this, {data, numbers, count: data.ids.length, classes: data.classes.length, affine: "values" in numbers});
    this.starts = new Uint32Array(this.count + 1);
    numbers.lengths.forEach((length, row) => { this.starts[row + 1] = this.starts[row] + length; });
    this.predicted = Array.from({length: this.count}, (_, row) => argmax(this.ofClasses("probs", row)));
  }
  slice(name, row, by = 1) { return this.numbers[name].subarray(this.starts[row] * by, this.starts[row + 1] * by); }
  ofClasses(name, row) { return this.numbers[name].subarray(row * this.classes, (row + 1) * this.classes); }
  scores(measure, row) { return this.slice(`scores${measure}`, row); }
  token(place) { return this.data.vocabulary[this.numbers.tokens[place]]; }
  text(row) {
    const own = whatIf.normalised(Float64Array.from(this.scores(0, row)));
    if (!this.affine) return {own};
    return {own, values: Float64Array.from(this.slice("values", row, this.classes)), bias: Float64Array.from(this.ofClasses("bias", row))};
  }
  // the number that texts are sorted by
  number(name, compared, row) {
    const {lengths, labels} = this.numbers;
    if (name === "tau") return this.numbers[`tau${compared}`][row];
    if (name === "length") return lengths[row];
    if (name === "largest") return lengths[row] ? Math.max(...this.scores(0, row)) : NaN;
    if (name === "gold") return labels[row] < 0 ? NaN : this.ofClasses("probs", row)[labels[row]];
    return row;
  }
  // the rows that a form asks for, in its order
  chosen(form) {
    const {labels} = this.numbers, compared = form.compared ?? 0, tests = [];
    const number = (name) => (form[name] ? Math.fround(Number(form[name])) : null); // float32, as the numbers are
    const [low, high, label, predicted] = ["tauLow", "tauHigh", "label", "predicted"].map(number);
    if (low !== null) tests.push((row) => this.number("tau", compared, row) >= low);
    if (high !== null) tests.push((row) => this.number("tau", compared, row) <= high);
    if (form.error) tests.push((row) => labels[row] >= 0 && (labels[row] === this.predicted[row]) === (form.error === "right"));
    if (label !== null) tests.push((row) => labels[row] === label);
    if (predicted !== null) tests.push((row) => this.predicted[row] === predicted);
    const small = this.data.vocabulary.map((token) => token.toLowerCase());
    for (const word of (form.word ?? "").toLowerCase().split(/\s+/).filter(Boolean)) {
      const holds = small.map((token) => (this.data.unit === "sentence" ? token.includes(word) : token === word || token === `##${word}`));
      tests.push((row) => this.slice("tokens", row).some((token) => holds[token]));
    }
    const rows = Array.from({length: this.count}, (_, row) => row).filter((row) => tests.every((test) => test(row)));
    const values = rows.map((row) => this.number(form.by ?? "place", compared, row)), way = form.order === "down" ? -1 : 1;
    const order = Array.from(rows.keys()).sort((one, other) => { // what is undefined comes last, either way
      const missing = [one, other].map((place) => Number(Number.isNaN(values[place])));
      return missing[0] - missing[1] || (missing[0] ? 0 : way * (values[one] - values[other])) || rows[one] - rows[other];
    });
    return order.map((place) => rows[place]);
  }
}

// ---- the explorer of one cell
function open(root, texts) {
  const {data, numbers} = texts, find = (selector) => root.querySelector(selector);
  const form = find("form"), list = find(".list");
  const state = {rows: [], row: null, text: null, place: 0, attention: null, seed: 0, more: false};
  const named = (number) => element("bdi", {textContent: data.classes[number]});
  const token = (place) => texts.token(texts.starts[state.row] + place);
  const quoted = (place) => `“${token(place)}”`;
  const shaded = (value, largest, hue, more = "") => ({
    className: `m${value < 0 ? data.negative : hue}${more}`,
    style: `--s:${largest > 0 && value ? Math.round((100 * Math.abs(value)) / largest) : 0}`,
  });

  // the list: the first texts, and more when its end is near
  function option(row) {
    const label = numbers.labels[row], attention = texts.scores(0, row), largest = largestOf(attention), predicted = texts.predicted[row];
    const facts = element("small", {}, named(predicted), ` ${fixed(texts.ofClasses("probs", row)[predicted], 2)}`);
    if (label >= 0 && label !== predicted) facts.append(element("b", {className: "wrong", textContent: " wrong"}));
    if (data.compared.length) facts.append(` · τ ${fixed(texts.number("tau", form.elements.compared.value, row), 2)}`);
    facts.append(` · largest weight ${attention.length ? fixed(largest, 2) : "none"}`);
    const words = element("span", {dir: numbers.backward[row] ? "rtl" : "ltr", lang: ""});
    attention.subarray(0, FIRST_TOKENS).forEach((weight, place) => words.append(element("i",
      shaded(weight, largest, 0), element("bdi", {textContent: texts.token(texts.starts[row] + place)})), " "));
    const node = element("div", {id: `${root.id}-${row}`, role: "option", ariaSelected: row === state.row},
      element("span", {}, element("bdi", {textContent: data.ids[row]}), facts), words);
    node.addEventListener("click", () => show(row));
    return node;
  }
  function grow(until = 0) {
    while (list.childElementCount < state.rows.length && (list.childElementCount <= until
      || list.scrollTop + 2 * list.clientHeight > list.scrollHeight)) {
      const start = list.childElementCount;
      list.append(...state.rows.slice(start, start + BATCH).map(option));
    }
  }
  function sift() {
    state.rows = texts.chosen(Object.fromEntries(new FormData(form)));
    find(".count").textContent = `${state.rows.length.toLocaleString("en")} of ${counted(texts.count, "text")}`;
    list.replaceChildren();
    list.scrollTop = 0;
    grow();
    if (state.rows.length) show(state.rows[0]);
  }
  list.addEventListener("keydown", (event) => {
    const at = state.rows.indexOf(state.row) + (arrows[event.key]?.[1] ?? 0);
    if (!arrows[event.key]?.[1] || !state.rows.length) return;
    event.preventDefault();
    show(state.rows[within(at, 0, state.rows.length - 1)]);
  });
  list.addEventListener("scroll", () => grow());
  form.addEventListener("input", sift);
  form.addEventListener("reset", () => setTimeout(sift));
  form.addEventListener("submit", (event) => event.preventDefault());

  // one text
  function show(row) {
    const label = numbers.labels[row], predicted = texts.predicted[row], length = numbers.lengths[row], about = find(".about");
    const at = state.rows.indexOf(row);
    grow(at);
    list.querySelector("[aria-selected=true]")?.setAttribute("aria-selected", false);
    list.children[at].setAttribute("aria-selected", true);
    list.setAttribute("aria-activedescendant", list.children[at].id);
    const {offsetTop, offsetHeight} = list.children[at];
    list.scrollTop = within(list.scrollTop, offsetTop + offsetHeight - list.clientHeight, offsetTop);
    Object.assign(state, {row, text: texts.text(row)});
    state.place = argmax(state.text.own);
    find(".chosen > .name").replaceChildren(element("bdi", {textContent: data.ids[row]}));
    about.replaceChildren("predicted class ", named(predicted), ` (probability ${fixed(texts.ofClasses("probs", row)[predicted], 2)}), gold class `);
    about.append(label < 0 ? "unknown" : label === predicted ? named(label) : element("span", {className: "wrong"}, named(label), " (wrong)"));
    about.append(` · ${counted(length, data.unit)}${numbers.truncated[row] ? ", cut at the length limit" : ""}`);
    if (data.queries) find(".query").replaceChildren("query: ", element("bdi", {textContent: data.queries[row], dir: "auto"}));
    const heat = find(".heat"), tried = find(".tried");
    for (const box of [heat, tried]) if (box) box.dir = numbers.backward[row] ? "rtl" : "ltr";
    heat.replaceChildren(length ? lines(row) : element("p", {className: "note", textContent: `A text without ${data.unit}s.`}));
    tried?.replaceChildren(...Array.from({length}, (_, place) =>
      element("span", {className: "token"}, bar(place), element("bdi", {textContent: token(place)}))));
    put("own");
  }
  function lines(row) {
    const rows = data.measures.map(([name, hue], measure) => {
      const values = texts.scores(measure, row), largest = largestOf(values), words = element("div", {className: "words"});
      const compared = data.compared.indexOf(name);
      values.forEach((value, place) => {
        const share = largest > 0 ? minus(String(Math.round((100 * value) / largest))) : "0";
        words.append(element("span", {
          tabIndex: -1, ...shaded(value, largest, hue, numbers.gold?.[texts.starts[row] + place] ? " gold" : ""),
          title: Number.isNaN(value) ? `${name}: undefined` : `${name}: ${minus(String(Number(value.toPrecision(4))))}, ${share} % of the largest`,
        }, element("bdi", {textContent: token(place)})), " ");
      });
      return element("div", {className: "line"}, element("div", {className: "name"}, name, ...(compared < 0 ? []
        : [element("small", {textContent: `τ ${fixed(texts.number("tau", compared, row), 2)}`})])), words);
    });
    const shown = element("div", {className: data.unit === "sentence" ? "sentences" : ""}, ...rows.slice(0, data.main));
    if (rows.length > data.main) {
      const fold = element("details", {open: state.more},
        element("summary", {textContent: counted(rows.length - data.main, "more measure").replace("1 more", "One more")}), ...rows.slice(data.main));
      fold.addEventListener("toggle", () => { state.more = fold.open; });
      shown.append(fold);
    }
    return shown;
  }

  // other attentions
  const bars = () => Array.from(root.querySelectorAll(".bar"));
  function bar(place) {
    const node = element("span", {className: "bar"}, element("i"), element("b"));
    Object.assign(node, {role: "slider", ariaLabel: `weight of ${token(place)}`, ariaOrientation: "vertical", ariaValueMin: 0, ariaValueMax: 100});
    const drag = (event) => {
      const {bottom, height} = node.getBoundingClientRect();
      set(place, within((bottom - event.clientY) / height, 0, 1) ** 2); // bars are as high as square roots, to see small ones
    };
    node.addEventListener("pointerdown", (event) => {
      node.setPointerCapture(event.pointerId);
      node.focus();
      drag(event);
    });
    node.addEventListener("pointermove", (event) => node.hasPointerCapture(event.pointerId) && drag(event));
    node.addEventListener("focus", () => { state.place = place; mark(); });
    node.addEventListener("keydown", (event) => {
      const arrow = arrows[event.key], weight = state.attention[place];
      if (arrow?.[0]) bars()[within(place + arrow[0] * (numbers.backward[state.row] ? -1 : 1), 0, bars().length - 1)].focus();
      else if (arrow) set(place, within(weight - arrow[1] * STEP, 0, 1));
      else if (event.key === "Home" || event.key === "End") set(place, Number(event.key === "End"));
      else if (event.key === "Delete") perform("remove");
      else return;
      event.preventDefault();
    });
    return node;
  }
  function mark() {
    bars().forEach((node, place) => {
      const weight = state.attention[place], own = state.text.own[place];
      node.firstChild.style.height = `${100 * Math.sqrt(weight)}%`;
      node.lastChild.style.bottom = `${100 * Math.sqrt(own)}%`;
      node.title = `${percent(weight)}; the model’s own ${percent(own)}`;
      node.dataset.weight = weight;
      node.tabIndex = place === state.place ? 0 : -1;
      node.toggleAttribute("data-chosen", place === state.place);
      Object.assign(node, {ariaValueNow: (100 * weight).toFixed(2), ariaValueText: percent(weight)});
    });
  }
  function set(place, weight) {
    state.place = place;
    put("drag", whatIf.dragged(state.attention, place, weight), `${percent(weight)} of attention on ${quoted(place)}`);
  }

  // name: of the button that was pressed. attention: the one that is tried. words: about it
  function put(name, attention = state.text.own, words = "The model’s own attention") {
    if (!find(".try")) return;
    state.attention = attention;
    root.querySelectorAll("[data-do]").forEach((button) => { button.ariaPressed = button.dataset.do === String(name); });
    mark();
    const own = whatIf.probabilities(state.text, state.text.own), probs = whatIf.probabilities(state.text, attention);
    const outcome = find(".outcome"), answer = argmax(probs);
    outcome.replaceChildren(element("bdi", {textContent: words}));
    outcome.append(": ", named(answer), ` ${fixed(probs[answer], 3)}${answer === argmax(own) ? "" : ", another answer"}`);
    if (name !== "own") outcome.append(`. The prediction moves by ${fixed(whatIf.distance(own, probs), 3)} (TVD)`);
    if (name !== "own" && attention.some((weight) => weight > 0)) {
      const nats = fixed(whatIf.divergence(state.text.own, attention), 3);
      outcome.append(`; this attention is ${nats} nats (JSD) from the model’s own, of at most 0.693`);
    }
    outcome.append(".");
    find(".classes").replaceChildren(...largestPlaces(probs, MOST_CLASSES).sort((one, other) => one - other).map((number) => {
      const width = element("i"), line = element("li", {}, named(number), element("span", {}, width),
        element("span", {textContent: `${fixed(probs[number], 3)} (own ${fixed(own[number], 3)})`}));
      width.style.width = `${100 * probs[number]}%`;
      line.dataset.probability = probs[number];
      return line;
    }));
  }
  function perform(name) {
    const {own} = state.text, alone = `One ${data.unit} has all the weight there is`;
    if (name === "own") return put(name);
    if (!own.length) return put("own", own, `A text without ${data.unit}s has no other attention`);
    if (name === "uniform") return put(name, whatIf.uniform(own.length), "Equal weights");
    if (name === "permute") {
      state.seed += 1;
      return put(name, whatIf.permuted(own, state.seed), `The weights in another order (draw ${state.seed})`);
    }
    if (name === "remove") {
      const taken = own.map((_, place) => Number(place === state.place));
      return put(name, whatIf.without(state.attention, taken), `No weight on ${quoted(state.place)}`);
    }
    if (name === "furthest") {
      const epsilon = Number(find("[name=epsilon]").value), best = whatIf.furthest(state.text, epsilon);
      return best ? put(name, best.attention, `The furthest attention that moves the prediction by at most ${fixed(epsilon, 3)}`) : put("own", own, alone);
    }
    const smallest = whatIf.smallestFlip(state.text);
    if (!smallest) return put("own", own, alone);
    if (!smallest.size) return put("own", own, "No removal of weights changes the answer");
    const words = `Without the weights of ${counted(smallest.size, data.unit)} (${percent(smallest.mass)} of attention)`;
    return put(name, whatIf.without(own, smallest.taken), smallest.empty ? `${words}, which are all` : words);
  }
  root.querySelectorAll("[data-do]").forEach((button) => button.addEventListener("click", () => perform(button.dataset.do)));
  find("[name=epsilon]")?.addEventListener("input", (event) => {
    find("output").textContent = Number(event.target.value).toFixed(3);
    perform("furthest");
  });

  root.hidden = false;
  sift();
}

for (const root of document.querySelectorAll(".explorer")) {
  const data = JSON.parse(root.querySelector("script").textContent);
  open(root, new Texts(data, await arrays(data)));
}
document.documentElement.dataset.ready = "yes";
})();
