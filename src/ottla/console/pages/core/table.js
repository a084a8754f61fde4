// A virtual table: only visible rows are in the document.
//
// columns: [{ key, title, cell: (row) => ..., sort: (row) => value, isNumber, width, isOptional }]
// `rowKey` identifies rows; `onOpen(row)` handles Enter and clicks; `selected` (a Set) and `onSelect` add check boxes.
// Keys: Up, Down, Page Up, Page Down, Home, End move; Enter opens; Space selects. The address has the sort order.
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./html.js";
import { count } from "./format.js";
import { useQuery } from "./router.js";
import { t } from "./texts.js";

const ROW = 34;
const SPARE = 12;

const collator = new Intl.Collator(undefined, { numeric: true }); // many times faster than localeCompare

function compare(a, b) {
  if (a == null || b == null) return (a == null) - (b == null);
  return typeof a === "string" ? collator.compare(a, b) : a - b;
}

function useColumns(id, columns) {
  const key = `ottla.columns.${id}`;
  const [hidden, setHidden] = useState(() => new Set(JSON.parse(localStorage.getItem(key) ?? "null") ??
    columns.filter((column) => column.isOptional).map((column) => column.key)));
  const toggle = (name) => {
    const next = new Set(hidden);
    if (!next.delete(name)) next.add(name);
    localStorage.setItem(key, JSON.stringify([...next]));
    setHidden(next);
  };
  return [columns.filter((column) => !hidden.has(column.key)), hidden, toggle];
}

function useSorted(rows, columns, standard) {
  const [order, setOrder] = useQuery("sort", standard);
  const isDown = order.startsWith("-");
  const key = order.replace(/^-/, "");
  const column = columns.find((each) => each.key === key);
  const sorted = useMemo(() => {
    if (!column?.sort) return rows;
    const valued = rows.map((row) => [column.sort(row), row]);
    valued.sort(([a], [b]) => (isDown && a != null && b != null ? -compare(a, b) : compare(a, b)));
    return valued.map(([, row]) => row);
  }, [rows, order]);
  const sortBy = (each) => setOrder(each.key === key ? (isDown ? key : `-${key}`) : each.isNumber ? `-${each.key}` : each.key);
  return { sorted, key, isDown, sortBy };
}

