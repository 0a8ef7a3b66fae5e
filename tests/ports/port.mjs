// MiniMind's operators and sampling stages in JavaScript, without packages, spoken to in JSON lines
// (reference_weights/vectors/PROTOCOL.md):   npminimind conform -- node port.mjs
//
// Written from the formulas, not from npminimind's code. Arrays are flat Float64Arrays with a shape.

import { createInterface } from "node:readline";

const FACTORS = { inf: Infinity, "-inf": -Infinity, nan: NaN };
const number = (x) => (typeof x === "string" ? FACTORS[x] : x);
const sizeOf = (shape) => shape.reduce((a, b) => a * b, 1);
const zeros = (shape) => ({ shape, data: new Float64Array(sizeOf(shape)) });
const last = (a) => a.shape[a.shape.length - 1];
const rows = (a) => (last(a) ? a.data.length / last(a) : 0);

class Refusal extends Error {}
const refuse = (text) => { throw new Refusal(text); };

// ---- arrays in and out -------------------------------------------------------------------------------------------

function decode(value) {
  if (Array.isArray(value)) return value.map(decode);
  if (value === null || typeof value !== "object") return typeof value === "string" ? FACTORS[value] ?? value : value;
  if (!("shape" in value)) return Object.fromEntries(Object.entries(value).map(([key, v]) => [key, decode(v)]));
  if ("base64" in value) {
    const bytes = Buffer.from(value.base64, "base64");
    const aligned = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
    const ids = value.dtype === "int64" ? Float64Array.from(new BigInt64Array(aligned), Number) : null;
    return { shape: value.shape, data: ids ?? new Float64Array(aligned) };
  }
  return { shape: value.shape, data: Float64Array.from([value.data].flat(Infinity), number) };
}

function encode(value) {
  if (!(value.data instanceof Float64Array)) {
    return Object.fromEntries(Object.entries(value).map(([key, v]) => [key, encode(v)]));
  }
  const { shape, data, dtype = "float64" } = value;
  if (dtype === "float64") return { shape, dtype, base64: Buffer.from(data.buffer).toString("base64") };
  return { shape, dtype, data: Array.from(data) };
}

// ---- the parts of the model --------------------------------------------------------------------------------------

function rms_norm({ x, weight, eps }) {
  const n = last(x), y = zeros(x.shape);
  if (weight.data.length !== n) refuse(`weight has ${weight.data.length} numbers, x has ${n} features`);
  for (let r = 0; r < rows(x); r++) {
    let square = 0;
    for (let i = 0; i < n; i++) square += x.data[r * n + i] ** 2;
    for (let i = 0; i < n; i++) y.data[r * n + i] = (weight.data[i] * x.data[r * n + i]) / Math.sqrt(square / n + eps);
  }
  return y;
}

function frequencies(d, theta, yarn) {
  const turning = (turns) =>
    (d * Math.log(yarn.original_max_position_embeddings / (turns * 2 * Math.PI))) / (2 * Math.log(theta));
  const low = yarn && Math.max(Math.floor(turning(yarn.beta_fast)), 0);
  const high = yarn && Math.min(Math.ceil(turning(yarn.beta_slow)), d / 2 - 1);
  return Array.from({ length: d / 2 }, (_, i) => {
    const f = theta ** (-2 * i / d);
    if (!yarn) return f;
    const ramp = Math.min(Math.max((i - low) / Math.max(high - low, 0.001), 0), 1);
    return f * (1 - ramp) + (f * ramp) / yarn.factor;
  });
}

function rope_tables({ head_dim: d, length, theta, scaling: yarn, start = 0 }) {
  if (d < 2 || d % 2) refuse("head_dim must be even");
  const f = frequencies(d, theta, yarn), factor = yarn ? yarn.attention_factor : 1;
  const cos = zeros([length, d]), sin = zeros([length, d]);
  for (let i = 0; i < length * d; i++) {
    const angle = (start + Math.floor(i / d)) * f[i % (d / 2)];
    cos.data[i] = Math.cos(angle) * factor;
    sin.data[i] = Math.sin(angle) * factor;
  }
  return { cos, sin };
}

