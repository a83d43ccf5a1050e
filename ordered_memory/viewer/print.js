// On paper: columns that are much wider than a sheet are cut into strips, one below the other.

const PAPER = 640; // pixels: width of what is printed on a sheet, A4 or Letter
const LEAST_ZOOM = 0.65; // below this, text is too small to read
const MOST_ELEMENTS = 200_000; // in all strips of a board, each of which is a copy of the whole

/**
 * The strips of a board; none if it is readable on one sheet.
 * @param {Board} board
 */
function stripsOf({ content, stack, columns: { edges, right } }) {
  const most = Math.floor(MOST_ELEMENTS / content.querySelectorAll("*").length);
  const gutter = stack ? GUTTER : 4;
  const room = Math.max(PAPER / LEAST_ZOOM, right / most) - gutter; // for the columns of a strip
  /** @type {Element[]} */
  const strips = [];
  for (let first = 0; right + 8 > PAPER / LEAST_ZOOM && first < edges.length - 1;) {
    const next = Math.max(first + 1, edges.findLastIndex((edge) => edge <= (first ? edges[first] : gutter) + room));
    const columns = /** @type {HTMLElement} */ (content.cloneNode(true));
    columns.querySelectorAll("select").forEach((one, i) => (one.value = content.querySelectorAll("select")[i].value));
    const hidden = first ? edges[first] - gutter : 0;
    columns.style.marginLeft = `${-hidden}px`;
    for (const one of columns.querySelectorAll(".om-heading, .om-same, .om-gutter")) {
      Object.assign(/** @type {HTMLElement} */ (one).style, { position: "relative", left: `${hidden}px` });
    }
    for (const row of columns.querySelectorAll(".om-tokens")) { // no token is shown twice
      for (const one of [...row.children].slice(0, first)) one.setAttribute("style", `${one.getAttribute("style")}; visibility: hidden`);
    }
    const width = edges[next] - hidden;
    const zoom = Math.min(LEAST_ZOOM, PAPER / width);
    const size = `width: ${width}px; height: ${content.offsetHeight}px; zoom: ${zoom}`;
    strips.push(element("div", { class: "om-strip", style: size }, columns));
    first = next;
  }
  return strips;
}

addEventListener("beforeprint", () => {
  for (const one of document.querySelectorAll(".om-board")) {
    const board = boards.get(one);
    if (board) board.scroller.after(...stripsOf(board));
  }
});
addEventListener("afterprint", () => {
  for (const one of document.querySelectorAll(".om-strip")) one.remove();
});
