// Where each token stands: a column of its own, as wide as its text.

const GUTTER = 34; // left of the first column: numbers of slots
const NARROWEST = 34;
const WIDEST = 340;
const SPREAD = 600; // a few tokens are spread over this width, but no column is widened beyond ROOMY
const ROOMY = 56;
const TOKEN_FONT = '13px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace'; // as in viewer.css

class Columns {
  /** @param {string[]} tokens */
  constructor(tokens) {
    const pen = document.createElement("canvas").getContext("2d");
    if (pen) pen.font = TOKEN_FONT;
    const least = clamp(Math.min(SPREAD, innerWidth - 100) / tokens.length, NARROWEST, ROOMY);
    /** @type {number[]} the left edge of each column, and the right edge of the last */
    this.edges = [GUTTER];
    for (const token of tokens) {
      const width = Math.ceil(pen ? pen.measureText(token).width : 8 * token.length) + 14;
      this.edges.push(this.right + clamp(width, least, WIDEST));
    }
  }

  get right() {
    return this.edges[this.edges.length - 1];
  }

  /** @param {number} token */
  width(token) {
    return this.edges[token + 1] - this.edges[token];
  }

  /** @param {number} token */
  middle(token) {
    return (this.edges[token] + this.edges[token + 1]) / 2;
  }

  /**
   * The token whose column is at `x`, or the nearest.
   * @param {number} x
   */
  at(x) {
    return clamp(this.edges.findLastIndex((edge) => edge <= x), 0, this.edges.length - 2);
  }
}
