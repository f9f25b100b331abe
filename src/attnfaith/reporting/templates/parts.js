// What the scripts of pages share. Text is only ever set as text.
"use strict";
const element = (name, fields = {}, ...inside) => {
  const node = Object.assign(document.createElement(name), fields);
  node.append(...inside);
  return node;
};
const within = (value, low, high) => Math.min(high, Math.max(low, value));
const arrows = {ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0]};
const minus = (text) => text.replace("-", "\u2212");
const percent = (share) => {
  const digits = share < 0.0995 && share > 0 ? 1 : 0;
  return share > 0 && share < 0.0005 ? "<0.1\u00a0%" : `${(100 * share).toFixed(digits)}\u00a0%`;
};
const largestPlaces = (shares, count) => Array.from(shares.keys()).filter((place) => shares[place] > 0)
  .sort((one, other) => shares[other] - shares[one] || one - other).slice(0, count);

async function unpacked(text) {
  const packed = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}
