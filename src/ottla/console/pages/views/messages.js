// The messages of a topic: newest first, from a position, live, or the hits of a search. The address has the full state.
import { path } from "../core/api.js";
import { bytes, count, time } from "../core/format.js";
import { html, useEffect, useMemo, useState } from "../core/html.js";
import { useQuery } from "../core/router.js";
import { Table } from "../core/table.js";
import { t } from "../core/texts.js";
import { Button, Check, Empty, Note, Problem } from "../core/widgets.js";
import { MessagePanel, stateOf } from "./message.js";
import { rowKey, usePages, useSearch, useTail } from "./message-stream.js";
import { preview } from "./message-text.js";
import { Masks, NewMessage } from "./new-message.js";

const UNREAD = 5; // listed individually

const columns = () => [
  { key: "time", title: t("Time"), width: "170px", cell: (row) => time(row.timestamp < 0 ? null : row.timestamp) },
  { key: "partition", title: t("Partition"), isNumber: true, width: "80px", cell: (row) => row.partition },
  { key: "offset", title: t("Offset"), isNumber: true, width: "110px", cell: (row) => count(row.offset) },
  { key: "key", title: t("Key"), width: "20%", isOptional: false, cell: (row) => html`<span class="line">${preview(row.key, 120)}</span>` },
  { key: "value", title: t("Value"), isOptional: false, cell: (row) => html`<span class="line">${stateOf(row)} ${preview(row.value)}</span>` },
  { key: "headers", title: t("Headers"), isNumber: true, width: "80px", isOptional: true, cell: (row) => count(row.headers.length) },
  { key: "size", title: t("Size"), isNumber: true, width: "90px", isOptional: false, cell: (row) => bytes((row.key.bytes ?? 0) + (row.value.bytes ?? 0)) },
];

// datetime-local has no time zone: it is in local time.
const toLocal = (ms) => (ms ? new Date(ms - new Date(ms).getTimezoneOffset() * 60_000).toISOString().slice(0, 19) : "");
const fromLocal = (text) => (text ? String(new Date(text).getTime()) : "");

function useFilters() {
  const [from, setFrom] = useQuery("from", "newest");
  const [partition, setPartition] = useQuery("partition");
  const [offset, setOffset] = useQuery("offset");
  const [moment, setMoment] = useQuery("time");
  const [until, setUntil] = useQuery("until");
  const [aborted, setAborted] = useQuery("aborted");
  const [query, setQuery] = useQuery("q");
  return { from, setFrom, partition, setPartition, offset, setOffset, moment, setMoment, until, setUntil, aborted, setAborted, query, setQuery };
}

// The filters of the view.
function addresses(cluster, topic, filters) {
  const base = path`/api/clusters/${cluster}/topics/${topic}`;
  const common = new URLSearchParams();
  if (filters.partition) common.set("partition", filters.partition);
  if (filters.aborted) common.set("aborted", "1");
  const page = new URLSearchParams(common);
  page.set("from", filters.from === "live" ? "end" : filters.from);
  if (filters.aborted) page.set("markers", "1");
  if (filters.from === "offset") page.set("offset", filters.offset || "0");
  if (filters.from === "time") page.set("time", filters.moment || "0");
  const search = new URLSearchParams(common);
  if (filters.query) search.set("q", filters.query);
  if (filters.from === "offset" && filters.offset) search.set("from_offset", filters.offset);
  if (filters.from === "time" && filters.moment) search.set("from_time", filters.moment);
  if (filters.until) search.set("to_time", filters.until);
  search.set("order", ["newest", "live"].includes(filters.from) ? "newest" : "oldest");
  return { page: `${base}/messages?${page}`, search: `${base}/search?${search}`, file: `${base}/message-file?${search}` };
}

function Bar({ filters, partitions, onSearch }) {
  const [typed, setTyped] = useState(filters.query);
  useEffect(() => setTyped(filters.query), [filters.query]);
  const send = (event) => {
    event.preventDefault();
    onSearch(typed.trim());
  };
  return html`<form class="bar" role="search" onSubmit=${send}>
    <select name="from" aria-label=${t("Start position")} value=${filters.from} onChange=${(event) => filters.setFrom(event.target.value)}>
      <option value="newest">${t("Newest first")}</option>
      <option value="oldest">${t("Oldest first")}</option>
      <option value="offset">${t("From offset")}</option>
      <option value="time">${t("From time")}</option>
      <option value="live">${t("Live")}</option>
    </select>
    ${filters.from === "offset"
      ? html`<input name="offset" class="short-field" type="number" min="0" aria-label=${t("Offset")} value=${filters.offset} onChange=${(event) => filters.setOffset(event.target.value)} />`
      : null}
    ${filters.from === "time"
      ? html`<input name="time" type="datetime-local" step="1" aria-label=${t("Time")} value=${toLocal(Number(filters.moment))} onChange=${(event) => filters.setMoment(fromLocal(event.target.value))} />
          <input name="until" type="datetime-local" step="1" aria-label=${t("Until (for searches)")} title=${t("Until (for searches)")} value=${toLocal(Number(filters.until))} onChange=${(event) => filters.setUntil(fromLocal(event.target.value))} />`
      : null}
    <select name="partition" aria-label=${t("Partition")} value=${filters.partition} onChange=${(event) => filters.setPartition(event.target.value)}>
      <option value="">${t("All partitions")}</option>
      ${partitions.map((number) => html`<option key=${number} value=${String(number)}>${t("Partition {0}", number)}</option>`)}
    </select>
    <label class="search grow"><span class="hidden-text">${t("Search")}</span>
      <input name="q" type="search" value=${typed} placeholder=${t("Text, /expression/, key = \"x\", value.user.id = 42, header.a ~ /b/ …")} spellcheck="false"
        autocomplete="off" onInput=${(event) => setTyped(event.target.value)} /></label>
    <button type="submit" class="button primary">${t("Search")}</button>
    <${Check} label=${t("Aborted and markers")} checked=${filters.aborted === "1"} onChange=${(isOn) => filters.setAborted(isOn ? "1" : "")} />
  </form>`;
}

