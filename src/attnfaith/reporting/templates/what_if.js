// What a model would say under another attention, where its logits are affine in attention: pure functions of numbers.
// A text: own (T), its attention, summing to 1; values (T x C, by tokens), what each token adds to each logit at full
// weight; bias (C), NaN of a class that the text may not be given. An attention sums to 1, or is all 0: then the bias decides.
const whatIf = (() => {
const TIE = 1e-6; // nats: vertices closer than this to the maximum are tied
const EQUAL = 1e-12; // of the largest margin: logits that are closer are equal
const xlogx = (x) => (x > 0 ? x * Math.log(x) : 0);
const total = (values) => values.reduce((one, other) => one + other, 0);
const classesOf = (text) => Array.from(text.bias.keys()).filter((number) => !Number.isNaN(text.bias[number]));

function logits(text, attention) {
  const count = text.bias.length, sums = Float64Array.from(text.bias);
  for (let place = 0; place < attention.length; place++) {
    if (attention[place]) for (let of = 0; of < count; of++) sums[of] += attention[place] * text.values[place * count + of];
  }
  return sums;
}
function softmax(scores) {
  const largest = Math.max(...scores.filter((score) => !Number.isNaN(score)));
  const odds = scores.map((score) => (Number.isNaN(score) ? 0 : Math.exp(score - largest))), sum = total(odds);
  return odds.map((one) => one / sum);
}
const probabilities = (text, attention) => softmax(logits(text, attention));

// total variation distance of two predictions; Jensen-Shannon divergence of two attentions, in nats
const distance = (one, other) => total(one.map((value, place) => Math.abs(value - other[place]))) / 2;
function divergence(one, other) {
  const sum = total(one.map((value, place) =>
    (xlogx(value) + xlogx(other[place])) / 2 - xlogx((value + other[place]) / 2)));
  return Math.min(Math.max(sum, 0), Math.log(2));
}

const normalised = (weights) => {
  const sum = total(weights);
  return Float64Array.from(weights, (weight) => (sum > 0 ? weight / sum : 0));
};
const uniform = (count) => new Float64Array(count).fill(1 / count);

// whole numbers below 2^32 from a seed (mulberry32), and with them the order in which a text's weights are dealt out anew
function numbers(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return (mixed ^ (mixed >>> 14)) >>> 0;
  };
}
function permuted(attention, seed) {
  const weights = Float64Array.from(attention), next = numbers(seed);
  for (let last = weights.length - 1; last > 0; last--) {
    const place = Math.floor((next() / 2 ** 32) * (last + 1));
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

// ---- the furthest attention that keeps the prediction: of two classes the exact maximum, else null
function interval(logOdds, epsilon) {
  const small = Math.exp(-Math.abs(logOdds)), larger = 1 / (1 + small), smaller = small / (1 + small);
  const [p, q] = logOdds >= 0 ? [larger, smaller] : [smaller, larger];
  return [p > epsilon ? Math.log(p - epsilon) - Math.log(q + epsilon) : -Infinity,
    q > epsilon ? Math.log(p + epsilon) - Math.log(q - epsilon) : Infinity];
}
// how many of sorted scores lie below an end; or below it and on it
function below(scores, end, andOn) {
  let low = 0, high = scores.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (scores[middle] < end || (andOn && scores[middle] === end)) low = middle + 1;
    else high = middle;
  }
  return low;
}
function furthest(text, epsilon) {
  const classes = classesOf(text), length = text.own.length;
  if (length < 2 || classes.length > 2) return null;
  const [first, second] = classes, count = text.bias.length, alone = classes.length === 1;
  const added = Float64Array.from({length}, (_, place) =>
    alone ? 0 : text.values[place * count + second] - text.values[place * count + first]);
  const bias = alone ? 0 : text.bias[second] - text.bias[first];
  const order = Array.from(added.keys()).sort((one, other) => added[one] - added[other] || one - other);
  const scores = order.map((place) => added[place] + bias), own = order.map((place) => text.own[place]);
  const entropy = own.map(xlogx), single = own.map((weight, place) => xlogx(1 + weight) - entropy[place]);
  const mean = total(own.map((weight, place) => weight * scores[place]));
  const logOdds = Math.min(Math.max(mean, scores[0]), scores[length - 1]);
  const ends = alone ? [-Infinity, Infinity] : interval(logOdds, epsilon);
  const low = Math.min(ends[0], logOdds), high = Math.max(ends[1], logOdds);
  const start = below(scores, low, false), stop = below(scores, high, true);
  const loss = (left, right, weight) => {
    const rest = 1 - weight, one = weight + own[left], other = rest + own[right];
    return xlogx(one) - xlogx(weight) + xlogx(other) - xlogx(rest) - entropy[left] - entropy[right];
  };
  const mixed = (end, visit) => {
    const under = below(scores, end, false), above = below(scores, end, true);
    if (under === 0 || above === length) return;
    for (let left = 0; left < under; left++) {
      for (let right = above; right < length; right++) {
        const weight = (scores[right] - end) / (scores[right] - scores[left]);
        visit(left, right, weight, single[right] + weight * (single[left] - single[right]));
      }
    }
  };
  let least = Infinity;
  for (let place = start; place < stop; place++) least = Math.min(least, single[place]);
  for (const end of [low, high]) { // the pair of the lowest bound makes most of the others needless
    let best = null, lowest = Infinity;
    mixed(end, (left, right, weight, bound) => { if (bound < lowest) [best, lowest] = [[left, right, weight], bound]; });
    if (best) least = Math.min(least, loss(...best));
  }
  const pairs = [], limit = least + 2 * TIE;
  for (const end of [low, high]) {
    mixed(end, (left, right, weight, bound) => {
      if (bound > limit) return;
      const of = loss(left, right, weight);
      pairs.push({of, weight, left: order[left], right: order[right]});
      least = Math.min(least, of);
    });
  }
  const attention = new Float64Array(length);
  const tied = order.slice(start, stop).filter((_, place) => single[start + place] <= least + 2 * TIE);
  if (tied.length) attention[Math.min(...tied)] = 1;
  else {
    const ends = (pair) => [Math.min(pair.left, pair.right), Math.max(pair.left, pair.right)];
    const [pair] = pairs.filter((one) => one.of <= least + 2 * TIE).sort((one, other) =>
      ends(one)[0] - ends(other)[0] || ends(one)[1] - ends(other)[1]);
    attention[pair.left] = pair.weight;
    attention[pair.right] = 1 - pair.weight;
  }
  return {attention, divergence: Math.max(Math.log(2) - least / 2, 0), oneToken: stop - start};
}

// ---- the fewest weights whose removal changes the decision, for any number of classes; null below two tokens
function decision(text, classes, margins) {
  const said = logits(text, text.own);
  let predicted = classes.reduce((best, of) => (said[of] > said[best] ? of : best), classes[0]);
  for (;;) {
    const equal = classes.find((rival) => rival < predicted
      && said[predicted] - said[rival] <= EQUAL * Math.max(...margins(predicted, rival).map(Math.abs)));
    if (equal === undefined) return predicted;
    predicted = equal;
  }
}
function smallestFlip(text) {
  const classes = classesOf(text), length = text.own.length, count = text.bias.length;
  if (length < 2) return null;
  const margins = (of, rival) => Float64Array.from({length}, (_, place) =>
    text.values[place * count + of] - text.values[place * count + rival] + text.bias[of] - text.bias[rival]);
  const predicted = decision(text, classes, margins);
  let best = null;
  for (const rival of classes.filter((of) => of !== predicted)) {
    const alone = margins(predicted, rival), largest = Math.max(...alone.map(Math.abs));
    const parts = alone.map((margin, place) => margin * text.own[place]);
    const order = Array.from(parts.keys()).sort((one, other) => parts[other] - parts[one] || one - other);
    let sum = 0, left = 0, size = null;
    for (let taken = length - 1; taken > 0; taken--) { // from the end: sums of what is left, which do not cancel
      sum += parts[order[taken]];
      left += text.own[order[taken]];
      const tie = EQUAL * largest * left;
      if (left > 0 && (sum < -tie || (rival < predicted && sum <= tie))) size = taken;
    }
    if (size !== null && (best === null || size < best.size)) best = {size, rival, places: order.slice(0, size)};
  }
  const empty = best === null;
  if (empty) { // only the bias is left
    const rival = classes.reduce((one, of) => (text.bias[of] > text.bias[one] ? of : one), classes[0]);
    if (rival === predicted) return {predicted, size: null, empty: false, mass: null, taken: new Uint8Array(length)};
    best = {rival, places: Array.from(text.own.keys()).filter((place) => text.own[place] > 0)};
  }
  const taken = new Uint8Array(length);
  best.places.forEach((place) => { taken[place] = 1; });
  const mass = Math.min(total(best.places.map((place) => text.own[place])), 1);
  return {predicted, rival: best.rival, size: best.places.length, empty, mass, taken};
}

return {logits, probabilities, distance, divergence, normalised, uniform, permuted, dragged, without, furthest, smallestFlip};
})();
