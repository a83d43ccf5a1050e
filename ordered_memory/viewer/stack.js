// The stack of Ordered Memory: what each slot holds, and how each token attends to the slots.

/** @param {number} count of slots, that many rows of which share a height */
const slotHeight = (count) => Math.max(22, Math.min(28, Math.floor(280 / count)));
/** @param {number} count */
const cellHeight = (count) => Math.max(13, Math.min(20, Math.floor(200 / count)));

/**
 * The slots that are shown: those that something is in or attends to, from the top of the stack to the bottom.
 * 0 stands for a token that no slot is left for.
 * @param {Memory} memory
 */
function slotsInUse(memory) {
  let top = memory.num_slots;
  for (const step of memory.steps) for (const [, slot] of step.stack) top = Math.min(top, slot);
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
  const numbers = slots.map((slot) =>
    element("span", { "data-slot": slot, style: `height:${height}px`, title: slot ? `slot ${slot}` : "no slot is left" }, slot ? String(slot) : "–"));
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
    this.height = slotHeight(this.slots.length);
    /** @type {Map<number, HTMLElement>} the bars that are drawn, by id */
    this.bars = new Map();
    this.element = element("div", { class: "om-stack", style: `--om-row-height:${this.height}px; height:${this.slots.length * this.height}px; width:${columns.right}px` },
      slotNumbers(this.slots, this.height));
  }

  /** @param {number} frame */
  show(frame) {
    const { joined, stack } = this.steps[frame];
    const now = new Map(stack);
    const before = frame ? this.steps[frame - 1].stack : [];
    const erased = joined.length ? before.filter(([id]) => !now.has(id)) : [];
    const merged = now.get(joined[joined.length - 1]);
    const gone = erased.filter(([, slot]) => slot !== merged);
    for (const [id, bar] of this.bars) {
      if (now.has(id) || gone.some(([other]) => other === id)) continue;
      bar.remove();
      this.bars.delete(id);
    }
    for (const [id, slot] of gone) this.place(id, slot, "erased", `joined, and erased from slot ${slot}`);
    for (const [id, slot] of stack) {
      const state = joined.includes(id) ? "new" : id === this.steps[frame].token ? "read" : "held";
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
    let bar = this.bars.get(id);
    if (!bar) {
      const label = element("span", { dir: "auto" }, wordsOf(this.trace, first, last, 60));
      const left = this.columns.edges[first];
      bar = element("div", { class: "om-bar", "data-id": id, style: `left:${left + 2}px; width:${this.columns.edges[last + 1] - left - 4}px` }, label);
      this.bars.set(id, bar);
      this.element.append(bar);
    }
    bar.dataset.state = state;
    bar.dataset.slot = String(slot);
    bar.title = `${wordsOf(this.trace, first, last, 60)}: ${where}`;
    bar.style.top = `${(slot - this.slots[0]) * this.height + 2}px`;
  }
}

/** @type {[key: "attention" | "forward_mask" | "backward_mask" | "occupancy", symbol: string, text: string][]} */
const MATRICES = [
  ["attention", "p", "p: attention"],
  ["forward_mask", "→π", "→π: joined with the token"],
  ["backward_mask", "←π", "←π: taken from the step before"],
  ["occupancy", "occupancy", "occupancy: may be attended to"],
];

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
    this.height = cellHeight(this.slots.length);
    const height = this.slots.length * this.height;
    this.cells = shape("g");
    this.rings = shape("g");
    for (const { token, slot } of memory.steps) {
      if (token !== null && slot !== null) this.rings.append(this.cell(token, slot, "om-ring", 2));
    }
    this.veil = shape("rect", { class: "om-veil", y: 0, height });
    const stripes = this.slots.map((_, i) =>
      shape("rect", { class: "om-stripe", x: GUTTER, y: i * this.height + 1, width: columns.right - GUTTER, height: this.height - 2 }));
    this.svg = shape("svg", { width: columns.right, height, role: "img", "aria-label": "How each token attends to the slots" },
      this.cells, this.rings, this.veil, ...stripes);
    this.element = element("div", { class: "om-attention", style: `height:${height}px; width:${columns.right}px` }, slotNumbers(this.slots, this.height), this.svg);
    this.choose("attention");
  }

  /**
   * @param {number} token
   * @param {number} slot
   * @param {string} kind
   * @param {number} inset
   */
  cell(token, slot, kind, inset) {
    return shape("rect", {
      class: kind, x: this.columns.edges[token] + inset, y: (slot - this.slots[0]) * this.height + inset,
      width: this.columns.width(token) - 2 * inset, height: this.height - 2 * inset, rx: 3,
    });
  }

  /** @param {string} key which of the matrices to show */
  choose(key) {
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

  /** @param {number} frame */
  show(frame) {
    const { token } = this.memory.steps[frame];
    const { edges, right } = this.columns;
    const forward = this.trace.direction === "forward";
    const left = token === null ? right : forward ? edges[token + 1] : GUTTER;
    this.veil.setAttribute("x", String(left));
    this.veil.setAttribute("width", String(token === null ? 0 : forward ? right - left : edges[token] - GUTTER));
  }

  /**
   * The numbers of a cell.
   * @param {number} token
   * @param {number} y
   */
  tell(token, y) {
    const slot = this.slots[Math.max(0, Math.min(this.slots.length - 1, Math.floor(y / this.height)))];
    return [`slot ${slot}`, ...MATRICES.map(([key, symbol]) => `${symbol} ${fraction(this.memory[key][token][slot - 1])}`)];
  }
}