function rotate_half({ x }) {
  const d = last(x), y = zeros(x.shape);
  y.data.forEach((_, i) => { y.data[i] = i % d < d / 2 ? -x.data[i + d / 2] : x.data[i - d / 2]; });
  return y;
}

function apply_rope({ q, k, cos, sin }) {
  if (q.shape[1] !== cos.shape[0] || q.shape[3] !== cos.shape[1]) refuse("the tables do not fit q");
  const turn = (x) => {
    const [, s, heads, d] = x.shape, other = rotate_half({ x }).data, y = zeros(x.shape);
    y.data.forEach((_, i) => {
      const entry = (Math.floor(i / (heads * d)) % s) * d + (i % d);
      y.data[i] = x.data[i] * cos.data[entry] + other[i] * sin.data[entry];
    });
    return y;
  };
  return { q: turn(q), k: turn(k) };
}

function repeat_kv({ x, n_rep }) {
  const [b, t, k, d] = x.shape, y = zeros([b, t, k * n_rep, d]);
  y.data.forEach((_, i) => {
    const head = Math.floor(i / d) % (k * n_rep), row = Math.floor(i / (d * k * n_rep));
    y.data[i] = x.data[(row * k + Math.floor(head / n_rep)) * d + (i % d)];
  });
  return y;
}

function causal_mask({ s, t }) {
  if (s < 0 || s > t) refuse("s must lie between 0 and t");
  const mask = zeros([s, t]);
  mask.data.forEach((_, i) => { mask.data[i] = i % t > t - s + Math.floor(i / t) ? -Infinity : 0; });
  return mask;
}

function softmaxed(values) {
  const greatest = values.reduce((a, b) => Math.max(a, b), -Infinity);
  const e = values.map((x) => Math.exp(x - greatest));
  const sum = e.reduce((a, b) => a + b, 0);
  return e.map((x) => x / sum);
}

function softmax({ x, axis = -1 }) {
  const at = axis < 0 ? axis + x.shape.length : axis, n = x.shape[at];
  const stride = sizeOf(x.shape.slice(at + 1)), y = zeros(x.shape);
  for (let i = 0; i < x.data.length / n; i++) {
    const first = Math.floor(i / stride) * stride * n + (i % stride);
    softmaxed(Array.from({ length: n }, (_, j) => x.data[first + j * stride])).forEach((p, j) => {
      y.data[first + j * stride] = p;
    });
  }
  return y;
}

// erf by its series (Abramowitz & Stegun 7.1.6) near 0 and its continued fraction (7.1.14) further out.
function erf(x) {
  const z = Math.abs(x);
  if (z > 6) return Math.sign(x);
  if (z < 2.5) {
    let term = z, sum = z;
    for (let n = 1; term > 1e-18 * sum; n++) sum += term *= (2 * z * z) / (2 * n + 1);
    return (Math.sign(x) * 2 * sum * Math.exp(-z * z)) / Math.sqrt(Math.PI);
  }
  let fraction = 0;
  for (let n = 120; n > 0; n--) fraction = n / 2 / (z + fraction);
  return Math.sign(x) * (1 - Math.exp(-z * z) / (z + fraction) / Math.sqrt(Math.PI));
}

// x/2 (1 + erf(x/√2)), for x below zero by the complement, which does not cancel
function geluOf(x) {
  const z = Math.abs(x) / Math.SQRT2;
  if (x > -2.5) return 0.5 * x * (1 + erf(x / Math.SQRT2));
  let fraction = 0;
  for (let n = 200; n > 0; n--) fraction = n / 2 / (z + fraction);
  return (0.5 * x * Math.exp(-z * z)) / (z + fraction) / Math.sqrt(Math.PI);
}
const siluOf = (x) => x / (1 + Math.exp(-x));
const each = (f) => ({ x }) => ({ shape: x.shape, data: x.data.map(f) });
const activation = (name) => (name === "gelu" ? geluOf : siluOf);

