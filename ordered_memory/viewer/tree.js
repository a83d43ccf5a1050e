// A tree above its tokens: right-angled brackets, a point for each constituent.

/** @typedef {{ timeline: Timeline | null, label: string, values?: number[], marked: (k: number) => boolean,
 *   tell: (k: number) => string[] }} TreeOptions */

class TreeView {
  /**
   * @param {Constituent[]} nodes
   * @param {Columns} columns
   * @param {TreeOptions} options `timeline`: null for a tree that is there from the start
   */
  constructor(nodes, columns, options) {
    const size = columns.edges.length - 1;
    this.timeline = options.timeline;
    this.parents = parentsOf(nodes, size);
    /** @type {number[]} of tokens and nodes: the longest way down to a token */
    const levels = new Array(size).fill(0);
    /** @type {number[]} of tokens and nodes: in the middle of the parts */
    const x = levels.map((_, token) => columns.middle(token));
    for (const { children } of nodes) {
      levels.push(1 + Math.max(...children.map((child) => levels[child])));
      x.push((x[children[0]] + x[children[children.length - 1]]) / 2);
    }
    const highest = Math.max(...levels);
    const level = clamp(300 / highest, 4, 24);
    const radius = level < 8 ? 2 : 3.5;
    const base = 12 + level * highest;
    const height = base + 8;
    /** @param {number} id */
    const y = (id) => (levels[id] ? base - level * levels[id] : height);

    /** @type {SVGGElement[]} */
    this.groups = nodes.map((node, k) => {
      const id = size + k;
      const ends = [node.children[0], node.children[node.children.length - 1]];
      const inner = node.children.slice(1, -1).map((child) => `M${x[child]} ${y(id)}V${y(child)}`).join("");
      const bracket = `M${x[ends[0]]} ${y(ends[0])}V${y(id)}H${x[ends[1]]}V${y(ends[1])}${inner}`;
      const group = shape("g", {
        class: options.marked(k) ? "om-node om-marked" : "om-node",
        "data-id": id, "data-first": node.first, "data-last": node.last,
        role: options.timeline ? "button" : "img", "aria-label": options.tell(k).join(", "),
      });
      if (options.timeline?.topDown) {
        const whole = `M${columns.middle(node.first)} ${y(id) + 6}v-6H${columns.middle(node.last)}v6`;
        group.append(shape("path", { class: "om-whole", d: whole }));
      }
      group.append(shape("path", { class: "om-branch", d: bracket }), point(x[id], y(id), radius, node.value));
      return group;
    });
    const { values = [] } = options;
    const leaves = values.map((value, token) => point(x[token], height - 8, radius, value));
    this.element = shape("svg", {
      class: "om-tree", width: columns.right, height, role: "group", "aria-label": options.label,
    }, ...this.groups.toReversed(), ...leaves); // points lie above the brackets that lead to them
    this.stop = nodes.length - 1; // the node that the Tab key leads to
    this.show(options.timeline ? options.timeline.length - 1 : 0);
  }

  /** @param {number} frame */
  show(frame) {
    const size = this.parents.length - this.groups.length;
    const { timeline } = this;
    this.groups.forEach((group, k) => {
      let state = "built";
      if (timeline && timeline.madeAt[k] >= frame) {
        const parent = this.parents[size + k];
        const open = timeline.topDown && (parent < 0 || timeline.madeAt[parent - size] <= frame);
        state = timeline.madeAt[k] === frame ? "new" : open ? "open" : "hidden";
      }
      if (group.dataset.state !== state) group.dataset.state = state;
    });
    if (!timeline) return;
    const focused = this.groups[this.stop] === document.activeElement;
    this.focusable(this.visible(this.stop) ? this.stop : this.groups.findLastIndex((_, k) => this.visible(k)));
    if (focused) this.groups[this.stop].focus({ preventScroll: true });
  }

  /** @param {number} k */
  visible(k) {
    return k >= 0 && this.groups[k].dataset.state !== "hidden";
  }

  /** @param {number} k the one node that the Tab key leads to; -1 for none */
  focusable(k) {
    if (k !== this.stop) this.groups[this.stop]?.removeAttribute("tabindex"); // it loses the focus
    this.groups[k]?.setAttribute("tabindex", "0");
    if (k >= 0) this.stop = k;
  }

  /**
   * Move the focus to the next visible node, in the order in which they are built.
   * @param {number} by 1 or -1
   */
  move(by) {
    let k = this.stop + by;
    while (k >= 0 && k < this.groups.length && !this.visible(k)) k += by;
    if (!this.groups[k]) return;
    this.focusable(k);
    this.groups[k].focus();
  }
}

/**
 * Which constituents of the true tree are not in the induced one.
 * @param {Trace} trace
 * @param {Constituent[]} induced
 */
function missingOf({ words, true_nodes = [] }, induced) {
  const numbers = new Set(words);
  const found = new Set(induced.map(({ first, last }) => {
    while (first < last && !numbers.has(first)) first++;
    while (first < last && !numbers.has(last)) last--;
    return `${first} ${last}`;
  }));
  return true_nodes.map(({ first, last }) => !found.has(`${first} ${last}`));
}

/**
 * The constituents of the induced tree; of the layers' trees, of the one that counts.
 * @param {Trace} trace
 */
function inducedNodes({ nodes, layers = [], default_tree }) {
  return nodes ?? layers.find(({ name }) => name === default_tree?.layer)?.trees[default_tree?.decoding ?? ""];
}

/**
 * @param {Trace} trace
 * @param {Constituent[]} induced
 */
function isTrueTree(trace, induced) {
  return !missingOf(trace, induced).includes(true) && induced.every((node) => node.in_true_tree !== false);
}

/**
 * The point of a constituent, whose color and size show its value.
 * @param {number} x
 * @param {number} y
 * @param {number} radius
 * @param {number} [value]
 */
function point(x, y, radius, value) {
  const circle = shape("circle", { cx: x, cy: y, r: radius });
  if (value !== undefined) {
    circle.setAttribute("r", String(radius + 3 * Math.abs(value)));
    circle.classList.add(value < 0 ? "om-negative" : "om-positive");
    circle.style.setProperty("--om-strength", `${Math.round(100 * Math.abs(value))}%`);
  }
  return circle;
}
