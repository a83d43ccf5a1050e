// The traces of one example: what the model answers, and a board for each trace.

class TraceViewer {
  /**
   * @param {Element} root what is in it is replaced
   * @param {Trace[]} traces of one example
   */
  constructor(root, traces) {
    this.root = root;
    this.root.classList.add("om-viewer");
    this.show(traces);
  }

  /** @param {Trace[]} traces of one example */
  show(traces) {
    if (!traces.length) return this.root.replaceChildren();
    const [{ answer, caption }] = traces;
    const sameAnswer = traces.every((trace) => JSON.stringify(trace.answer) === JSON.stringify(answer));
    const sameCaption = traces.every((trace) => trace.caption === caption);
    this.root.replaceChildren(header(sameCaption ? caption : "", sameAnswer ? answer : undefined));
    active = null;
    for (const trace of traces) {
      const own = header(sameCaption ? "" : trace.caption, sameAnswer ? undefined : trace.answer);
      this.root.append(own, ...boardParts(trace));
    }
  }
}

/**
 * The board of a trace; of one with distances under a choice of the layer and of how to read its tree.
 * @param {Trace} trace
 */
function boardParts(trace) {
  const { layers } = trace;
  if (!layers?.length) return [new Board(trace, null).element];
  const chosen = { layer: layers[layers.length - 1], decoding: "unbiased" };
  let board = new Board(trace, chosen);
  /** @param {Partial<Choice>} change */
  const change = (change) => {
    const old = board.element;
    board = active = new Board(trace, Object.assign(chosen, change));
    old.replaceWith(board.element);
  };
  const names = layers.map(({ name }, i) => /** @type {[string, string]} */ ([String(i), name]));
  const decodings = Object.keys(chosen.layer.trees).map((name) => /** @type {[string, string]} */ ([name, name]));
  const choices = element("div", { class: "om-choices" },
    choice("Layer", names, (i) => change({ layer: layers[Number(i)] }), String(layers.length - 1)),
    choice("Tree", decodings, (decoding) => change({ decoding }), chosen.decoding));
  return [choices, board.element];
}

/**
 * @param {string} caption
 * @param {Answer} [answer]
 */
function header(caption, answer) {
  const parts = caption ? [element("p", { class: "om-caption", dir: "auto" }, caption)] : [];
  return element("div", { class: "om-header" }, ...parts, ...(answer ? answerParts(answer) : []));
}

const SHOWN_CLASSES = 3;
const LEAST_SHOWN = 0.005;

/**
 * Whether the answer is right, and the most probable classes with the true one.
 * @param {Answer} answer
 */
function answerParts(answer) {
  const { classes, probabilities } = answer;
  const order = classes.map((_, i) => i).sort((a, b) => probabilities[b] - probabilities[a]);
  const shown = order.filter((i, rank) =>
    rank < 2 || (rank < SHOWN_CLASSES && probabilities[i] >= LEAST_SHOWN) || i === answer.true);
  const right = answer.true === null ? null : order[0] === answer.true;
  const verdict = element("p", { class: "om-verdict" }, "Answer ", element("b", {}, classes[order[0]]));
  if (right !== null) verdict.append(" ", mark(right, right ? "right" : `wrong: it is ${classes[answer.true ?? 0]}`));
  const bars = shown.map((i) => element("li", {},
    element("span", { class: "om-class" }, classes[i]),
    element("span", { class: "om-probability" }, element("i", { style: `width:${100 * probabilities[i]}%` })),
    element("span", {}, percent(probabilities[i])),
    element("span", { class: "om-true" }, i === answer.true ? "true" : "")));
  return [verdict, element("ol", { class: "om-classes", "aria-label": "Probabilities" }, ...bars)];
}

/**
 * @param {boolean} right
 * @param {string} text
 */
function mark(right, text) {
  return element("span", { class: right ? "om-right" : "om-wrong" }, `${right ? "✓" : "✗"} ${text}`);
}
