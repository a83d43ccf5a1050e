// The distances of ON-LSTM: a bar with its number under each token, a row for each layer.

const BAND_HEIGHT = 74;
const NUMBER_HEIGHT = 14;

/**
 * A number that fits over a bar: with two decimal places, or with fewer if it is large.
 * @param {number} value
 */
function short(value) {
  const size = Math.abs(value);
  if (size < 9.995) return fraction(value);
  return size < 9999.5 ? value.toFixed(size < 99.95 ? 1 : 0) : value.toExponential(0);
}

class DistancesView {
  /**
   * @param {Layer} layer
   * @param {Columns} columns
   * @param {boolean} chosen whether the tree is this layer's
   */
  constructor(layer, columns, chosen) {
    this.layer = layer;
    this.chosen = chosen;
    const { distances } = layer;
    const least = Math.min(0, ...distances);
    const half = Math.max(...distances) / 2 - least / 2 || 1; // the difference itself may be infinite
    this.bars = distances.map((distance, token) => {
      const share = (distance / 2 - least / 2) / half;
      const height = Math.max(1, (BAND_HEIGHT - NUMBER_HEIGHT - 6) * share);
      const width = Math.min(36, columns.width(token) - 8);
      const [x, y] = [columns.middle(token) - width / 2, BAND_HEIGHT - height];
      return shape("rect", { class: "om-distance", x, y, width, height, rx: 2 });
    });
    const numbers = distances.map((distance, token) => {
      const y = Number(this.bars[token].getAttribute("y")) - 4;
      return shape("text", { class: "om-number", x: columns.middle(token), y }, new Text(short(distance)));
    });
    const ground = shape("path", { class: "om-ground", d: `M${GUTTER} ${BAND_HEIGHT - 0.5}H${columns.right}` });
    this.element = shape("svg", {
      class: chosen ? "om-distances om-chosen" : "om-distances",
      width: columns.right,
      height: BAND_HEIGHT,
      role: "img",
      "aria-label": `Distances of ${layer.name}`,
    }, ...this.bars, ...numbers, ground);
  }

  /**
   * @param {Timeline} timeline
   * @param {number} frame
   */
  show(timeline, frame) {
    if (!this.chosen) return;
    const used = new Set(Array.from({ length: frame }, (_, earlier) => timeline.token(earlier)));
    this.bars.forEach((bar, token) => {
      bar.dataset.state = token === timeline.token(frame) ? "new" : used.has(token) ? "built" : "open";
    });
  }
}
