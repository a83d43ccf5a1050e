// One trace: its tree above the tokens, the stack and the attention, or the distances, below them.

/** @typedef {{ layer: Layer, decoding: string }} Choice which tree of a model with distances to show */

class Board {
  /**
   * @param {Trace} trace
   * @param {Choice | null} chosen
   */
  constructor(trace, chosen) {
    const { tokens, memory, layers = [] } = trace;
    this.trace = trace;
    this.nodes = chosen ? chosen.layer.trees[chosen.decoding] : trace.nodes ?? [];
    this.timeline = timelineOf(trace, chosen);
    this.columns = new Columns(tokens);
    this.tokens = tokenRow(tokens, this.columns);
    this.cursor = element("div", { class: "om-cursor", hidden: "" });
    this.sentence = element("p", { class: "om-sentence" });
    this.player = new Player(this.timeline?.length ?? 1, (frame) => this.show(frame));
    this.tree = this.timeline && new TreeView(this.nodes, this.columns, {
      timeline: this.timeline,
      label: "Induced tree",
      values: trace.token_values,
      marked: (k) => this.nodes[k].in_true_tree === false,
      tell: (k) => this.tell(k),
    });
    this.stack = memory ? new StackView(trace, memory, this.columns) : null;
    this.attention = memory ? new AttentionView(trace, memory, this.columns) : null;
    this.distances = layers.map((layer) => new DistancesView(layer, this.columns, layer === chosen?.layer));
    this.light = new Light(this);
    const columns = element("div", { class: "om-columns" }, this.cursor, ...this.parts());
    const width = this.columns.right + 8;
    columns.style.width = `${width}px`;
    columns.style.setProperty("--om-print-zoom", String(Math.min(1, PAPER / width)));
    this.content = columns;
    const names = { role: "group", "aria-label": "Columns of tokens" };
    this.scroller = element("div", { class: "om-scroller", tabindex: 0, ...names }, columns);
    const steps = this.timeline && this.timeline.length > 1 ? [this.player.element, this.sentence] : [];
    this.element = element("div", { class: "om-board", role: "group", "aria-label": trace.caption || "Trace" },
      ...steps, this.scroller, this.legend(), this.light.tip);
    listenToPointer(this);
    listenToKeys(this);
    this.player.show(this.player.length - 1);
  }

  /** What is in the columns, from top to bottom. */
  parts() {
    /** @type {Element[]} */
    const parts = [];
    if (this.tree) parts.push(this.tree.element, this.tokens);
    const { stack, attention } = this;
    if (stack && attention) {
      const matrices = MATRICES.map(([key, , text]) => /** @type {[string, string]} */ ([key, text]));
      const shown = choice("Show", matrices, (key) => attention.choose(key), lastMatrix);
      parts.push(
        heading("Stack", "after this step, the top first; dashed: joined into another, and erased"),
        stack.element,
        heading("Attention", "full color: 1; ringed: the largest p", shown),
        attention.element);
    }
    for (const { layer, chosen, element: bars } of this.distances) {
      parts.push(heading(`Distances, ${layer.name}`, chosen ? "the tree is read off them" : ""), bars);
    }
    return [...parts, ...this.trueTree()];
  }

  /** The true tree; only a note if the induced tree is the same and there are no values. */
  trueTree() {
    const { trace, timeline, nodes: induced } = this;
    const { true_nodes, words, token_values, true_token_values } = trace;
    if (!true_nodes) return timeline ? [] : [this.tokens];
    const numbers = new Set(words);
    const missing = missingOf(trace, induced);
    if (timeline && isTrueTree(trace, induced) && !true_token_values && true_nodes.every((node) => node.value === undefined)) {
      return [element("p", { class: "om-note om-same" }, "✓ The induced tree is the true one.")];
    }
    /** @type {(label: string, nodes: Constituent[], values?: number[]) => TreeView} */
    const view = (label, nodes, values) => new TreeView(nodes, this.columns, {
      timeline: null,
      label,
      values,
      marked: (k) => timeline !== null && missing[k],
      tell: (k) => [wordsOf(trace, nodes[k].first, nodes[k].last), ...valueOf(nodes[k])],
    });
    const tree = view("True tree", true_nodes, true_token_values);
    if (!timeline) {
      if (true_nodes.every((node) => node.model_value === undefined)) {
        return [heading("True tree", "this model induces none"), tree.element, this.tokens];
      }
      const own = true_nodes.map((node) => ({ ...node, value: node.model_value }));
      return [heading("True tree", "with the model's values"),
        view("True tree, values of the model", own, token_values).element, this.tokens,
        heading("True tree", "with the values in the data"), tree.element, tokenRow(trace.tokens, this.columns, numbers)];
    }
    const found = `${missing.filter((gone) => !gone).length} of its ${counted(missing.length, "constituent")}`;
    return [heading("True tree", `${found} in the induced tree; dashed: the others`),
      tree.element, tokenRow(trace.tokens, this.columns, numbers)];
  }

