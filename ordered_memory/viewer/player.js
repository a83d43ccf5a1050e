// Controls that step through frames: buttons, a slider, play and its speed.

const PAUSE = "M4 3h3v10H4zM9 3h3v10H9z";
const PLAY = "M4 2.5l9 5.5-9 5.5z";
const SECONDS = 0.9; // a frame, at speed 1
/** @type {[value: string, text: string][]} */
const SPEEDS = [["0.5", "½ ×"], ["1", "1 ×"], ["2", "2 ×"], ["5", "5 ×"], ["20", "20 ×"]];

let lastSpeed = "1"; // kept from one example to the next

class Player {
  /**
   * @param {number} length how many frames there are
   * @param {(frame: number) => void} onshow
   */
  constructor(length, onshow) {
    this.length = length;
    this.onshow = onshow;
    this.frame = length - 1;
    this.speed = Number(lastSpeed);
    this.timer = 0;
    const speeds = choice("Speed", SPEEDS, (speed) => (this.speed = Number((lastSpeed = speed))), lastSpeed);
    this.slider = element("input", { type: "range", min: 0, max: length - 1, "aria-label": "Step" });
    this.slider.addEventListener("input", () => this.go(Number(this.slider.value)));
    this.playing = button("Play", PLAY, () => this.toggle());
    this.count = element("span", { class: "om-count" }); // no <output>: that would be read aloud at every step
    this.element = element("div", { class: "om-player", role: "group", "aria-label": "Steps" },
      button("To the start", "M3 3h2v10H3zM13 3v10L6 8z", () => this.go(0)),
      button("Back", "M11 3v10L4 8z", () => this.go(this.frame - 1)),
      this.playing,
      button("Forward", "M5 3v10l7-5z", () => this.go(this.frame + 1)),
      button("To the end", "M11 3h2v10h-2zM3 3v10l7-5z", () => this.go(length - 1)),
      this.slider, this.count, speeds);
  }

  /** @param {number} frame */
  go(frame) {
    this.pause();
    this.show(frame);
  }

  /** @param {number} frame */
  show(frame) {
    this.frame = clamp(frame, 0, this.length - 1);
    this.slider.value = String(this.frame);
    this.count.textContent = `${this.frame + 1} / ${this.length}`;
    this.slider.setAttribute("aria-valuetext", `step ${this.frame + 1} of ${this.length}`);
    this.onshow(this.frame);
  }

  toggle() {
    if (this.timer) return this.pause();
    this.draw("Pause", PAUSE);
    this.next(this.frame === this.length - 1 ? 0 : this.frame + 1);
  }

  /** @param {number} frame to show, and then the next one */
  next(frame) {
    if (frame >= this.length || !this.element.isConnected) return this.pause();
    this.timer = setTimeout(() => this.next(this.frame + 1), (1000 * SECONDS) / this.speed);
    this.show(frame);
  }

  pause() {
    clearTimeout(this.timer);
    this.timer = 0;
    this.draw("Play", PLAY);
  }

  /**
   * @param {string} name
   * @param {string} path
   */
  draw(name, path) {
    this.playing.title = name;
    this.playing.setAttribute("aria-label", name);
    this.playing.querySelector("path")?.setAttribute("d", path);
  }
}

/**
 * @param {string} name
 * @param {string} path of its picture, 16 by 16
 * @param {() => void} onclick
 */
function button(name, path, onclick) {
  const picture = shape("svg", { width: 16, height: 16, "aria-hidden": "true" }, shape("path", { d: path }));
  const made = element("button", { type: "button", title: name, "aria-label": name }, picture);
  made.addEventListener("click", onclick);
  return made;
}
