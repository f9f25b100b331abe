// What the pages of views share. Text is only ever set as text.
"use strict";
const view = JSON.parse(document.getElementById("view").textContent);
const part = (id) => document.getElementById(id);
const made = (name, fields = {}) => Object.assign(document.createElement(name), fields);
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const arrows = {ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0]};
const within = (value, low, high) => Math.min(high, Math.max(low, value));
const isThere = (value, low, high) => Number.isInteger(value) && value >= low && value <= high;

async function unpacked(text) {
  if (!("DecompressionStream" in window)) part("said").textContent = "This browser is too old to unpack the numbers of this page.";
  const packed = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// ---- words
const percent = (share) => share < 0.0005 ? "<0.1\u00a0%" : share < 0.0995 ? `${(100 * share).toFixed(1)}\u00a0%` : `${Math.round(100 * share)}\u00a0%`;
const largestOf = (shares, count) => Array.from(shares.keys()).filter((place) => shares[place] > 0)
  .sort((one, other) => shares[other] - shares[one] || one - other).slice(0, count);
function quoted(text) {
  const whole = made("span");
  whole.append("“", made("bdi", {textContent: text.length > 40 ? `${text.slice(0, 39)}…` : text}), "”");
  return whole;
}
function listed(id, places, values, label, number, choose) {
  const largest = Math.max(...places.map((place) => Math.abs(values[place])));
  part(id).replaceChildren(...places.map((place) => {
    const item = made("li"), button = made("button", {type: "button"}), bar = made("i");
    bar.style.width = `${100 * Math.abs(values[place]) / largest}%`;
    button.append(bar, made("bdi", {textContent: label(place)}), made("span", {textContent: number(values[place])}));
    button.addEventListener("click", () => choose(place));
    item.append(button);
    return item;
  }));
  part(id).parentElement.hidden = !places.length;
}

// ---- colours: of elements, and of maps, from paper over the hue to the deepest
function shade(elements, shares, colour) {
  const largest = shares ? Math.max(...shares.map(Math.abs)) : 1;
  elements.forEach((one, place) => {
    const amount = shares && largest ? Math.sqrt(Math.abs(shares[place]) / largest) : 0;
    one.style.background = amount > 0.05 ? `color-mix(in srgb, ${colour} calc(var(--mix) * ${amount.toFixed(3)}), transparent)` : "";
  });
}
const channels = (name) => {
  const colour = style(name);
  return [1, 3, 5].map((place) => parseInt(colour.slice(place, place + 2), 16));
};
// amount: of a weight, -1 to 1; below 0 in the other hue, which stays itself
function paint(target, width, height, weights, amount) {
  Object.assign(target, {width, height});
  const pen = target.getContext("2d"), image = pen.createImageData(width, height);
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
