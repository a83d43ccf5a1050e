// The pointer over a board: it highlights what it points at, and what belongs to that. Dragging moves through
// time.

/** @param {Board} board */
function listenToPointer(board) {
  const { scroller, light } = board;
  scroller.addEventListener("pointermove", (event) => event.buttons || light.point(event.target, event));
  scroller.addEventListener("pointerleave", () => light.off());
  scroller.addEventListener("focusin", ({ target }) => {
    if (target instanceof SVGElement) light.point(target, target.getBoundingClientRect());
  });
  scroller.addEventListener("focusout", () => light.off());
  scroller.addEventListener("click", (event) => {
    const node = closest(event.target, ".om-node");
    if (node) board.jump(node);
    if (event.pointerType === "touch") light.point(event.target, event);
  });
  board.element.addEventListener("pointerdown", (event) => event.pointerType === "touch" && light.off());
  scroller.addEventListener("pointerdown", (event) => {
    // A finger scrolls the columns, except in the row of tokens, where it moves through time.
    const finger = event.pointerType === "touch" && !closest(event.target, ".om-tokens");
    const elsewhere = event.target === scroller /* its scroll bar */ || closest(event.target, ".om-node, .om-heading, .om-gutter");
    if (event.button || finger || !board.timeline || elsewhere) return;
    const { frameOf } = board.timeline;
    const stop = new AbortController();
    /** @param {PointerEvent} at */
    const seek = (at) => {
      const frame = frameOf[board.columns.at(acrossOf(board, at.clientX))];
      if (frame !== board.player.frame) board.player.go(frame);
    };
    light.off();
    seek(event);
    window.addEventListener("pointermove", seek, { signal: stop.signal });
    window.addEventListener("pointerup", () => stop.abort(), { signal: stop.signal });
    window.addEventListener("pointercancel", () => stop.abort(), { signal: stop.signal });
  });
}

class Light {
  /** @param {Board} board */
  constructor(board) {
    this.board = board;
    /** @type {{target: EventTarget | null, place: {x: number, y: number}} | null} what was pointed at last */
    this.last = null;
    this.parents = parentsOf(board.nodes, board.trace.tokens.length);
    this.tip = element("div", { class: "om-tip", "aria-hidden": "true", hidden: "" });
    /** @type {Element[]} */
    this.lit = [];
  }

  /**
   * @param {EventTarget | null} target
   * @param {{x: number, y: number}} place on the screen
   */
  point(target, place) {
    this.last = { target, place };
    const thing = closest(target, ".om-node, .om-bar, .om-token");
    if (thing?.matches(".om-token")) return this.path(Number(thing.getAttribute("data-token")));
    if (thing?.matches("[role=img]")) return this.trueNode(thing, place);
    if (thing) return this.subtree(Number(thing.getAttribute("data-id")), place);
    const map = closest(target, ".om-attention > svg, .om-distances");
    return map ? this.numbers(map, place) : this.off();
  }

  /** @param {number} token of which all constituents are lit */
  path(token) {
    const { tree, trace } = this.board;
    /** @type {(Element | undefined)[]} */
    const path = this.tokens(token, token);
    for (let id = this.parents[token]; id >= 0; id = this.parents[id]) {
      path.push(tree?.groups[id - trace.tokens.length]);
    }
    this.on(path);
  }

  /**
   * A token or an induced constituent: its point, its words, its bar, and the slot that it was built in.
   * @param {number} id
   * @param {{x: number, y: number}} place
   */
  subtree(id, place) {
    const { trace, nodes, tree, stack, element: root } = this.board;
    const { first, last } = spanOf(trace, nodes, id);
    const k = id - trace.tokens.length;
    const numbers = nodes[k]?.slot ? root.querySelectorAll(`.om-gutter [data-slot="${nodes[k].slot}"]`) : [];
    const all = [tree?.groups[k], stack?.bars.get(id), ...this.tokens(first, last), ...numbers];
    this.on(all, nodes[k] && this.board.tell(k), place);
  }

  /**
   * @param {Element} node of the true tree
   * @param {{x: number, y: number}} place
   */
  trueNode(node, place) {
    const [first, last] = ["data-first", "data-last"].map((name) => Number(node.getAttribute(name)));
    this.on([node, ...this.tokens(first, last)], [node.getAttribute("aria-label") ?? ""], place);
  }

  /**
   * The numbers that a map shows.
   * @param {Element} map
   * @param {{x: number, y: number}} place
   */
  numbers(map, place) {
    const { trace, columns, distances, attention } = this.board;
    const token = columns.at(acrossOf(this.board, place.x));
    const layer = distances.find((view) => view.element === map)?.layer;
    const lines = layer ? [`distance ${fraction(layer.distances[token])}`]
      : attention?.tell(token, place.y - map.getBoundingClientRect().top);
    this.on(this.tokens(token, token), lines && [`“${trace.tokens[token]}”`, ...lines], place);
  }

  /**
   * @param {number} first
   * @param {number} last
   */
  tokens(first, last) {
    return [...this.board.tokens.children].slice(first, last + 1);
  }

  /**
   * @param {(Element | undefined)[]} elements to light up
   * @param {string[]} [lines] of the note beside the pointer
   * @param {{x: number, y: number}} [place] of the pointer
   */
  on(elements, lines, place) {
    this.clear();
    this.lit = elements.filter((one) => one !== undefined);
    for (const one of this.lit) one.classList.add("om-lit");
    if (!lines || !place) return;
    this.tip.hidden = false;
    this.tip.replaceChildren(...lines.map((line) => element("div", { dir: "auto" }, line)));
    const around = this.board.element.getBoundingClientRect();
    const { offsetWidth, offsetHeight } = this.tip;
    const below = place.y + 18 + offsetHeight < innerHeight;
    this.tip.style.left = `${clamp(place.x - around.left + 12, 0, around.width - offsetWidth)}px`;
    this.tip.style.top = `${place.y - around.top + (below ? 18 : -offsetHeight - 8)}px`;
  }

  /** Highlight again, after a step, what the pointer points at. */
  refresh() {
    if (this.last) this.point(this.last.target, this.last.place);
  }

  off() {
    this.last = null;
    this.clear();
  }

  clear() {
    for (const one of this.lit) one.classList.remove("om-lit");
    this.lit = [];
    this.tip.hidden = true;
  }
}

/**
 * The horizontal position within the columns of a place on the screen.
 * @param {Board} board
 * @param {number} x
 */
function acrossOf({ scroller }, x) {
  return x - scroller.getBoundingClientRect().left - scroller.clientLeft + scroller.scrollLeft;
}

/**
 * @param {EventTarget | null} target
 * @param {string} selector
 */
function closest(target, selector) {
  return target instanceof Element ? target.closest(selector) : null;
}