export function Table({ id, columns, rows, rowKey, onOpen, selected, onSelect, order, label, isShort = false }) {
  const [shown, hidden, toggle] = useColumns(id, columns);
  const { sorted, key, isDown, sortBy } = useSorted(rows, columns, order ?? columns[0].key);
  const box = useRef(null);
  const [view, setView] = useState({ top: 0, height: 600 });
  const [current, setCurrent] = useState(0);
  const wantsFocus = useRef(false);

  useLayoutEffect(() => {
    const measure = () => setView({ top: box.current.scrollTop, height: box.current.clientHeight });
    const observer = new ResizeObserver(measure);
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  const onScroll = () => {
    const top = box.current.scrollTop;
    if (Math.abs(top - view.top) > ROW * (SPARE / 3)) setView({ top, height: box.current.clientHeight });
  };
  const first = Math.max(0, Math.floor(view.top / ROW) - SPARE);
  const last = Math.min(sorted.length, Math.ceil((view.top + view.height) / ROW) + SPARE);

  const move = (index) => {
    const next = Math.max(0, Math.min(sorted.length - 1, index));
    const top = next * ROW;
    const element = box.current;
    if (top < element.scrollTop) element.scrollTop = top;
    else if (top + 2 * ROW > element.scrollTop + element.clientHeight) element.scrollTop = top + 2 * ROW - element.clientHeight;
    wantsFocus.current = true;
    setCurrent(next);
    setView({ top: element.scrollTop, height: element.clientHeight });
  };
  useEffect(() => {
    if (!wantsFocus.current) return;
    wantsFocus.current = false;
    box.current.querySelector(`tr[data-index="${current}"]`)?.focus({ preventScroll: true });
  });
  const page = Math.max(1, Math.floor(view.height / ROW) - 2);
  const onKeyDown = (event) => {
    const index = Number(event.target.dataset?.index ?? NaN);
    if (Number.isNaN(index)) return;
    const steps = { ArrowDown: index + 1, ArrowUp: index - 1, PageDown: index + page, PageUp: index - page, Home: 0, End: sorted.length - 1 };
    if (event.key in steps) move(steps[event.key]);
    else if (event.key === "Enter" && onOpen) onOpen(sorted[index]);
    else if (event.key === " " && onSelect) tick(sorted[index]);
    else return;
    event.preventDefault();
  };
  const tick = (row) => {
    const next = new Set(selected);
    const name = rowKey(row);
    if (!next.delete(name)) next.add(name);
    onSelect(next);
  };
  const isAll = selected && sorted.length > 0 && sorted.every((row) => selected.has(rowKey(row)));
  const tickAll = () => onSelect(isAll ? new Set() : new Set(sorted.map(rowKey)));
  const width = shown.length + (selected ? 1 : 0);

  return html`<div class=${isShort ? "table-box short" : "table-box"} ref=${box} onScroll=${onScroll} onKeyDown=${onKeyDown}
      tabindex="-1">
    <table aria-label=${label} aria-rowcount=${sorted.length + 1}>
      <thead><tr>
        ${selected
          ? html`<th class="tick"><input type="checkbox" aria-label=${t("Select all")} checked=${isAll} onChange=${tickAll} /></th>`
          : null}
        ${shown.map((column) => html`<th key=${column.key} class=${column.isNumber ? "number" : ""}
            style=${column.width ? { width: column.width } : {}}
            aria-sort=${column.key === key ? (isDown ? "descending" : "ascending") : null}>
          ${column.sort
            ? html`<button type="button" class="sort" onClick=${() => sortBy(column)}>${column.title}<span
                class="arrow" aria-hidden="true">${column.key === key ? (isDown ? "▼" : "▲") : ""}</span></button>`
            : column.title || html`<span class="hidden-text">${t("Actions")}</span>`}
        </th>`)}
      </tr></thead>
      <tbody>
        ${first > 0 ? html`<tr aria-hidden="true" style=${{ height: `${first * ROW}px` }}><td colspan=${width}></td></tr>` : null}
        ${sorted.slice(first, last).map((row, offset) => {
          const index = first + offset;
          const name = rowKey(row);
          const isTicked = selected?.has(name);
          return html`<tr key=${name} data-index=${index} data-key=${name} aria-rowindex=${index + 2}
              tabindex=${index === Math.min(current, sorted.length - 1) ? 0 : -1} class=${`${onOpen ? "open" : ""} ${isTicked ? "ticked" : ""}`}
              onClick=${(event) => !event.target.closest("a,button,input") && onOpen && !String(getSelection()) && onOpen(row)}
              onFocus=${() => setCurrent(index)}>
            ${selected
              ? html`<td class="tick"><input type="checkbox" tabindex="-1" aria-label=${t("Select {0}", name)} checked=${isTicked}
                  onChange=${() => tick(row)} /></td>`
              : null}
            ${shown.map((column) => html`<td key=${column.key} class=${column.isNumber ? "number" : ""}>${column.cell(row)}</td>`)}
          </tr>`;
        })}
        ${last < sorted.length
          ? html`<tr aria-hidden="true" style=${{ height: `${(sorted.length - last) * ROW}px` }}><td colspan=${width}></td></tr>`
          : null}
      </tbody>
    </table>
    ${columns.some((column) => column.isOptional !== undefined)
      ? html`<${Columns} columns=${columns} hidden=${hidden} toggle=${toggle} />`
      : null}
    ${sorted.length === 0 ? html`<p class="none">${t("No matches.")}</p>` : null}
  </div>`;
}

function Columns({ columns, hidden, toggle }) {
  return html`<details class="columns">
    <summary>${t("Columns")}</summary>
    <div>${columns.filter((column) => column.isOptional !== undefined).map(
      (column) => html`<label class="check" key=${column.key}><input type="checkbox" checked=${!hidden.has(column.key)}
        onChange=${() => toggle(column.key)} /> <span>${column.title}</span></label>`,
    )}</div>
  </details>`;
}

// "12 of 340", beside a search field.
export const Counted = ({ shown, all }) =>
  html`<span class="counted" aria-live="polite">${shown === all ? count(all) : t("{0} of {1}", count(shown), count(all))}</span>`;

// Filters by words: all must occur, in any order, ignoring case.
export function useFiltered(rows, text, textOf) {
  return useMemo(() => {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) return rows;
    return rows.filter((row) => {
      const found = textOf(row).toLowerCase();
      return words.every((word) => found.includes(word));
    });
  }, [rows, text]);
}