  /** The meaning of colors and dashes, if the tree has any. */
  legend() {
    const { nodes, trace, timeline } = this;
    const parts = [];
    /** @type {(kind: string, text: string) => HTMLElement} */
    const line = (kind, text) => element("span", {},
      shape("svg", { class: kind, width: 26, height: 8, "aria-hidden": "true" }, shape("path", { class: "om-branch", d: "M1 4H25" })),
      ` ${text}`);
    if (timeline && nodes.length) parts.push(line("om-current", `${timeline.topDown ? "split" : "built"} in this step`));
    if (nodes.some((node) => node.in_true_tree === false)) parts.push(line("om-marked", "not in the true tree"));
    const ofNodes = [...nodes, ...(trace.true_nodes ?? [])].some((node) => node.value !== undefined);
    if (ofNodes || trace.token_values || trace.true_token_values) {
      parts.push(element("span", {}, "negative ", element("i", { class: "om-scale" }), " positive"));
    }
    if (trace.direction === "backward") parts.push("Read from right to left.");
    return element("p", { class: "om-note om-legend" }, ...parts);
  }

  /** @param {number} frame */
  show(frame) {
    const { timeline } = this;
    if (!timeline) return;
    const token = timeline.token(frame);
    this.sentence.setAttribute("aria-live", this.player.timer ? "off" : "polite");
    this.sentence.replaceChildren(...timeline.sentence(frame));
    this.tree?.show(frame);
    this.stack?.show(frame);
    this.attention?.show(frame);
    for (const view of this.distances) view.show(timeline, frame);
    [...this.tokens.children].forEach((shown, i) => {
      const state = i === token ? "current" : this.stack && timeline.frameOf[i] > frame ? "unread" : "read";
      if (shown.getAttribute("data-state") !== state) shown.setAttribute("data-state", state);
    });
    this.light.refresh();
    this.cursor.hidden = token === null;
    if (token === null) return;
    this.cursor.style.left = `${this.columns.edges[token]}px`;
    this.cursor.style.width = `${this.columns.width(token)}px`;
    this.reveal(token);
  }

  /** @param {number} token whose column is brought into view, with room on either side */
  reveal(token) {
    const { scrollLeft, clientWidth } = this.scroller;
    const room = clientWidth / 4;
    const most = this.columns.edges[token] - GUTTER - room;
    const least = this.columns.edges[token + 1] + room - clientWidth;
    if (scrollLeft > most || scrollLeft < least) this.scroller.scrollLeft = clamp(scrollLeft, least, most);
  }

  /**
   * A node of the induced tree in words.
   * @param {number} k
   */
  tell(k) {
    const node = this.nodes[k];
    const { topDown = false, madeAt = [] } = this.timeline ?? {};
    const made = `${topDown ? "split" : "built"} at step ${madeAt[k] + 1}`;
    const truth = node.in_true_tree ? ["in the true tree"] : node.in_true_tree === false ? ["not in the true tree"] : [];
    const words = wordsOf(this.trace, node.first, node.last);
    return [words, node.slot ? `${made}, in slot ${node.slot}` : made, ...truth, ...valueOf(node)];
  }

  /** @param {Element} group of a node, to whose step time goes */
  jump(group) {
    const k = this.tree?.groups.findIndex((other) => other === group) ?? -1;
    if (this.timeline && k >= 0) this.player.go(this.timeline.madeAt[k]);
  }
}

/**
 * @param {Trace} trace
 * @param {Choice | null} chosen
 */
function timelineOf(trace, chosen) {
  if (trace.memory) return memoryTimeline(trace, trace.memory);
  if (chosen) return splittingTimeline(trace, chosen.layer, chosen.decoding);
  return trace.nodes ? buildingTimeline(trace, trace.nodes) : null;
}

/** @param {Constituent} node */
function valueOf({ value }) {
  if (value === undefined) return [];
  const text = fraction(value);
  return [`value ${Number(text) > 0 ? "+" : ""}${text}`];
}

/**
 * @param {string} title
 * @param {string} note
 * @param {...Element} more
 */
function heading(title, note, ...more) {
  const aside = element("span", { class: "om-note" }, note);
  return element("div", { class: "om-heading" }, element("b", {}, title), ...more, aside);
}

/**
 * @param {string[]} tokens
 * @param {Columns} columns
 * @param {Set<number>} [words] those that the tree is over; all of them by default
 */
function tokenRow(tokens, columns, words) {
  return element("div", { class: "om-tokens", style: `padding-left:${GUTTER}px` }, ...tokens.map((token, i) =>
    element("span", {
      class: "om-token", dir: "auto", title: token, "data-token": i, style: `width:${columns.width(i)}px`,
      "data-state": words && !words.has(i) ? "unread" : "read",
    }, token)));
}
