// The page of `python -m tasks.explore`. What is read is in the fragment of the address, which never leaves the
// browser: the page shows the same again when it is loaded again, elsewhere or later.

/**
 * @typedef {{name: string, task: string, num_slots: number | null}} Model
 * @typedef {{boxes: string[], hint: string, start: string[], sized: boolean}} Language
 * @typedef {{models: Model[], languages: Record<string, Language>, most_bytes: number}} Options
 */

(() => {
  "use strict";

  const TOO_LONG = "this text is too long to be read";

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
  const results = get("results", HTMLDivElement);

  /** What was typed for each task. @type {Record<string, string[]>} */
  const typed = {};
  let asking = new AbortController();

  /** @param {string} name */
  const named = (name) => options.models.find((one) => one.name === name);
  const chosen = () => named(model.value) ?? options.models[0];
  const texts = () => [...boxes.querySelectorAll("textarea")].map((box) => box.value);

  /**
   * What a control says, if it is there for this model.
   * @param {HTMLInputElement} input
   */
  const number = (input) => (input.closest("label")?.hidden || input.value === "" ? null : input.valueAsNumber);

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
   * The boxes of the chosen model's language, and only the controls that it needs.
   * @param {string} compared name of the other model
   */
  function arrange(compared) {
    const { task, num_slots } = chosen();
    const { boxes: labels, hint, start, sized } = options.languages[task];
    const alike = options.models.filter((one) => one.task === task && one.name !== model.value);
    fill(other, [["", "nothing"], ...alike.map(({ name }) => [name, name])], compared);
    if (other.selectedIndex < 0) other.value = "";
    if (boxes.dataset.task !== task) {
      if (boxes.dataset.task) typed[boxes.dataset.task] = texts();
      boxes.dataset.task = task;
      boxes.replaceChildren(...labels.map((label, place) => textBox(label, (typed[task] ?? start)[place])));
    }
    const withSlots = [chosen(), named(other.value)].some((one) => one && one.num_slots !== null);
    get("slots-control", HTMLLabelElement).hidden = !withSlots;
    slots.placeholder = String(num_slots ?? "");
    get("length-control", HTMLLabelElement).hidden = !sized;
    get("other-control", HTMLLabelElement).hidden = alike.length === 0;
    get("hint", HTMLParagraphElement).textContent = hint;
  }

  /**
   * @param {string} label
   * @param {string} text
   */
  function textBox(label, text) {
    const box = document.createElement("textarea");
    box.rows = 1;
    box.value = text;
    box.spellcheck = false;
    box.setAttribute("aria-describedby", "error hint");
    box.addEventListener("beforeinput", (event) => {
      // A browser takes minutes to lay out what the server would refuse: it does not get into the box.
      if (box.value.length + (event.data ?? "").length <= options.most_bytes) return;
      event.preventDefault();
      fail(TOO_LONG);
    });
    onEnter(box, () => form.requestSubmit());
    const labelled = document.createElement("label");
    labelled.append(label, box);
    return labelled;
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
    const asked = number(slots);
    if (asked !== null) state.append("slots", String(asked));
    for (const text of texts()) state.append("text", text);
    if (`#${state}` !== location.hash) history.pushState(null, "", `#${state}`);
    read();
  }

  /** Set the controls to what the address says. */
  function restore() {
    const state = new URLSearchParams(location.hash.slice(1));
    const name = state.get("model") ?? options.models[0].name;
    model.value = (named(name) ?? options.models[0]).name;
    arrange(state.get("with") ?? "");
    if (!named(name)) {
      results.replaceChildren();
      fail(`this page has no model ${name}: it was started with other checkpoints`);
      return;
    }
    slots.value = state.get("slots") ?? "";
    const given = state.getAll("text");
    const { start } = options.languages[chosen().task];
    boxes.querySelectorAll("textarea").forEach((box, place) => (box.value = given[place] ?? start[place]));
    read();
  }

  /** @param {string} message */
  function fail(message) {
    error.textContent = message;
    for (const box of boxes.querySelectorAll("textarea")) box.setAttribute("aria-invalid", String(message !== ""));
  }

  /**
   * @param {string} path
   * @param {object} question
   * @returns {Promise<any>}
   */
  async function ask(path, question) {
    const body = JSON.stringify(question);
    if (new Blob([body]).size > options.most_bytes) throw new Error(TOO_LONG);
    const response = await fetch(path, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body,
      signal: asking.signal,
    }).catch((reason) => {
      throw reason.name === "AbortError" ? reason : new Error("the server does not answer: is it still running?");
    });
    const isJson = response.headers.get("Content-Type") === "application/json";
    const answer = isJson ? await response.json() : { error: await response.text() };
    if (answer.error) throw new Error(answer.error);
    return answer;
  }

  /**
   * Whatever was asked before is no longer waited for; an error is shown.
   * @param {() => Promise<void>} work
   * @param {() => void} [onError]
   */
  async function attempt(work, onError) {
    asking.abort();
    const own = (asking = new AbortController());
    busy.textContent = "reading …";
    results.setAttribute("aria-busy", "true");
    try {
      await work();
      fail("");
    } catch (reason) {
      if (own.signal.aborted) return;
      onError?.();
      fail(reason instanceof Error ? reason.message : String(reason));
    }
    if (own !== asking) return;
    busy.textContent = "";
    results.removeAttribute("aria-busy");
  }

  function read() {
    return attempt(async () => {
      const names = [model.value, ...(other.value ? [other.value] : [])];
      const question = { texts: texts(), num_slots: number(slots) };
      const answers = await Promise.all(names.map((name) => ask("read", { model: name, ...question })));
      results.replaceChildren(...names.map((name, place) => section(name, answers[place])));
    }, () => results.replaceChildren());
  }

  /**
   * @param {string} name
   * @param {{traces: Trace[], note: string}} answer
   */
  function section(name, { traces, note }) {
    const made = document.createElement("section");
    const heading = document.createElement("h2");
    heading.textContent = name;
    const about = document.createElement("p");
    about.textContent = note;
    about.className = "note";
    about.hidden = note === "";
    const place = document.createElement("div");
    made.append(heading, about, place);
    new OrderedMemoryViewer.TraceViewer(place, traces);
    return made;
  }

  /**
   * Have the server type something.
   * @param {string} path
   * @param {object} question
   */
  function retype(path, question) {
    return attempt(async () => {
      const found = await ask(path, { model: model.value, ...question });
      boxes.querySelectorAll("textarea").forEach((box, place) => (box.value = found.texts[place]));
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
  const drawOne = () => retype("draw", { length: number(length) });
  get("draw", HTMLButtonElement).addEventListener("click", drawOne);
  onEnter(length, drawOne);
  get("lengthen", HTMLButtonElement).addEventListener("click", () => retype("lengthen", { texts: texts() }));
  addEventListener("hashchange", restore); // also when one goes back

  fill(model, options.models.map(({ name }) => [name, name]), options.models[0].name);
  restore();
})();
