// The time line of a trace: frames to step through, each with a sentence that says what happens.

/**
 * @typedef {object} Timeline
 * @property {number} length how many frames there are
 * @property {Constituent[]} nodes of the tree that grows
 * @property {boolean} topDown whether a constituent is there before its parts
 * @property {number[]} madeAt the frame in which each node is built, or split
 * @property {number[]} frameOf the frame to go to for each token
 * @property {(frame: number) => number | null} token which token a frame is about
 * @property {(frame: number) => (string | Node)[]} sentence
 */

/**
 * The words of a constituent; of a long one, only the first and the last.
 * @param {Trace} trace
 * @param {number} first
 * @param {number} last
 * @param {number} [most] how many words to show
 */
function wordsOf(trace, first, last, most = 12) {
  const { tokens } = trace;
  if (last - first < most) return tokens.slice(first, last + 1).join(" ");
  const half = most >> 1;
  return `${tokens.slice(first, first + half).join(" ")} … ${tokens.slice(last + 1 - half, last + 1).join(" ")}`;
}

/**
 * The first and the last token of the token or node with this id.
 * @param {Trace} trace
 * @param {Constituent[]} nodes
 * @param {number} id
 * @returns {{first: number, last: number}}
 */
function spanOf(trace, nodes, id) {
  const { length } = trace.tokens;
  return id < length ? { first: id, last: id } : nodes[id - length];
}

/**
 * For each id of a token or node, the id of its parent; -1 if it has none.
 * @param {Constituent[]} nodes
 * @param {number} numTokens
 */
function parentsOf(nodes, numTokens) {
  /** @type {number[]} */
  const parents = new Array(numTokens + nodes.length).fill(-1);
  nodes.forEach((node, k) => {
    for (const child of node.children) parents[child] = numTokens + k;
  });
  return parents;
}

/**
 * Ordered Memory: a frame for each step of Algorithm 2.
 * @param {Trace} trace
 * @param {Memory} memory
 * @returns {Timeline}
 */
function memoryTimeline(trace, memory) {
  const { steps } = memory;
  const nodes = trace.nodes ?? [];
  /** @type {number[]} */
  const frameOf = [];
  steps.forEach((step, frame) => {
    if (step.token !== null) frameOf[step.token] = frame;
  });

  /** @param {number} id */
  const words = (id) => {
    const { first, last } = spanOf(trace, nodes, id);
    return quote(wordsOf(trace, first, last));
  };

  /** @param {number} frame */
  const sentence = (frame) => {
    const { token, slot, joined, stack } = steps[frame];
    const merged = joined.length ? words(joined[joined.length - 1]) : "";
    if (token === null) {
      return joined.length
        ? [`The end: the ${joined.length + 1} subtrees that are left are joined. The tree is complete.`]
        : ["The end: one subtree is left. The tree is complete."];
    }
    const name = [`Token ${token + 1} `, quote(trace.tokens[token])];
    const pushed = stack[0][1];
    if (slot === null) return [...name, ` is read into the empty memory: it takes the last slot, ${pushed}.`];
    const told = [...name, ` attends to slot ${slot} (p = ${fraction(memory.attention[token][slot - 1])}). `];
    if (joined.length) told.push(`The ${joined.length + 1} topmost subtrees are joined there: `, merged, ".");
    else told.push(`Nothing is joined; slot ${slot} keeps `, words(stack[1][0]), ".");
    told.push(pushed ? ` The token is pushed to slot ${pushed}.` : " No slot is left above it for the token.");
    return told;
  };

  return {
    length: steps.length,
    nodes,
    topDown: false,
    madeAt: nodes.map((node) => node.step ?? 0),
    frameOf,
    token: (frame) => steps[frame].token,
    sentence,
  };
}

/**
 * A tree alone: nothing, then a frame for each node in the order in which they are built.
 * @param {Trace} trace
 * @param {Constituent[]} nodes
 * @returns {Timeline}
 */
