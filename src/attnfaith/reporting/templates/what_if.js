// What a model would say under another attention, where its logits are affine in attention: pure functions of numbers.
// A text: own (T), its attention, summing to 1; values (T x C, by tokens), what each token adds to each logit at full
// weight; bias (C), NaN of a class that the text may not be given. An attention sums to 1, or is all 0: then the bias decides.
const whatIf = (() => {
const TIE = 1e-6; // nats: vertices closer than this to the maximum are tied
const EQUAL = 1e-12; // of the largest margin: logits that are closer are equal
const xlogx = (x) => (x > 0 ? x * Math.log(x) : 0);
const total = (values) => values.reduce((sum, value) => sum + value, 0);
const classesOf = (text) => Array.from(text.bias.keys()).filter((number) => !Number.isNaN(text.bias[number]));

function logits(text, attention) {
  const count = text.bias.length, sums = Float64Array.from(text.bias);
  for (let place = 0; place < attention.length; place++) {
    if (attention[place]) for (let number = 0; number < count; number++) sums[number] += attention[place] * text.values[place * count + number];
  }
  return sums;
}
function probabilities(text, attention) {
  const scores = logits(text, attention), largest = Math.max(...scores.filter((score) => !Number.isNaN(score)));
  const odds = scores.map((score) => (Number.isNaN(score) ? 0 : Math.exp(score - largest))), sum = total(odds);
  return odds.map((value) => value / sum);
}
// total variation distance of two predictions; Jensen-Shannon divergence of two attentions, in nats
const distance = (first, second) => total(first.map((value, place) => Math.abs(value - second[place]))) / 2;
function divergence(first, second) {
  const sum = total(first.map((value, place) =>
    (xlogx(value) + xlogx(second[place])) / 2 - xlogx((value + second[place]) / 2)));
  return Math.min(Math.max(sum, 0), Math.log(2));
}

const normalised = (weights) => {
  const sum = total(weights);
  return Float64Array.from(weights, (weight) => (sum > 0 ? weight / sum : 0));
};
const uniform = (count) => new Float64Array(count).fill(1 / count);

// a text's weights in another order: Fisher and Yates's shuffle with the numbers of mulberry32
function permuted(attention, seed) {
  const weights = Float64Array.from(attention);
  let state = seed >>> 0;
  for (let last = weights.length - 1; last > 0; last--) {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    const place = Math.floor((((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32) * (last + 1));
    [weights[last], weights[place]] = [weights[place], weights[last]];
  }
  return weights;
}

// one weight set to a share of 0..1; the others keep their proportions, and are equal where they have none
function dragged(attention, place, weight) {
  const rest = total(attention.filter((_, other) => other !== place));
  if (attention.length < 2) return uniform(attention.length);
  return Float64Array.from(attention, (value, other) =>
    other === place ? weight : rest > 0 ? (value / rest) * (1 - weight) : (1 - weight) / (attention.length - 1));
}
// without some tokens; the others keep their proportions
const without = (attention, taken) => normalised(Array.from(attention, (weight, place) => (taken[place] ? 0 : weight)));

// ---- the furthest attention that keeps the prediction: of two classes the exact maximum, else null. The divergence is
// convex, so its maximum lies on a vertex: all weight on one token, or on two that meet an end of the allowed log-odds
function allowed(logOdds, epsilon) {
  const small = Math.exp(-Math.abs(logOdds)), larger = 1 / (1 + small), smaller = small / (1 + small);
  const [p, q] = logOdds >= 0 ? [larger, smaller] : [smaller, larger];
  return [p > epsilon ? Math.log(p - epsilon) - Math.log(q + epsilon) : -Infinity,
    q > epsilon ? Math.log(p + epsilon) - Math.log(q - epsilon) : Infinity];
}
function furthest(text, epsilon) {
  const [first, second, ...more] = classesOf(text), {own, values, bias} = text, length = own.length, count = bias.length;
  if (length < 2 || more.length) return null;
  const alone = second === undefined;
  const scores = Float64Array.from({length}, (_, place) => (alone ? 0
    : values[place * count + second] - values[place * count + first] + (bias[second] - bias[first])));
  const logOdds = Math.min(Math.max(total(own.map((weight, place) => weight * scores[place])), Math.min(...scores)), Math.max(...scores));
  const ends = alone ? [-Infinity, Infinity] : allowed(logOdds, epsilon);
  const low = Math.min(ends[0], logOdds), high = Math.max(ends[1], logOdds);
  const places = Array.from(scores.keys()), inside = places.filter((place) => scores[place] >= low && scores[place] <= high);
  const loss = (place, weight) => xlogx(weight + own[place]) - xlogx(weight) - xlogx(own[place]);
  const visit = (see) => { // every vertex: its loss, ln 2 - divergence times two, and the weight of one or two tokens
    for (const place of inside) see(loss(place, 1), place, 1, place);
    for (const end of [low, high]) {
      const above = places.filter((place) => scores[place] > end);
      for (const left of places.filter((place) => scores[place] < end)) {
        for (const right of above) {
          const weight = (scores[right] - end) / (scores[right] - scores[left]);
          see(loss(left, weight) + loss(right, 1 - weight), left, weight, right);
        }
      }
    }
  };
  let least = Infinity;
  visit((value) => { least = Math.min(least, value); });
  const tied = [];
  visit((value, left, weight, right) => { if (value <= least + 2 * TIE) tied.push({left, weight, right}); });
  const order = ({left, right}) => [left === right ? 0 : 1, Math.min(left, right), Math.max(left, right)];
  const [best] = tied.sort((one, other) => order(one).map((value, place) => value - order(other)[place]).find(Boolean) ?? 0);
  const attention = new Float64Array(length);
  attention[best.right] = 1 - best.weight;
  attention[best.left] = best.weight;
  return {attention, divergence: Math.max(Math.log(2) - least / 2, 0), oneToken: inside.length};
}

// ---- the fewest weights whose removal changes the decision, for any number of classes; null below two tokens
function decision(text, classes, margins) {
  const scores = logits(text, text.own);
  let predicted = classes.reduce((best, number) => (scores[number] > scores[best] ? number : best), classes[0]);
  for (;;) { // of equal logits the first class
    const equal = classes.find((rival) => rival < predicted
      && scores[predicted] - scores[rival] <= EQUAL * Math.max(...margins(predicted, rival).map(Math.abs)));
    if (equal === undefined) return predicted;
    predicted = equal;
  }
}
function smallestFlip(text) {
  const classes = classesOf(text), {own, values, bias} = text, length = own.length, count = bias.length;
  if (length < 2) return null;
  const margins = (number, rival) => Float64Array.from({length}, (_, place) =>
    values[place * count + number] - values[place * count + rival] + bias[number] - bias[rival]);
  const predicted = decision(text, classes, margins);
  let best = null;
  for (const rival of classes.filter((number) => number !== predicted)) {
    const alone = margins(predicted, rival), largest = Math.max(...alone.map(Math.abs));
    const parts = alone.map((margin, place) => margin * own[place]);
    const order = Array.from(parts.keys()).sort((one, other) => parts[other] - parts[one] || one - other);
    let sum = 0, left = 0, size = null;
    for (let taken = length - 1; taken > 0; taken--) { // from the end: sums of what is left, which do not cancel
      sum += parts[order[taken]];
      left += own[order[taken]];
      const tie = EQUAL * largest * left;
      if (left > 0 && (sum < -tie || (rival < predicted && sum <= tie))) size = taken;
    }
    if (size !== null && (best === null || size < best.places.length)) best = {rival, places: order.slice(0, size)};
  }
  const empty = best === null, taken = new Uint8Array(length);
  if (empty) { // only the bias is left
    const rival = classes.reduce((most, number) => (bias[number] > bias[most] ? number : most), classes[0]);
    if (rival === predicted) return {predicted, size: null, empty: false, mass: null, taken};
    best = {rival, places: Array.from(own.keys()).filter((place) => own[place] > 0)};
  }
  best.places.forEach((place) => { taken[place] = 1; });
  const mass = Math.min(total(best.places.map((place) => own[place])), 1);
  return {predicted, rival: best.rival, size: best.places.length, empty, mass, taken};
}

return {probabilities, distance, divergence, normalised, uniform, permuted, dragged, without, furthest, smallestFlip};
})();
