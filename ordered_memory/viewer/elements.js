// Elements of the page. What a trace says is only ever set as text or as an attribute, never as markup.

/**
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Record<string, string | number>} [attributes]
 * @param {...(Node | string)} children
 * @returns {HTMLElementTagNameMap[K]}
 */
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "style") made.style.cssText = String(value); // a page's security policy may refuse the attribute
    else made.setAttribute(name, String(value));
  }
  made.append(...children);
  return made;
}

/**
 * The same for SVG.
 * @template {keyof SVGElementTagNameMap} K
 * @param {K} tag
 * @param {Record<string, string | number>} [attributes]
 * @param {...Node} children
 * @returns {SVGElementTagNameMap[K]}
 */
function shape(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  made.append(...children);
  return made;
}

/**
 * A drop-down list with a label.
 * @param {string} label
 * @param {[value: string, text: string][]} options
 * @param {(value: string) => void} onchoice
 * @param {string} [chosen]
 */
function choice(label, options, onchoice, chosen) {
  const entries = options.map(([value, text]) => element("option", { value }, text));
  const select = element("select", {}, ...entries);
  if (chosen !== undefined) select.value = chosen;
  select.addEventListener("change", () => onchoice(select.value));
  return element("label", { class: "om-choice" }, element("span", {}, label), select);
}

/**
 * Words of the sequence, quoted in a sentence. If they run from right to left, the sentence does not.
 * @param {string} text
 */
function quote(text) {
  return element("bdi", { class: "om-words" }, text);
}

/**
 * @param {number} value
 * @param {number} least
 * @param {number} most
 */
function clamp(value, least, most) {
  return Math.min(most, Math.max(least, value));
}

/**
 * A number with two decimal places.
 * @param {number} value
 */
function fraction(value) {
  const text = value.toFixed(2);
  return text === "-0.00" ? "0.00" : text;
}

/**
 * A probability as a percentage. What would only be rounded to "0.0 %" or "100.0 %" is "< 0.1 %" or
 * "> 99.9 %".
 * @param {number} value
 */
function percent(value) {
  if (value > 0 && value < 0.0005) return "< 0.1 %";
  if (value < 1 && value >= 0.9995) return "> 99.9 %";
  return `${(100 * value).toFixed(1)} %`;
}

/**
 * @param {number} count
 * @param {string} noun
 */
function counted(count, noun) {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}
