// The traces of one example: the answer of the model, and a board for each trace.

class TraceViewer {
  /**
   * @param {Element} root what is in it is replaced
   * @param {Trace[]} traces of one example
   */
  constructor(root, traces) {
    this.root = root;
    this.root.classList.add("om-viewer");
    /** @type {Partial<LayerTree>} what was chosen last, which the next example begins with */
    this.chosen = {};
    this.show(traces);
  }

  /** @param {Trace[]} traces of one example */
  show(traces) {
    this.root.replaceChildren();
    /** @param {(trace: Trace) => unknown} part */
    const same = (part) => new Set(traces.map((trace) => JSON.stringify(part(trace)))).size === 1;
    const [sameCaption, sameAnswer] = [same(({ caption }) => caption), same(({ answer }) => answer)];
    traces.forEach((trace, i) => {
      const { caption, answer } = trace;
      if (!i) this.root.append(header(sameCaption ? caption : "", sameAnswer ? answer : undefined));
      this.root.append(header(sameCaption ? "" : caption, sameAnswer ? undefined : answer), ...this.board(trace));
    });
  }

  /**
   * The board of a trace; of one with distances under a choice of the layer and of how to read its tree.
   * @param {Trace} trace
   */
  board(trace) {
    const { layers, default_tree } = trace;
    if (!layers?.length) return [new Board(trace, null).element];
    /** @param {string | undefined} wanted */
    const named = (wanted) => layers.find(({ name }) => name === wanted);
    const usual = named(default_tree?.layer) ?? layers[layers.length >> 1]; // the second of three, as in the paper
    const chosen = { ...this.chosen };
    const layer = () => named(chosen.layer) ?? usual;
    // "cky" may have been chosen for a shorter sentence: long ones do not have it.
    const decoding = () => {
      const { trees } = layer();
      const wanted = [chosen.decoding, default_tree?.decoding, "unbiased", ...Object.keys(trees)];
      return wanted.find((name) => name !== undefined && name in trees) ?? "";
    };
    const made = () => new Board(trace, { layer: layer(), decoding: decoding() });
    let board = made();
    /** @param {Partial<LayerTree>} choices */
    const change = (choices) => {
      Object.assign(chosen, choices);
      Object.assign(this.chosen, choices);
      const { element: old, scroller: { scrollLeft }, player: { frame, length } } = board;
      board = active = made();
      old.replaceWith(board.element);
      board.scroller.scrollLeft = scrollLeft;
      if (frame < length - 1) board.player.show(frame); // the trees have as many splits
    };
    /**
     * @param {string} name
     * @returns {[string, string]}
     */
    const option = (name) => [name, name];
    const names = layers.map(({ name }) => option(name));
    const decodings = Object.keys(usual.trees).map(option);
    const controls = [];
    if (names.length > 1) controls.push(choice("Layer", names, (name) => change({ layer: name }), layer().name));
    if (decodings.length > 1) controls.push(choice("Tree", decodings, (name) => change({ decoding: name }), decoding()));
    if (!controls.length) return [board.element];
    return [element("div", { class: "om-choices" }, ...controls), board.element];
  }
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
 * The answer, whether it is right, and bars for the most probable classes and the true one.
 * @param {Answer} answer
 */
function answerParts(answer) {
  const { classes, probabilities } = answer;
  const order = classes.map((_, i) => i).sort((a, b) => probabilities[b] - probabilities[a]);
  const shown = order.filter((i, rank) =>
    rank < 2 || (rank < SHOWN_CLASSES && probabilities[i] >= LEAST_SHOWN) || i === answer.true);
  const right = answer.true === null ? null : order[0] === answer.true;
  const verdict = element("p", { class: "om-verdict" }, "Answer ", element("b", {}, classes[order[0]]));
  if (right !== null) {
    const text = right ? "✓ right" : `✗ wrong: it is ${classes[answer.true ?? 0]}`;
    verdict.append(" ", element("span", { class: right ? "om-right" : "om-wrong" }, text));
  }
  const bars = shown.map((i) => element("li", {},
    element("span", { class: "om-class" }, classes[i]),
    element("span", { class: "om-probability" }, element("i", { style: `width:${100 * probabilities[i]}%` })),
    element("span", {}, percent(probabilities[i])),
    element("span", { class: "om-true" }, i === answer.true ? "true" : "")));
  return [verdict, element("ol", { class: "om-classes", "aria-label": "Probabilities" }, ...bars)];
}
