// Basic components of the pages.
import { html, useEffect, useRef, useState } from "./html.js";
import { Link } from "./router.js";
import { t } from "./texts.js";

export const Badge = ({ kind = "neutral", children, title }) =>
  html`<span class=${`badge ${kind}`} title=${title}>${children}</span>`;

export function Button({ kind = "", children, ...rest }) {
  return html`<button type="button" class=${`button ${kind}`} ...${rest}>${children}</button>`;
}

export const Note = ({ kind = "info", children }) =>
  html`<div class=${`note ${kind}`} role=${kind === "bad" ? "alert" : "status"}>${children}</div>`;

// The placeholder of an empty page, with a hint.
export const Empty = ({ title, children }) =>
  html`<div class="empty"><h2>${title}</h2><div>${children}</div></div>`;

export function Problem({ error }) {
  if (!error) return null;
  return html`<${Note} kind="bad">${error.message}</${Note}>`;
}

export const Figure = ({ label, value, unit, kind = "", title }) =>
  html`<div class=${`figure ${kind}`} title=${title}>
    <div class="figure-value">${value}${unit ? html`<small> ${unit}</small>` : null}</div>
    <div class="figure-label">${label}</div>
  </div>`;

export function Page({ title, crumbs, actions, children, id }) {
  useEffect(() => {
    document.title = `${title} · ottla`;
  }, [title]);
  return html`<div class="page" id=${id}>
    <header class="page-head">
      <div class="page-title">
        ${crumbs ? html`<nav class="crumbs" aria-label=${t("Breadcrumb")}>${crumbs}</nav>` : null}
        <h1><bdi>${title}</bdi></h1>
      </div>
      <div class="page-actions">${actions}</div>
    </header>
    ${children}
  </div>`;
}

export function Tabs({ items, current }) {
  return html`<nav class="tabs" aria-label=${t("Views")}>
    ${items.map(
      ({ key, text, to }) => html`<${Link} key=${key} to=${to} class=${key === current ? "tab current" : "tab"}
        aria-current=${key === current ? "page" : null}>${text}</${Link}>`,
    )}
  </nav>`;
}

export function Search({ value, onInput, label }) {
  const field = useRef(null);
  useEffect(() => {
    const onKey = (event) => {
      const isTyping = /^(input|textarea|select)$/i.test(event.target.tagName) || document.querySelector("dialog[open]");
      if (event.key === "/" && !isTyping) {
        event.preventDefault();
        field.current?.focus();
      }
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
  return html`<label class="search">
    <span class="hidden-text">${label}</span>
    <input ref=${field} type="search" value=${value} placeholder=${`${label}  /`} spellcheck="false" autocomplete="off"
      onInput=${(event) => onInput(event.target.value)} />
  </label>`;
}

export function Field({ label, hint, children, error }) {
  return html`<label class="field">
    <span class="field-label">${label}</span>
    ${children}
    ${hint ? html`<span class="field-hint">${hint}</span>` : null}
    ${error ? html`<span class="field-error">${error}</span>` : null}
  </label>`;
}

export const Check = ({ label, checked, onChange, ...rest }) =>
  html`<label class="check"><input type="checkbox" checked=${checked}
    onChange=${(event) => onChange(event.target.checked)} ...${rest} /> <span>${label}</span></label>`;

// A form or a confirmation. If onSubmit throws, the dialog shows the error and stays open.
export function Dialog({ title, submit, kind = "primary", isReady = true, onSubmit, onClose, children, isWide = false }) {
  const box = useRef(null);
  const [error, setError] = useState(null);
  const [isBusy, setBusy] = useState(false);
  useEffect(() => {
    const opener = document.activeElement;
    const element = box.current;
    element.showModal();
    return () => {
      element.close(); // an open modal dialog prevents focus outside
      opener?.focus?.();
    };
  }, []);
  const send = async (event) => {
    event.preventDefault();
    if (!isReady || isBusy) return;
    setBusy(true);
    setError(null);
    try {
      await onSubmit();
    } catch (problem) {
      setError(problem);
      setBusy(false);
      return;
    }
    setBusy(false);
  };
  const close = (event) => {
    event?.preventDefault();
    onClose();
  };
  return html`<dialog ref=${box} class=${isWide ? "wide" : ""} onCancel=${close} aria-labelledby="dialog-title">
    <form onSubmit=${send}>
      <h2 id="dialog-title">${title}</h2>
      <div class="dialog-body">${children}<${Problem} error=${error} /></div>
      <footer>
        <${Button} onClick=${close}>${t("Cancel")}</${Button}>
        ${submit
          ? html`<button type="submit" class=${`button ${kind}`} disabled=${!isReady || isBusy}>${submit}</button>`
          : null}
      </footer>
    </form>
  </dialog>`;
}

// Confirms irreversible actions by typing the name.
export function TypeTheName({ title, submit, name, onSubmit, onClose, children }) {
  const [typed, setTyped] = useState("");
  return html`<${Dialog} title=${title} submit=${submit} kind="danger" isReady=${typed === name} onSubmit=${onSubmit}
    onClose=${onClose}>
    ${children}
    <${Field} label=${t("Type {0} to confirm", name)}>
      <input value=${typed} onInput=${(event) => setTyped(event.target.value)} autocomplete="off" spellcheck="false" />
    </${Field}>
  </${Dialog}>`;
}

// A short message after an action; disappears by itself.
let showToast = () => {};
export const toast = (text, kind = "good") => showToast({ text, kind });

export function Toasts() {
  const [items, setItems] = useState([]);
  showToast = (item) => {
    const key = Math.random();
    setItems((before) => [...before.slice(-3), { ...item, key }]);
    setTimeout(() => setItems((before) => before.filter((each) => each.key !== key)), 6000);
  };
  return html`<div class="toasts" role="status" aria-live="polite">
    ${items.map((item) => html`<div key=${item.key} class=${`toast ${item.kind}`}>${item.text}</div>`)}
  </div>`;
}