function Unread({ items, ranges }) {
  if (!items?.length) return null;
  return html`<${Note} kind="warn">${t("Not read:")} <ul>${items.slice(0, UNREAD).map((item) => html`<li>${t("Partition {0}", item.partition)}${
    item.end === null ? "" : `, ${t("offsets {0} to {1}", item.start, item.end - 1)}`}: <bdi>${item.reason}</bdi></li>`)}</ul>
    ${(ranges ?? items.length) > UNREAD ? t("{0} more", (ranges ?? items.length) - UNREAD) : null}</${Note}>`;
}

function Found({ search, onEnd }) {
  const { progress, end, isRunning, isStopped } = search;
  const share = progress?.total ? progress.done / progress.total : end ? 1 : 0;
  return html`<div class="bar" id="progress" aria-live="polite">
    <progress max="1" value=${share} aria-label=${t("Searched")}></progress>
    <span>${t("{0} hits in {1} messages", count(progress?.hits ?? 0), count(progress?.records ?? 0))}</span>
    <span class="muted">${isRunning ? t("{0} % searched", Math.floor(share * 100)) : isStopped ? t("Stopped at {0} %", Math.floor(share * 100))
      : end ? (end.limit ? t("Stopped early: {0}", end.limit) : end.has_trouble ? t("Some records could not be read") : t("Search complete")) : null}</span>
    ${isRunning
      ? html`<${Button} kind="danger" onClick=${search.stop}>${t("Stop")}</${Button}>`
      : html`<${Button} onClick=${search.again}>${t("Search again")}</${Button}>`}
    <${Button} kind="quiet" onClick=${onEnd}>${t("Back to the list")}</${Button}>
  </div>`;
}

export function Messages({ answer, cluster, topic, may, session }) {
  const filters = useFilters();
  const [open, setOpen] = useQuery("open");
  const [asked, setAsked] = useState(null);
  const [isPaused, setPaused] = useState(false);
  const shown = useMemo(columns, []);
  const { page, search, file } = addresses(cluster, topic, filters);
  const isSearch = filters.query !== "";
  const isLive = filters.from === "live" && !isSearch;
  const pages = usePages(page, !isSearch && !isLive);
  const tail = useTail(page, isLive, isPaused);
  const found = useSearch(search, isSearch);
  const source = isSearch ? found : isLive ? tail : pages;
  const close = () => setAsked(null);
  const startSearch = (text) => (text === filters.query && text ? found.again() : filters.setQuery(text));
  const isEmpty = !source.rows.length && !source.error && !source.isBusy && !source.isRunning;
  return html`<div class=${open ? "messages with-panel" : "messages"} id="messages">
    <${Bar} filters=${filters} partitions=${answer.partitions.map((each) => each.partition)} onSearch=${startSearch} />
    <div class="bar">
      ${may("operator") ? html`<${Button} kind="primary" onClick=${() => setAsked("new")}>${t("Produce a message")}</${Button}>` : null}
      <a class="button" href=${`${file}&format=json`} download>${t("Download JSON")}</a>
      <a class="button" href=${`${file}&format=csv`} download>${t("Download CSV")}</a>
      ${may("admin") ? html`<${Button} onClick=${() => setAsked("masks")}>${t("Hidden fields")}</${Button}>` : null}
      <span class="space"></span>
      ${isLive
        ? html`<span class="muted" aria-live="off">${t("{0} messages/s", count(tail.perSecond))}</span>
            <${Button} onClick=${() => setPaused(!isPaused)}>${isPaused ? t("Resume") : t("Pause")}</${Button}>`
        : null}
      ${!isLive && !isSearch ? html`<${Button} onClick=${pages.reload}>${t("Reload")}</${Button}>` : null}
    </div>
    ${isSearch ? html`<${Found} search=${found} onEnd=${() => filters.setQuery("")} />` : null}
    <${Problem} error=${source.error} />
    <${Unread} items=${isSearch ? found.end?.unread.filter(() => found.end.has_trouble) : source.unread} ranges=${found.end?.unread_ranges} />
    <div class="message-rows">
      ${isEmpty && !isSearch
        ? html`<${Empty} title=${isLive ? t("Waiting for messages") : t("No messages here")}>${isLive ? t("New messages appear here.") : t("Produce a message, or choose another start position.")}</${Empty}>`
        : html`<${Table} id="messages" label=${t("Messages")} columns=${shown} rows=${source.rows} rowKey=${rowKey} order="none"
            onOpen=${(row) => setOpen(rowKey(row))} />`}
      ${open ? html`<${MessagePanel} cluster=${cluster} topic=${topic} position=${open} may=${may} session=${session} onClose=${() => setOpen("")} />` : null}
    </div>
    ${!isSearch && !isLive && pages.hasMore
      ? html`<div class="bar"><${Button} onClick=${pages.more} disabled=${pages.isBusy}>${filters.from === "newest" ? t("Older messages") : t("Next messages")}</${Button}></div>`
      : null}
    ${asked === "new" ? html`<${NewMessage} cluster=${cluster} topic=${topic} onClose=${close} onDone=${pages.reload} />` : null}
    ${asked === "masks" ? html`<${Masks} cluster=${cluster} onClose=${close} onDone=${pages.reload} />` : null}
  </div>`;
}