function buildingTimeline(trace, nodes) {
  const parents = parentsOf(nodes, trace.tokens.length);
  const size = trace.tokens.length;
  return {
    length: nodes.length + 1,
    nodes,
    topDown: false,
    madeAt: nodes.map((_, k) => k + 1),
    frameOf: trace.tokens.map((_, token) => Math.max(0, parents[token] - size + 1)),
    token: () => null,
    sentence: (frame) => {
      if (!frame) return [`${counted(size, "token")}; nothing is joined yet.`];
      const { first, last, children } = nodes[frame - 1];
      const parts = children.flatMap((child, i) => {
        const span = spanOf(trace, nodes, child);
        return [i ? (i < children.length - 1 ? ", " : " and ") : "", quote(wordsOf(trace, span.first, span.last, 8))];
      });
      return [...parts, " are joined: ", quote(wordsOf(trace, first, last)), "."];
    },
  };
}

/**
 * ON-LSTM: the whole sequence, then a frame for each split, the largest distance first.
 * @param {Trace} trace
 * @param {Layer} layer
 * @param {string} decoding
 * @returns {Timeline}
 */
function splittingTimeline(trace, layer, decoding) {
  const { distances, trees: { [decoding]: nodes } } = layer;
  const size = trace.tokens.length;
  const forward = trace.direction === "forward";
  const parents = parentsOf(nodes, size);
  /** @type {{ id: number, at: number, top: number, forced: boolean }[]} */
  const splits = [];
  /** @type {number[]} */
  const madeAt = [];
  /** @type {Set<number>} what "prpn" splits after its first token, whatever the distances */
  const forced = new Set();
  let open = nodes.length ? [size + nodes.length - 1] : [];
  while (open.length) {
    const id = open.reduce((best, other) => (distances[place(other)] > distances[place(best)] ? other : best));
    const at = place(id);
    const { children } = nodes[id - size];
    open = [...open.filter((other) => other !== id), ...children.filter((child) => child >= size)];
    const top = decoding !== "prpn" ? at : forced.has(id) ? start(id) : largest(id);
    splits.push({ id, at, top, forced: forced.has(id) });
    madeAt[id - size] = splits.length;
    if (decoding === "prpn" && !forced.has(id) && top === at) forced.add(children[forward ? 1 : 0]);
  }

  /** @param {number} id whose part that is read second starts with this token */
  function place(id) {
    const [left, right] = nodes[id - size].children;
    return forward ? spanOf(trace, nodes, right).first : spanOf(trace, nodes, left).last;
  }

  /** @param {number} id whose token this is that is read first */
  function start(id) {
    return forward ? nodes[id - size].first : nodes[id - size].last;
  }

  /** @param {number} id whose token of the largest distance this is; of equal ones, the one that is read first */
  function largest(id) {
    const { first, last } = nodes[id - size];
    const tokens = Array.from({ length: last - first + 1 }, (_, i) => (forward ? first + i : last - i));
    return tokens.reduce((best, token) => (distances[token] > distances[best] ? token : best));
  }

  /** @type {number[]} the first split that names the token or, if earlier, the one that isolates it */
  const frameOf = trace.tokens.map((_, token) => madeAt[parents[token] - size] ?? 0);
  splits.forEach(({ top }, i) => (frameOf[top] = Math.min(i + 1, frameOf[top])));

  /** @param {number} frame */
  const sentence = (frame) => {
    const [before, follows, first] = forward ? ["before", "follows", "first"] : ["after", "precedes", "last"];
    if (!frame) return ["Nothing is split yet: ", quote(wordsOf(trace, 0, size - 1)), "."];
    const { id, at, top, forced } = splits[frame - 1];
    const words = quote(wordsOf(trace, nodes[id - size].first, nodes[id - size].last));
    const token = quote(trace.tokens[top]);
    const distance = ` (${fraction(distances[top])})`;
    if (decoding === "cky") return ["The most probable tree splits ", words, ` ${before} `, token, `${distance}.`];
    if (forced) return [token, ` is separated from what ${follows} it in `, words, "."];
    const except = decoding === "unbiased" ? `, except for its ${first} token,` : "";
    const split = top === at ? `split ${before} it.` : "it is separated from the rest.";
    return ["The largest distance in ", words, `${except} is at `, token, `${distance}: ${split}`];
  };

  return {
    length: splits.length + 1,
    nodes,
    topDown: true,
    madeAt,
    frameOf,
    token: (frame) => splits[frame - 1]?.top ?? null,
    sentence,
  };
}
