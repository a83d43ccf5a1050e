// Many examples: a list with filters and an order, and a viewer of the chosen example.

/**
 * @typedef {object} Example
 * @property {Trace[]} traces
 * @property {number} number its position in the order given
 * @property {boolean | null} right whether the answer is right; null if not known
 * @property {boolean | null} tree whether the induced trees are the true ones; null if not known
 * @property {number} depth of its deepest tree
 * @property {number} length of its longest sequence, in tokens
 * @property {number} certainty the probability of the answer
 */

/** The largest value of each group that examples can be filtered by. */
const GROUPS = { depth: [2, 4, 6, 10, 15, Infinity], length: [10, 20, 40, 80, Infinity] };
/** @type {Record<string, (a: Example, b: Example) => number>} */
const ORDERS = {
  given: (a, b) => a.number - b.number,
  length: (a, b) => a.length - b.length,
  depth: (a, b) => a.depth - b.depth,
  certainty: (a, b) => a.certainty - b.certainty,
};
let lists = 0;

class TraceList {
  /**
   * @param {Element} root what is in it is replaced
   * @param {Trace[]} traces those with the same number of an example are shown together
   */
  constructor(root, traces) {
    this.name = `om-list-${lists++}`;
    /** @type {Example[]} */
    this.examples = [];
    /** @type {Example | null} */
    this.current = null;
    /** @type {Record<string, string>} */
    this.chosen = {};
    this.choices = element("div", { class: "om-choices" });
    this.count = element("p", { class: "om-note", role: "status" });
    this.list = element("div", { class: "om-examples", role: "radiogroup", "aria-label": "Examples" });
    this.list.addEventListener("keydown", (event) => {
      if (["ArrowLeft", "ArrowRight"].includes(event.key)) pressActive(event);
    });
    this.place = element("div");
    const side = element("div", { class: "om-side" }, this.choices, this.count, this.list);
    root.classList.add("om-viewer");
    root.replaceChildren(element("div", { class: "om-list" }, side, this.place));
    this.viewer = new TraceViewer(this.place, []);
    this.show(traces);
  }

  /** @param {Trace[]} traces */
  show(traces) {
    this.examples = examplesOf(traces);
    this.current = null;
    this.chosen = { right: "", tree: "", depth: "", length: "", order: "given" };
    /** @type {[value: string, text: string][]} */
    const all = [["given", "as given"], ["length", "length"], ["depth", "depth"], ["certainty", "least certain"]];
    const orders = all.filter(([key]) => this.examples.some((example) => ORDERS[key](example, this.examples[0])));
    this.choices.replaceChildren(
      ...this.filter("right", "Answer", [["true", "right"], ["false", "wrong"]]),
      ...this.filter("tree", "Induced tree", [["true", "the true one"], ["false", "another"]]),
      ...this.filter("depth", "Tree depth", groups("depth")),
      ...this.filter("length", "Tokens", groups("length")),
      ...(orders.length < 2 ? [] : [this.chooser("order", "Order", orders)]));
    this.update();
  }

  /**
   * @param {string} key
   * @param {string} label
   * @param {[value: string, text: string][]} options
   */
  chooser(key, label, options) {
    return choice(label, options, (value) => {
      this.chosen[key] = value;
      this.update();
    });
  }

  /**
   * A filter; nothing if all examples are in the same group.
   * @param {string} key
   * @param {string} label
   * @param {[value: string, text: string][]} options
   */
  filter(key, label, options) {
    const some = options.filter(([value]) => this.examples.some((example) => matches(example, key, value)));
    return some.length < 2 ? [] : [this.chooser(key, label, [["", "all"], ...some])];
  }

  /** Show the examples that pass the filters, in the chosen order. */
  update() {
    const { order, ...filters } = this.chosen;
    const chosen = Object.entries(filters).filter(([, value]) => value);
    const shown = this.examples
      .filter((example) => chosen.every(([key, value]) => matches(example, key, value)))
      .sort(ORDERS[order]);
    if (!this.current || !shown.includes(this.current)) this.choose(shown[0] ?? null);
    this.list.replaceChildren(...shown.map((example) => this.entry(example)));
    this.count.textContent = `${shown.length} of ${counted(this.examples.length, "example")}`;
  }

  /** @param {Example} example */
  entry(example) {
    const { traces, right, number } = example;
    const input = element("input", { type: "radio", name: this.name, value: number });
    input.checked = example === this.current;
    input.addEventListener("change", () => this.choose(example));
    const verdict = right ? "right" : "wrong";
    const sign = right === null ? [] : [
      element("span", { class: `om-${verdict}`, "aria-hidden": "true" }, right ? "✓" : "✗"),
      element("span", { class: "om-hidden" }, verdict),
    ];
    const captions = [...new Set(traces.map(({ caption }) => caption))];
    const caption = captions.length === 1 && captions[0] ? [element("b", { dir: "auto" }, captions[0])] : [];
    const texts = new Set(traces.map(({ tokens }) => [...tokens.slice(0, 16), ...(tokens.length > 16 ? ["…"] : [])].join(" ")));
    const words = [...texts].map((text) => element("span", { class: "om-words", dir: "auto" }, text));
    return element("label", {}, input, ...sign, element("span", { class: "om-entry" }, ...caption, ...words));
  }

  /** @param {Example | null} example */
  choose(example) {
    this.current = example;
    this.viewer.show(example?.traces ?? []);
  }
}

/**
 * @param {Example} example
 * @param {string} key
 * @param {string} value
 */
function matches(example, key, value) {
  if (key !== "depth" && key !== "length") return String(key === "tree" ? example.tree : example.right) === value;
  return GROUPS[key].find((most) => example[key] <= most) === Number(value);
}

/**
 * The groups as options of a choice.
 * @param {"depth" | "length"} key
 * @returns {[value: string, text: string][]}
 */
function groups(key) {
  return GROUPS[key].map((most, i, all) => {
    const least = i ? all[i - 1] + 1 : 0;
    return [String(most), most === Infinity ? `${least} or more` : least ? `${least}–${most}` : `up to ${most}`];
  });
}

/**
 * Group traces by example, with the values that filters and orders use.
 * @param {Trace[]} traces
 * @returns {Example[]}
 */
function examplesOf(traces) {
  /** @type {Map<number | Trace, Trace[]>} */
  const byExample = new Map();
  for (const trace of traces) {
    const key = trace.example ?? trace;
    byExample.set(key, [...(byExample.get(key) ?? []), trace]);
  }
  return [...byExample.values()].map((group, number) => {
    const answer = group[0].answer;
    const best = answer ? Math.max(...answer.probabilities) : 1;
    const trees = group.flatMap((trace) => {
      const nodes = inducedNodes(trace);
      return nodes && trace.true_nodes ? [isTrueTree(trace, nodes)] : [];
    });
    return {
      traces: group,
      number,
      right: !answer || answer.true === null ? null : answer.probabilities.indexOf(best) === answer.true,
      tree: trees.length ? !trees.includes(false) : null,
      depth: Math.max(...group.map((trace) => depthOf(trace))),
      length: Math.max(...group.map((trace) => trace.tokens.length)),
      certainty: best,
    };
  });
}

/**
 * The depth of the true tree or, if there is none, of the induced one.
 * @param {Trace} trace
 */
function depthOf(trace) {
  const nodes = trace.true_nodes ?? inducedNodes(trace) ?? [];
  /** @type {number[]} */
  const depths = new Array(trace.tokens.length).fill(0);
  for (const node of nodes) depths.push(1 + Math.max(...node.children.map((child) => depths[child])));
  return Math.max(...depths);
}
