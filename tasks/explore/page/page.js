// The page of `python -m tasks.explore`. What is read is in the fragment of the address, which never leaves the
// browser: the page shows the same again when it is loaded again, elsewhere or later.

/**
 * @typedef {{name: string, task: string, num_slots: number | null}} Model
 * @typedef {{boxes: string[], hint: string, start: string[], sized: boolean}} Language
 * @typedef {{models: Model[], languages: Record<string, Language>, most_bytes: number}} Options
 */

(() => {
  "use strict";

  const { TraceViewer, element } = OrderedMemoryViewer;
  const TOO_LONG = "this text is too long to be read";
  const LONGEST_LISTED = 26;

  /**
   * @template {HTMLElement} T
   * @param {string} id
   * @param {new () => T} kind
   * @returns {T}
   */
  function get(id, kind) {
    const found = document.getElementById(id);
    if (!(found instanceof kind)) throw new Error(`no ${id}`);
    return found;
  }

  /** @type {Options} */
  const options = JSON.parse(get("options", HTMLScriptElement).text);
  const form = get("form", HTMLFormElement);
  const model = get("model", HTMLSelectElement);
  const other = get("other", HTMLSelectElement);
  const slots = get("slots", HTMLInputElement);
  const length = get("length", HTMLInputElement);
  const boxes = get("boxes", HTMLDivElement);
  const error = get("error", HTMLParagraphElement);
  const busy = get("busy", HTMLSpanElement);
  const verdicts = get("verdicts", HTMLParagraphElement);
  const about = get("about", HTMLParagraphElement);
  const results = get("results", HTMLDivElement);

  /** An error, and the controls that it is about. */
  class Refusal extends Error {
    /**
     * @param {string} message
     * @param {Element[]} controls
     */
    constructor(message, controls) {
      super(message);
      this.controls = controls;
    }
  }

  /** What was typed for each task. @type {Record<string, string[]>} */
  const typed = {};
  let asking = new AbortController();

  /** @param {string} name */
  const named = (name) => options.models.find((one) => one.name === name);
  const chosen = () => named(model.value) ?? options.models[0];
  const textBoxes = () => [...boxes.querySelectorAll("textarea")];
  const texts = () => textBoxes().map((box) => box.value);

  /**
   * The number in a control, if it is there for this model.
   * @param {HTMLInputElement} input
   * @param {string} name
   */
  function number(input, name) {
    if (input.closest("label")?.hidden) return null;
    const { valid, badInput, stepMismatch } = input.validity;
    const rule = badInput || stepMismatch ? "be a whole number" : `lie in ${input.min}..${input.max}`;
    if (!valid) throw new Refusal(`${name} must ${rule}${input.value && `, got ${input.value}`}`, [input]);
    return input.value === "" ? null : input.valueAsNumber;
  }

  /**
   * @param {HTMLSelectElement} select
   * @param {string[][]} choices value and text of each
   * @param {string} value
   */
  function fill(select, choices, value) {
    select.replaceChildren(...choices.map(([own, text]) => new Option(text, own)));
    select.value = value;
  }

  /**
   * A name as it is listed. A closed list cuts what does not fit into it: of a long path, the end tells most.
   * @param {string} name
   */
  function listed(name) {
    /** @param {string} full */
    const cut = (full) => {
      const short = full.length > LONGEST_LISTED ? full.replace(/\/best\.safetensors$/, "") : full;
      return short.length > LONGEST_LISTED ? `…${short.slice(1 - LONGEST_LISTED)}` : short;
    };
    return options.models.some((one) => one.name !== name && cut(one.name) === cut(name)) ? name : cut(name);
  }

  /**
   * The boxes of the chosen model's language, and only the controls that it needs.
   * @param {string} compared name of the other model
   */
  function arrange(compared) {
    const { task } = chosen();
    const { boxes: labels, hint, start, sized } = options.languages[task];
    const alike = options.models.filter((one) => one.task === task && one.name !== model.value);
    fill(other, [["", "nothing"], ...alike.map(({ name }) => [name, listed(name)])], compared);
    if (other.selectedIndex < 0) other.value = "";
    if (boxes.dataset.task !== task) {
      if (boxes.dataset.task) typed[boxes.dataset.task] = texts();
      boxes.dataset.task = task;
      boxes.replaceChildren(...labels.map((label, place) => textBox(label, (typed[task] ?? start)[place])));
    }
    const counts = [chosen(), named(other.value)].map((one) => one?.num_slots ?? null).filter((count) => count !== null);
    get("slots-control", HTMLLabelElement).hidden = counts.length === 0;
    slots.placeholder = [...new Set(counts)].join(", ");
    get("length-control", HTMLLabelElement).hidden = !sized;
    get("other-control", HTMLLabelElement).hidden = alike.length === 0;
    get("hint", HTMLParagraphElement).textContent = hint;
  }

  /**
   * @param {string} label
   * @param {string} text
   */
  function textBox(label, text) {
    const box = element("textarea", { rows: 1, spellcheck: "false", "aria-describedby": "error hint" });
    box.value = text;
    box.addEventListener("beforeinput", (event) => {
      // A browser takes minutes to lay out what the server would refuse: it does not get into the box.
      const kept = box.value.length - (box.selectionEnd - box.selectionStart);
      if (event.inputType.startsWith("delete") || kept + (event.data ?? "").length <= options.most_bytes) return;
      event.preventDefault();
      fail(TOO_LONG, [box]);
    });
    onEnter(box, () => form.requestSubmit());
    return element("label", {}, label, box);
  }

  /**
   * @param {HTMLElement} control
   * @param {() => void} act
   */
  function onEnter(control, act) {
    control.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.isComposing) return;
      event.preventDefault();
      act();
    });
  }

  /** Read what is typed, and put it into the address. */
  function go() {
    const state = new URLSearchParams({ model: model.value });
    if (other.value) state.append("with", other.value);
    if (slots.value && !slots.closest("label")?.hidden) state.append("slots", slots.value);
    for (const text of texts()) state.append("text", text);
    if (`#${state}` !== location.hash) history.pushState(null, "", `#${state}`);
    read();
  }

  /** Set the controls to what the address says. */
  function restore() {
    const state = new URLSearchParams(location.hash.slice(1));
    const name = state.get("model") ?? options.models[0].name;
    model.value = (named(name) ?? options.models[0]).name;
    const compared = state.get("with") ?? "";
    arrange(compared);
    const missing = named(name) ? other.value !== compared && compared : name;
    if (missing) {
      attempt(async () => {
        throw new Refusal(`this page has no model ${missing}: it was started with other checkpoints`, []);
      }, clear);
      return;
    }
    slots.value = state.get("slots") ?? "";
    const given = state.getAll("text");
    const { start } = options.languages[chosen().task];
    textBoxes().forEach((box, place) => (box.value = given[place] ?? start[place]));
    read();
  }

  /**
   * @param {string} message
   * @param {Element[]} [controls] that it is about
   */
  function fail(message, controls = []) {
    error.textContent = message;
    for (const control of [...textBoxes(), slots, length]) {
      control.setAttribute("aria-invalid", String(controls.includes(control)));
    }
  }

  /**
   * @param {string} path
   * @param {object} question
   * @param {AbortSignal} signal
   * @returns {Promise<any>}
   */
  async function ask(path, question, signal) {
    const body = JSON.stringify(question);
    if (new Blob([body]).size > options.most_bytes) throw new Error(TOO_LONG);
    const response = await fetch(path, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body,
      signal,
    }).catch((reason) => {
      throw reason.name === "AbortError" ? reason : new Error("the server does not answer: is it still running?");
    });
    const isJson = response.headers.get("Content-Type") === "application/json";
    const answer = isJson ? await response.json() : { error: await response.text() };
    if (answer.error) throw new Refusal(answer.error, response.ok ? textBoxes() : []);
    return answer;
  }

  /**
   * Whatever was asked before is no longer waited for; an error is shown.
   * @param {(signal: AbortSignal) => Promise<void>} work
   * @param {() => void} [onError]
   */
  async function attempt(work, onError) {
    asking.abort();
    const own = (asking = new AbortController());
    busy.textContent = "reading …";
    results.setAttribute("aria-busy", "true");
    try {
      await work(own.signal);
      if (own !== asking) return;
      fail("");
    } catch (reason) {
      if (own.signal.aborted) return;
      onError?.();
      fail(reason instanceof Error ? reason.message : String(reason), reason instanceof Refusal ? reason.controls : []);
    }
    if (own !== asking) return;
    busy.textContent = "";
    results.removeAttribute("aria-busy");
  }

  function read() {
    return attempt(async (signal) => {
      const names = [model.value, ...(other.value ? [other.value] : [])];
      const question = { texts: texts(), num_slots: number(slots, "the number of slots") };
      const asked = names.map((name) => ask("read", { model: name, ...question }, signal));
      const answers = await Promise.allSettled(asked);
      const refusals = answers.flatMap((answer) => (answer.status === "rejected" ? [answer.reason] : []));
      const messages = new Set(refusals.map((reason) => reason.message));
      if (signal.aborted || (refusals.length === names.length && messages.size === 1)) throw refusals[0];
      const explained = answers.map((answer) => (answer.status === "fulfilled" ? answer.value.about : ""));
      about.textContent = explained.find((text) => text) ?? ""; // a model without slots has no explanation
      results.replaceChildren(...names.map((name, place) => section(name, answers[place])));
      verdicts.textContent = names.map((name, place) => `${name}: ${verdict(answers[place])}`).join("; ");
    }, clear);
  }

  function clear() {
    results.replaceChildren();
    about.textContent = "";
    verdicts.textContent = "";
  }

  /**
   * In words, for those who do not see the page.
   * @param {PromiseSettledResult<{traces: Trace[]}>} answered
   */
  function verdict(answered) {
    if (answered.status === "rejected") return answered.reason.message;
    const answer = answered.value.traces[0]?.answer;
    if (!answer) return "the tree has been drawn";
    return `answer ${answer.classes[answer.probabilities.indexOf(Math.max(...answer.probabilities))]}`;
  }

  /**
   * @param {string} name
   * @param {PromiseSettledResult<{traces: Trace[], note: string}>} answered
   */
  function section(name, answered) {
    const made = element("section", {}, element("h2", {}, name));
    if (answered.status === "rejected") {
      made.append(element("p", { class: "refusal" }, answered.reason.message));
      return made;
    }
    const { traces, note } = answered.value;
    const place = element("div");
    made.append(...(note ? [element("p", { class: "note" }, note)] : []), place);
    new TraceViewer(place, traces);
    return made;
  }

  /**
   * Have the server type something.
   * @param {string} path
   * @param {() => object} question
   */
  function retype(path, question) {
    return attempt(async (signal) => {
      const found = await ask(path, { model: model.value, ...question() }, signal);
      textBoxes().forEach((box, place) => (box.value = found.texts[place]));
      go();
    });
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    go();
  });
  for (const select of [model, other]) {
    select.addEventListener("change", () => {
      arrange(other.value);
      go();
    });
  }
  const drawOne = () => retype("draw", () => ({ length: number(length, "the length") }));
  get("draw", HTMLButtonElement).addEventListener("click", drawOne);
  onEnter(length, drawOne);
  get("lengthen", HTMLButtonElement).addEventListener("click", () => retype("lengthen", () => ({ texts: texts() })));
  addEventListener("hashchange", restore); // also when one goes back

  fill(model, options.models.map(({ name }) => [name, listed(name)]), options.models[0].name);
  restore();
})();
