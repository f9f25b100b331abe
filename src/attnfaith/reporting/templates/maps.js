// What the pages of views share: words to choose, lists, small maps and their colours.
const view = JSON.parse(document.getElementById("view").textContent);
const part = (id) => document.getElementById(id);
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const isBetween = (value, low, high) => Number.isInteger(value) && value >= low && value <= high;
const NONE = -1;

// ---- words
const quoted = (text) => element("span", {}, "“", element("bdi", {textContent: text.length > 40 ? `${text.slice(0, 39)}…` : text}), "”");
// the largest shares in words: “a” 50 %, “b” 20 %
const largest = (shares, words, number = percent, count = 3) => largestPlaces(shares, count).flatMap((place, index) =>
  [index ? ", " : "", quoted(words(place)), "\u00a0", element("b", {textContent: number(shares[place])})]);
// a list of the largest shares, each of which can be chosen; hidden where there is none
function listed(id, shares, count, words, number, choose) {
  const places = shares ? largestPlaces(shares, count) : [];
  part(id).replaceChildren(...places.map((place) => {
    const bar = element("i"), button = element("button", {type: "button"}, bar,
      element("bdi", {textContent: words(place)}), element("span", {textContent: number(shares[place])}));
    bar.style.width = `${(100 * shares[place]) / shares[places[0]]}%`;
    button.addEventListener("click", () => choose(place));
    return element("li", {}, button);
  }));
  part(id).parentElement.hidden = !places.length;
}
// buttons of words; arrow keys go from one to the next. seen: which are there
function toolbar(id, buttons, choose, seen = () => Array.from(buttons.keys())) {
  const box = part(id);
  box.append(...buttons);
  buttons.forEach((button, place) => button.addEventListener("click", () => choose(place, false)));
  box.addEventListener("keydown", (event) => {
    const arrow = arrows[event.key], places = seen();
    if (!arrow) return;
    event.preventDefault();
    const step = (getComputedStyle(box).direction === "rtl" ? -arrow[0] : arrow[0]) + arrow[1];
    const at = places.indexOf(buttons.findIndex((button) => button.tabIndex === 0));
    const place = places[within(at + step, 0, places.length - 1)];
    choose(place, true);
    buttons[place].focus();
  });
}

// ---- colours: of elements, and of maps, from paper over the hue to the deepest
function shade(elements, shares, colour) {
  const most = shares ? Math.max(...shares.map(Math.abs)) : 1;
  elements.forEach((node, place) => {
    const amount = shares && most ? Math.sqrt(Math.abs(shares[place]) / most) : 0;
    node.style.background = amount > 0.05 ? `color-mix(in srgb, ${colour} calc(var(--mix) * ${amount.toFixed(3)}), transparent)` : "";
  });
}
const channels = (name) => [1, 3, 5].map((place) => parseInt(style(name).slice(place, place + 2), 16));
// amount: of a weight, -1 to 1; below 0 in the other hue
function paint(canvas, width, height, weights, amount) {
  Object.assign(canvas, {width, height});
  const pen = canvas.getContext("2d"), image = pen.createImageData(width, height);
  const paper = channels("--paper"), deep = channels("--deep"), hues = [channels("--reads"), channels("--readers")];
  for (let place = 0; place < width * height; place++) {
    const signed = within(amount(weights[place]), -1, 1), strength = Math.abs(signed), hue = hues[signed < 0 ? 1 : 0];
    const [from, to, share] = signed < 0 ? [paper, hue, strength]
      : strength < 0.65 ? [paper, hue, strength / 0.65] : [hue, deep, (strength - 0.65) / 0.35];
    for (let channel = 0; channel < 3; channel++) image.data[4 * place + channel] = from[channel] + (to[channel] - from[channel]) * share;
    image.data[4 * place + 3] = 255;
  }
  pen.putImageData(image, 0, 0);
}

// ---- the table of small maps: a row for each layer, first of all heads together. heads: of each layer. choose(layer, head)
function tableOfMaps(heads, numbered, choose) {
  const grid = part("grid"), most = Math.max(0, ...heads), numbers = Array.from({length: most}, (_, head) => element("th", {scope: "col", textContent: head}));
  const buttons = heads.map((count, layer) => Array.from({length: count + 1}, (_, place) => {
    const button = element("button", {type: "button", role: "gridcell"}, element("canvas"));
    button.addEventListener("click", () => choose(layer, place - 1));
    return button;
  }));
  grid.replaceChildren(
    element("thead", {}, element("tr", {}, element("th"), element("th", {scope: "col", textContent: "all"}), ...numbers)),
    element("tbody", {}, ...buttons.map((row, layer) => element("tr", {}, element("th", {scope: "row", textContent: numbered ? layer : ""}),
      ...row.map((button, place) => element("td", {className: place ? "" : "whole", role: "presentation"}, button))))));
  grid.style.maxWidth = `${2 + 4 * (most + 1)}rem`;
  grid.onkeydown = (event) => {
    const arrow = arrows[event.key], row = buttons.findIndex((line) => line.some((button) => button.tabIndex === 0));
    if (!arrow) return;
    event.preventDefault();
    const layer = within(row + arrow[1], 0, buttons.length - 1), at = buttons[row].findIndex((button) => button.tabIndex === 0);
    const place = within(at + arrow[0], 0, buttons[layer].length - 1);
    choose(layer, place - 1);
    buttons[layer][place].focus();
  };
  // name(layer, head); draw(canvas, layer, head), null where the maps are drawn already
  return (layer, head, name, draw) => buttons.forEach((row, number) => row.forEach((button, place) => {
    const chosen = number === layer && place - 1 === head;
    Object.assign(button, {ariaSelected: chosen, ariaLabel: name(number, place - 1), tabIndex: chosen ? 0 : -1});
    draw?.(button.firstChild, number, place - 1);
  }));
}

// ---- what is chosen, in the page's address
const address = () => location.hash.slice(1).split(".");
function setAddress(values) {
  try {
    history.replaceState(null, "", `#${values.join(".")}`);
  } catch { /* a page within a notebook has no address of its own */ }
}
