// The stack of Ordered Memory: what each slot holds, and how each token attends to the slots.

/** @type {["attention" | "forward_mask" | "backward_mask" | "occupancy", symbol: string, text: string][]} */
const MATRICES = [
  ["attention", "p", "p: attention"],
  ["forward_mask", "→π", "→π: joined with the token"],
  ["backward_mask", "←π", "←π: taken from the step before"],
  ["occupancy", "occupancy", "occupancy: may be attended to"],
];

/**
 * The slots to show: from the topmost one that ever holds something or is attended to, down to the bottom of
 * the stack. 0 is the row of a token for which no slot is left.
 * @param {Memory} memory
 */
function slotsInUse(memory) {
  let top = memory.num_slots;
  for (const { stack } of memory.steps) for (const [, slot] of stack) top = Math.min(top, slot);
  for (const row of memory.attention) {
    const first = row.findIndex((p) => p >= 0.01);
    if (first >= 0) top = Math.min(top, first + 1);
  }
  return Array.from({ length: memory.num_slots - top + 1 }, (_, i) => top + i);
}

/**
 * The numbers of the slots, which stay where they are while the columns scroll.
 * @param {number[]} slots
 * @param {number} height of a row
 */
function slotNumbers(slots, height) {
  const numbers = slots.map((slot) => {
    const title = slot ? `slot ${slot}` : "no slot is left";
    return element("span", { "data-slot": slot, style: `height:${height}px`, title }, slot ? String(slot) : "–");
  });
  return element("div", { class: "om-gutter" }, ...numbers);
}

class StackView {
  /**
   * @param {Trace} trace
   * @param {Memory} memory
   * @param {Columns} columns
   */
  constructor(trace, memory, columns) {
    this.trace = trace;
    this.steps = memory.steps;
    this.columns = columns;
    this.slots = slotsInUse(memory);
    this.height = clamp(Math.floor(280 / this.slots.length), 22, 28); // of a row
    /** @type {Map<number, HTMLElement>} the bars that are drawn, by id */
    this.bars = new Map();
    const size = `width:${columns.right}px; height:${this.slots.length * this.height}px`;
    this.element = element("div", { class: "om-stack", style: `--om-row-height:${this.height}px; ${size}` },
      slotNumbers(this.slots, this.height));
  }

  /** @param {number} frame */
  show(frame) {
    const { token, joined, stack } = this.steps[frame];
    const now = new Map(stack);
    const before = frame ? this.steps[frame - 1].stack : [];
    const last = now.get(joined[joined.length - 1]);
    const erased = before.filter(([id, slot]) => joined.length && !now.has(id) && slot !== last);
    for (const [id, bar] of this.bars) {
      if (now.has(id) || erased.some(([other]) => other === id)) continue;
      bar.remove();
      this.bars.delete(id);
    }
    for (const [id, slot] of erased) this.place(id, slot, "erased", `joined, and erased from slot ${slot}`);
    for (const [id, slot] of stack) {
      const state = joined.includes(id) ? "new" : id === token ? "read" : "held";
      this.place(id, slot, state, slot ? `in slot ${slot}` : "no slot is left for it");
    }
  }

  /**
   * @param {number} id of a token or a node
   * @param {number} slot
   * @param {string} state
   * @param {string} where
   */
  place(id, slot, state, where) {
    const { first, last } = spanOf(this.trace, this.trace.nodes ?? [], id);
    const words = wordsOf(this.trace, first, last, 60);
    let bar = this.bars.get(id);
    if (!bar) {
      const left = this.columns.edges[first] + 2;
      const width = this.columns.edges[last + 1] - left - 2;
      // The words of a wide bar stay in view. A sticky element costs the browser a layer, so only wide bars have it.
      bar = element("div", { class: width > 300 ? "om-bar om-wide" : "om-bar", "data-id": id },
        element("span", { dir: "auto" }, words));
      bar.style.left = `${left}px`;
      bar.style.width = `${width}px`;
      this.bars.set(id, bar);
      this.element.append(bar);
    }
    bar.dataset.state = state;
    bar.dataset.slot = String(slot);
    bar.title = `${words}: ${where}`;
    bar.style.top = `${(slot - this.slots[0]) * this.height + 2}px`;
  }
}

let lastMatrix = "attention"; // kept from one example to the next

class AttentionView {
  /**
   * @param {Trace} trace
   * @param {Memory} memory
   * @param {Columns} columns
   */
  constructor(trace, memory, columns) {
    this.trace = trace;
    this.memory = memory;
    this.columns = columns;
    this.slots = slotsInUse(memory).filter((slot) => slot);
    this.height = clamp(Math.floor(200 / this.slots.length), 13, 20); // of a row
    const [width, height] = [columns.right, this.slots.length * this.height];
    const rings = memory.steps.flatMap(({ token, slot }) =>
      token === null || slot === null ? [] : [this.cell(token, slot, "om-ring", 2)]);
    const stripes = () => this.slots.map((_, i) =>
      shape("rect", { class: "om-stripe", y: i * this.height + 1, width: "100%", height: this.height - 2 }));
    this.cells = shape("g");
    this.veil = shape("svg", { height }, shape("rect", { class: "om-veil", width: "100%", height }), ...stripes());
    this.svg = shape("svg", { width, height, role: "img", "aria-label": "How each token attends to the slots" },
      shape("svg", { x: GUTTER, width: width - GUTTER, height }, ...stripes()), this.cells, ...rings, this.veil);
    this.element = element("div", { class: "om-attention", style: `width:${width}px; height:${height}px` },
      slotNumbers(this.slots, this.height), this.svg);
    this.choose(lastMatrix);
  }

  /**
   * @param {number} token
   * @param {number} slot
   * @param {string} kind
   * @param {number} inset
   */
  cell(token, slot, kind, inset) {
    return shape("rect", {
      class: kind,
      x: this.columns.edges[token] + inset,
      y: (slot - this.slots[0]) * this.height + inset,
      width: this.columns.width(token) - 2 * inset,
      height: this.height - 2 * inset,
      rx: 3,
    });
  }

  /** @param {string} key which of the matrices to show */
  choose(key) {
    lastMatrix = key;
    const [[matrix]] = MATRICES.filter(([name]) => name === key);
    this.cells.replaceChildren();
    this.memory[matrix].forEach((row, token) => {
      for (const slot of this.slots) {
        if (row[slot - 1] < 0.005) continue;
        const cell = this.cell(token, slot, "om-cell", 1);
        cell.style.fillOpacity = String(row[slot - 1]);
        this.cells.append(cell);
      }
    });
  }

  /** @param {number} frame after whose token the rest is veiled */
  show(frame) {
    const { token } = this.memory.steps[frame];
    const { edges, right } = this.columns;
    const forward = this.trace.direction === "forward";
    const from = token === null ? right : forward ? edges[token + 1] : GUTTER;
    const to = token === null || forward ? right : edges[token];
    this.veil.setAttribute("x", String(from));
    this.veil.setAttribute("width", String(to - from));
  }

  /**
   * The numbers of a cell.
   * @param {number} token
   * @param {number} y
   */
  tell(token, y) {
    const slot = this.slots[clamp(Math.floor(y / this.height), 0, this.slots.length - 1)];
    const numbers = MATRICES.map(([key, symbol]) => `${symbol} ${fraction(this.memory[key][token][slot - 1])}`);
    return [`slot ${slot}`, ...numbers];
  }
}
