// What every view is made with: elements, words for numbers and times, and asking the service.
// Texts from the service become text nodes only, never markup.

const number = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

const SVG = "http://www.w3.org/2000/svg";

export const at = (id) => document.getElementById(id);
export const whole = (value) => number.format(value);
export const clock = (ms) => new Date(ms).toISOString().slice(11, 19);
export const day = (ms) => new Date(ms).toISOString().slice(0, 10);
export const percent = (share) => share === null ? "–" : `${(100 * share).toFixed(0)} %`;
export const way = (row) => [row.source, row.destination].filter(Boolean).join(" → ");
export const inPath = (name) => name.split("/").map(encodeURIComponent).join("/");

export function lookupPath(name) { // where a topic is looked up; null for what is no topic's name
  const found = /^(?:(persistent|non-persistent|topic|segment):\/\/)?([^/]+)\/([^/]+)\/(.+)$/
    .exec(name);
  if (!found) return null;
  const [, domain = "persistent", ...names] = found;
  return `/lookup/v2/topic/${[domain, ...names].map(encodeURIComponent).join("/")}`;
}

export function amount(value, unit) { // a value of load with its unit
  if (value === null || value === undefined) return "not reported";
  return unit === "%" ? `${value.toFixed(0)} %` : `${short.format(value)} ${unit}`;
}

const HIDDEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu; // marks of direction, line breaks, no width
const escaped = (one) => `\\u{${one.codePointAt(0).toString(16)}}`;
export const printable = (text) => `${text}`.replace(HIDDEN, escaped);

export function make(tag, text, ...classes) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = printable(text);
  element.classList.add(...classes.filter(Boolean));
  return element;
}

export function duration(ms) { // as lbcore.model.times words it
  if (ms < 0) return "never";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const units = [[86400000, "d"], [3600000, "h"], [60000, "min"], [1000, "s"]];
  const first = units.findIndex(([size]) => ms >= size);
  const words = [];
  for (const [size, name] of units.slice(first, first + 2)) {
    const count = Math.floor(ms / size);
    if (count) words.push(`${count} ${name}`);
    ms -= count * size;
  }
  return words.join(" ");
}

const ANSWER_MS = 60_000; // a read that hangs is given up, so that the next one is asked

export async function ask(path, { method = "GET", body } = {}) {
  const token = sessionStorage.getItem("token");
  const headers = token ? { authorization: `Bearer ${token}` } : {};
  if (body !== undefined) headers["content-type"] = "application/json";
  const reply = await fetch(path, {
    method, headers, cache: "no-store", credentials: "omit",
    signal: method === "GET" ? AbortSignal.timeout(ANSWER_MS) : undefined,
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const text = await reply.text();
  let value = null;
  try { value = JSON.parse(text); } catch { value = { reason: text.slice(0, 200) }; }
  if (value?.detail && reply.status >= 400) value.reason = value.detail; // a problem (RFC 9457)
  if (reply.status === 401) at("sign-in").hidden = false;
  return { status: reply.status, headers: reply.headers, value };
}

export function replace(parent, children) {
  const focused = document.activeElement && document.activeElement.dataset.key;
  parent.replaceChildren(...children);
  const again = focused && parent.querySelector(`[data-key="${CSS.escape(focused)}"]`);
  if (again) again.focus({ preventScroll: true });
}

export function wayCell(move) { // a name is never broken
  const td = make("td");
  const names = [move.source, move.destination].filter(Boolean);
  td.append(...names.flatMap((name, index) => [index ? " → " : "", make("span", name, "word")]));
  return td;
}

export function row(...cells) {
  const line = make("tr");
  for (const cell of cells) {
    const td = cell instanceof Node && cell.tagName === "TD" ? cell : make("td");
    if (td !== cell) td.append(cell);
    line.append(td);
  }
  return line;
}

export function tableHead(columns) { // columns: [[text, ...classes], ...]
  const line = make("tr");
  for (const [text, ...classes] of columns) {
    const th = make("th", text, ...classes);
    th.scope = "col";
    line.append(th);
  }
  const thead = make("thead");
  thead.append(line);
  return thead;
}

export function explainButton(kind, name) {
  const button = make("button", undefined, "name");
  for (const [index, part] of name.split("/").entries()) { // long names break at their slashes
    if (index) button.append("/", make("wbr"));
    button.append(make("span", part, "word"));
  }
  button.type = "button";
  button.dataset.key = `${kind} ${name}`;
  button.title = `explain ${kind} ${name}`;
  button.addEventListener("click", () => {
    dispatchEvent(new CustomEvent("explain", { detail: { kind, name } }));
  });
  return button;
}

export function bar(of100) { // the number stands beside it
  const track = make("div", undefined, "track");
  const fill = make("div", undefined, "fill", of100 > 100 && "over");
  fill.style.width = `${Math.min(100, of100)}%`;
  track.append(fill);
  track.setAttribute("aria-hidden", "true");
  return track;
}

const NAMED = /`([^`]+)`|\b[^\s/`;:,()]+\/[^\s/`;:,()]+\/0x[0-9a-f]{8}_0x[0-9a-f]{8}\b/gu;

// A sentence of the service: its commands as code, its bundles and the given brokers as buttons.
export function sentenceNodes(text, brokers = new Set()) {
  const nodes = [];
  const plain = (part) => {
    for (const word of part.split(/([^\s,;()]+)/)) {
      const name = word.replace(/:$/, "");
      if (brokers.has(name)) nodes.push(explainButton("broker", name), word.slice(name.length));
      else nodes.push(printable(word));
    }
  };
  let from = 0;
  for (const found of text.matchAll(NAMED)) {
    plain(text.slice(from, found.index));
    nodes.push(found[1] ? make("code", found[1]) : explainButton("bundle", found[0]));
    from = found.index + found[0].length;
  }
  plain(text.slice(from));
  return nodes;
}

export function shape(tag, attributes, text) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = printable(text);
  return element;
}

export function field(text, { value = "", placeholder = "" }, ...classes) { // a line to write in
  const box = make("label", `${text} `, ...classes);
  const input = make("input");
  input.value = value;
  input.placeholder = placeholder;
  input.spellcheck = false;
  box.append(input);
  return { box, input };
}

export function choice(label, options, chosen, onChange) { // options: [[value, text], ...]
  const box = make("label", `${label} `, "choice");
  const select = make("select");
  for (const [value, text] of options) {
    const option = make("option", text);
    option.value = value;
    select.append(option);
  }
  select.value = chosen;
  select.addEventListener("change", () => onChange(select.value));
  box.append(select);
  return box;
}