function attention({ q, k, v, attention_mask: padding }) {
  const [b, s, n, d] = q.shape, [, t, kv] = k.shape;
  if (n % kv) refuse(`${n} query heads, ${kv} key heads`);
  if (padding && padding.data.length !== b * t) refuse("attention_mask must be [B, T]");
  const context = zeros([b, s, n * d]), group = n / kv;
  for (let row = 0; row < b; row++) for (let i = 0; i < s; i++) for (let head = 0; head < n; head++) {
    const to = ((row * s + i) * n + head) * d;
    const from = (j) => ((row * t + j) * kv + Math.floor(head / group)) * d;
    const scores = [];
    for (let j = 0; j <= t - s + i; j++) {
      let dot = 0;
      for (let c = 0; c < d; c++) dot += q.data[to + c] * k.data[from(j) + c];
      scores.push(dot / Math.sqrt(d) + (padding && !padding.data[row * t + j] ? -1e9 : 0));
    }
    softmaxed(scores).forEach((p, j) => {
      for (let c = 0; c < d; c++) context.data[to + c] += p * v.data[from(j) + c];
    });
  }
  return context;
}

const times = (w, x) =>
  Array.from({ length: w.shape[0] }, (_, i) => x.reduce((sum, xj, j) => sum + w.data[i * w.shape[1] + j] * xj, 0));

function network(x, [gate, up, down], act) {
  const u = times(up, x);
  return times(down, times(gate, x).map((g, i) => activation(act)(g) * u[i]));
}
const token = (x, r) => Array.from(x.data.subarray(r * last(x), (r + 1) * last(x)));

function swiglu({ x, gate_proj, up_proj, down_proj, act }) {
  const y = zeros(x.shape);
  for (let r = 0; r < rows(x); r++) y.data.set(network(token(x, r), [gate_proj, up_proj, down_proj], act), r * last(x));
  return y;
}

function moe({ x, gate, experts, num_experts_per_tok: k, norm_topk_prob, act }) {
  if (k < 1 || k > experts.length) refuse(`num_experts_per_tok must be 1 to ${experts.length}`);
  const y = zeros(x.shape), h = last(x);
  for (let r = 0; r < rows(x); r++) {
    const p = softmaxed(times(gate, token(x, r)));
    const chosen = p.map((_, e) => e).sort((a, b) => p[b] - p[a] || a - b).slice(0, k);
    const sum = norm_topk_prob ? chosen.reduce((total, e) => total + p[e], 1e-20) : 1;
    for (const e of chosen) {
      network(token(x, r), experts[e], act).forEach((out, i) => { y.data[r * h + i] += (p[e] / sum) * out; });
    }
  }
  return y;
}

// ---- the stages of sampling --------------------------------------------------------------------------------------

function apply_temperature({ logits, temperature: t }) {
  if (!(t > 0) || t === Infinity) refuse("temperature must be positive and finite; greedy is its limit 0");
  return { shape: logits.shape, data: logits.data.map((x) => x / t) };
}

function apply_repetition_penalty({ logits, input_ids, penalty }) {
  if (!(penalty > 0) || penalty === Infinity) refuse("the penalty must be positive and finite");
  const y = { shape: logits.shape, data: logits.data.slice() }, v = last(logits);
  for (let r = 0; r < rows(logits); r++) {
    for (const id of new Set(token(input_ids, r))) {
      if (id < 0 || id >= v) refuse(`id ${id} is outside the vocabulary`);
      const s = logits.data[r * v + id];
      y.data[r * v + id] = s > 0 ? s / penalty : s * penalty;
    }
  }
  return y;
}

