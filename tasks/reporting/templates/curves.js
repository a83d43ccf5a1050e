// Plots: the pointer or the arrow keys choose a place on the axis, and its values are shown below the plot.

class Plot {
  /** @param {Element} figure a plot, the line for its values, and the table of its numbers */
  constructor(figure) {
    this.plot = /** @type {HTMLElement} */ (figure.querySelector(".plot"));
    this.svg = /** @type {SVGSVGElement} */ (this.plot.querySelector("svg"));
    this.readout = /** @type {HTMLElement} */ (figure.querySelector(".readout"));
    this.rows = [...figure.querySelectorAll("tbody tr")];
    this.heads = [...figure.querySelectorAll("thead th")].map((head) => head.textContent);
    this.xs = (this.svg.dataset.xs ?? "").split(" ").map(Number);
    this.lines = [...this.svg.querySelectorAll(".line")].map((line) => ({
      ys: (line.getAttribute("data-ys") ?? "").split(" "),
      dot: line.appendChild(OrderedMemoryViewer.shape("circle", { r: 4.5, class: "dot", visibility: "hidden" })),
    }));
    const { top, bottom } = this.svg.dataset;
    this.guide = this.svg.appendChild(OrderedMemoryViewer.shape("path", {
      d: `M0,${top}V${bottom}`, class: "guide", visibility: "hidden",
    }));
    const best = this.rows.findIndex((row) => row.querySelector(".best"));
    this.rest = best < 0 ? this.rows.length - 1 : best;
    this.chosen = this.rest;
    for (const [name, value] of Object.entries({
      tabindex: 0, role: "slider", "aria-label": this.svg.getAttribute("aria-label")?.split(";")[0] ?? "",
      "aria-valuemin": 1, "aria-valuemax": this.rows.length,
    })) this.plot.setAttribute(name, String(value));
    this.svg.setAttribute("aria-hidden", "true");
    this.tell();
    this.plot.addEventListener("pointermove", (event) => this.choose(this.nearest(event.clientX)));
    this.plot.addEventListener("pointerdown", (event) => this.choose(this.nearest(event.clientX)));
    this.plot.addEventListener("pointerleave", (event) => {
      const stays = event.pointerType === "touch" || this.plot === document.activeElement;
      if (!stays) this.leave();
    });
    this.plot.addEventListener("blur", () => this.leave());
    this.plot.addEventListener("focus", () => this.choose(this.chosen));
    this.plot.addEventListener("keydown", (event) => this.press(event));
  }

  /** @param {number} row the place to show */
  choose(row) {
    this.chosen = row;
    this.tell();
    const x = this.xs[row];
    this.guide.setAttribute("transform", `translate(${x})`);
    this.guide.setAttribute("visibility", "visible");
    for (const { ys, dot } of this.lines) {
      dot.setAttribute("visibility", ys[row] === "-" ? "hidden" : "visible");
      if (ys[row] !== "-") dot.setAttribute("transform", `translate(${x},${ys[row]})`);
    }
  }

  /** Show the best place, or else the last one, and no guide. */
  leave() {
    this.chosen = this.rest;
    this.tell();
    for (const drawn of [this.guide, ...this.lines.map(({ dot }) => dot)]) drawn.setAttribute("visibility", "hidden");
  }

  /** Say the values of the chosen place. */
  tell() {
    const row = this.rows[this.chosen];
    const [place, ...values] = [...row.children].map((cell) => cell.textContent);
    const best = row.querySelector(".best") ? " (best)" : "";
    const parts = values.flatMap((value, i) => {
      const end = i < values.length - 1 ? "," : "";
      return [" ", OrderedMemoryViewer.element("span", {}, `${this.heads[i + 1]} ${value}${end}`)]; // no line ends within
    });
    this.readout.replaceChildren(`${this.heads[0]} ${place}${best}:`, ...parts);
    this.plot.setAttribute("aria-valuenow", String(this.chosen + 1));
    this.plot.setAttribute("aria-valuetext", this.readout.textContent ?? "");
  }

  /** @param {number} clientX */
  nearest(clientX) {
    const { left, width } = this.svg.getBoundingClientRect();
    const x = ((clientX - left) / width) * this.svg.viewBox.baseVal.width;
    return this.xs.reduce((best, place, i) => (Math.abs(place - x) < Math.abs(this.xs[best] - x) ? i : best), 0);
  }

  /** @param {KeyboardEvent} event */
  press(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const last = this.rows.length - 1;
    /** @type {Record<string, number>} */
    const moves = {
      ArrowLeft: this.chosen - 1, ArrowDown: this.chosen - 1, ArrowRight: this.chosen + 1, ArrowUp: this.chosen + 1,
      Home: 0, End: last,
    };
    if (!(event.key in moves)) return;
    event.preventDefault();
    this.choose(Math.min(last, Math.max(0, moves[event.key])));
  }
}

for (const figure of document.querySelectorAll(".curve")) new Plot(figure);
