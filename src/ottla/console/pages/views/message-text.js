// Untrusted bytes as harmless text: control and bidirectional characters are escaped.
import { html, useState } from "../core/html.js";
import { t } from "../core/texts.js";
import { Button } from "../core/widgets.js";

const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]/g;
const LINES = 512; // of hex, shown at first
const CHARACTERS = 100_000; // of text
const CHILDREN = 100; // of a branch of the tree
const BRANCH = { array: ["[", "]"], object: ["{", "}"] };

export const visible = (text) => text.replace(HIDDEN, (sign) => `\\u{${sign.codePointAt(0).toString(16)}}`);

// One line for a table.
export function preview(part, length = 200) {
  if (part.format === "null") return html`<i class="muted">null</i>`;
  if (part.bytes === 0) return html`<i class="muted">${t("empty")}</i>`;
  if (part.text === undefined && part.hex !== undefined) return html`<span class="muted">0x${part.hex.slice(0, length)}</span>`;
  return html`<bdi>${visible((part.text ?? "").slice(0, length))}</bdi>`;
}

export function bytesOf(part) {
  if (part.hex !== undefined) return Uint8Array.from(part.hex.match(/../g) ?? [], (pair) => parseInt(pair, 16));
  return new TextEncoder().encode(part.text ?? "");
}

function More({ left, onMore }) {
  return left > 0 ? html`<${Button} kind="quiet small" onClick=${onMore}>${t("{0} more", left)}</${Button}>` : null;
}

export function AsText({ text }) {
  const [shown, setShown] = useState(CHARACTERS);
  return html`<pre class="content" tabindex="0"><bdi>${visible(text.slice(0, shown))}</bdi></pre>
    <${More} left=${text.length - shown} onMore=${() => setShown(shown + 10 * CHARACTERS)} />`;
}

export function AsHex({ bytes }) {
  const [shown, setShown] = useState(LINES);
  const lines = [];
  for (let start = 0; start < bytes.length && lines.length < shown; start += 16) {
    const row = [...bytes.slice(start, start + 16)];
    const pairs = row.map((each) => each.toString(16).padStart(2, "0")).join(" ").padEnd(47);
    const signs = row.map((each) => (each > 31 && each < 127 ? String.fromCharCode(each) : ".")).join("");
    lines.push(`${start.toString(16).padStart(8, "0")}  ${pairs}  ${signs}`);
  }
  return html`<pre class="content hex" tabindex="0">${lines.join("\n")}</pre>
    <${More} left=${Math.ceil(bytes.length / 16) - shown} onMore=${() => setShown(shown * 8)} />`;
}

// Branches are made when they are opened: a document may be as deep and as wide as it likes.
export function Tree({ name, value, isOpen = true }) {
  const [open, setOpen] = useState(isOpen);
  const [shown, setShown] = useState(CHILDREN);
  const label = name === undefined ? null : html`<span class="tree-name"><bdi>${visible(String(name))}</bdi>: </span>`;
  if (value === null || typeof value !== "object") return html`<div class="tree-leaf">${label}<${Leaf} value=${value} /></div>`;
  const [begin, end] = BRANCH[Array.isArray(value) ? "array" : "object"];
  const names = Object.keys(value);
  if (!names.length) return html`<div class="tree-leaf">${label}${begin}${end}</div>`;
  return html`<details class="tree" open=${open} onToggle=${(event) => event.target === event.currentTarget && setOpen(event.target.open)}>
    <summary>${label}<span class="muted">${begin}${names.length}${end}</span></summary>
    ${open
      ? html`<div class="tree-inside">${names.slice(0, shown).map(
          (each) => html`<${Tree} key=${each} name=${each} value=${value[each]} isOpen=${names.length <= 20 && typeof value[each] === "object" && isOpen && name === undefined} />`,
        )}<${More} left=${names.length - shown} onMore=${() => setShown(shown * 4)} /></div>`
      : null}
  </details>`;
}

function Leaf({ value }) {
  const [shown, setShown] = useState(2000);
  if (typeof value !== "string") return html`<span class="tree-word">${String(value)}</span>`;
  return html`<span class="tree-text"><bdi>"${visible(value.slice(0, shown))}"</bdi></span>
    <${More} left=${value.length - shown} onMore=${() => setShown(value.length)} />`;
}