const descending = (row) => row.slice().sort((a, b) => b - a || 0);
const perRow = (x, f) => ({ shape: x.shape, data: Float64Array.from(Array.from({ length: rows(x) }, (_, r) => f(token(x, r), r)).flat()) });

function top_k_threshold({ logits, k }) {
  if (k < 1 || k > last(logits)) refuse(`k must be 1 to ${last(logits)}`);
  return { ...perRow(logits, (row) => kth(row, k)), shape: [...logits.shape.slice(0, -1), 1] };
}
const kth = (row, k) => descending(row)[k - 1];

function apply_top_k({ logits, k }) {
  if (k < 0) refuse("k must not be negative");
  if (!k || k >= last(logits)) return logits;
  return perRow(logits, (row) => row.map((x) => (x < kth(row, k) ? -Infinity : x)));
}

function top_p_mask({ logits, p }) {
  if (!(p >= 0)) refuse("p must not be negative");
  const v = last(logits), names = ["sorted_logits", "sorted_indices", "cumulative", "exceeds", "shifted", "mask"];
  const out = Object.fromEntries(names.map((name) => [name, zeros(logits.shape)]));
  for (const name of names.slice(3)) out[name].dtype = "bool";
  out.sorted_indices.dtype = "int64";
  for (let r = 0; r < rows(logits); r++) {
    const row = token(logits, r);
    const order = row.map((_, i) => i).sort((a, b) => (row[a] === row[b] ? a - b : row[b] - row[a]));
    const probs = softmaxed(order.map((i) => row[i]));
    let sum = 0;
    order.forEach((id, i) => {
      out.sorted_logits.data[r * v + i] = row[id];
      out.sorted_indices.data[r * v + i] = id;
      out.cumulative.data[r * v + i] = sum += probs[i];
      out.exceeds.data[r * v + i] = sum > p;
      out.shifted.data[r * v + i] = i > 0 && out.exceeds.data[r * v + i - 1];
      out.mask.data[r * v + id] = out.shifted.data[r * v + i];
    });
  }
  return out;
}

function apply_top_p({ logits, p }) {
  if (p == null || p >= 1) return logits;
  const { mask } = top_p_mask({ logits, p });
  return { shape: logits.shape, data: logits.data.map((x, i) => (mask.data[i] ? -Infinity : x)) };
}

const ids = (x, f) => ({ ...perRow(x, f), shape: x.shape.slice(0, -1), dtype: "int64" });

function greedy({ logits }) {
  return ids(logits, (row) => row.indexOf(Math.max(...row)));
}

function multinomial({ probs, u }) {
  return ids(probs, (row, r) => {
    if (row.some((p) => !(p >= 0 && p < Infinity))) refuse("a probability is negative or no number");
    const total = row.reduce((a, b) => a + b, 0), draw = u.data[r];
    if (!(total > 0)) refuse("all probabilities are 0");
    if (!(draw >= 0 && draw < 1)) refuse("u must lie in [0, 1)");
    let sum = 0;
    const found = row.findIndex((p) => (sum += p) > draw * total);
    return found >= 0 ? found : row.findLastIndex((p) => p > 0);
  });
}

// ---- the loop ----------------------------------------------------------------------------------------------------

const OPERATORS = {
  rms_norm, rope_tables, rotate_half, apply_rope, repeat_kv, causal_mask, softmax, silu: each(siluOf), gelu: each(geluOf),
  attention, swiglu, moe, apply_temperature, apply_repetition_penalty, top_k_threshold, apply_top_k, top_p_mask,
  apply_top_p, greedy, multinomial,
};

function answer({ id, op, args }) {
  if (op === "hello") return { id, out: { arrays: "base64" } };
  if (!(op in OPERATORS)) return { id, unsupported: true };
  try {
    return { id, out: encode(OPERATORS[op](decode(args))) };
  } catch (error) {
    if (error instanceof Refusal) return { id, error: error.message };
    throw error;
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  process.stdout.write(JSON.stringify(answer(JSON.parse(line))) + "\n");
}
