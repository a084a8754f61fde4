// The dead letters of a pipeline: by step and reason, individually, and resending.
import { get, path } from "../core/api.js";
import { count, time } from "../core/format.js";
import { html, useEffect, useMemo, useState } from "../core/html.js";
import { useLive } from "../core/live.js";
import { Link, useQuery } from "../core/router.js";
import { Table } from "../core/table.js";
import { t } from "../core/texts.js";
import { Badge, Button, Empty, Note, Problem } from "../core/widgets.js";
import { Content } from "./message.js";
import { preview, visible } from "./message-text.js";
import { usePolling } from "./pipeline-state.js";
import { ResendDialog } from "./resend-dialog.js";

const placeOf = (letter) => `${letter.message.partition}:${letter.message.offset}`;
const kindKey = (kind) => `${kind.step} · ${kind.reason}`;

function sourceState(state) {
  switch (state) {
    case "gone": return html`<${Badge} kind="warn">${t("deleted")}</${Badge}>`;
    case "another": return html`<${Badge} kind="warn">${t("replaced by another record")}</${Badge}>`;
    case "no topic": return html`<${Badge} kind="bad">${t("topic deleted")}</${Badge}>`;
    default: return null;
  }
}

function SourceLink({ cluster, source }) {
  if (!source) return html`<span class="muted">${t("unknown")}</span>`;
  const words = html`<bdi>${source.topic}</bdi> · ${source.partition} · ${count(source.offset)}`;
  if (["gone", "no topic"].includes(source.state)) return html`<span>${words} ${sourceState(source.state)}</span>`;
  const query = `from=offset&partition=${source.partition}&offset=${source.offset}&open=${source.partition}:${source.offset}`;
  return html`<${Link} to=${`${path`/c/${cluster}/topics/${source.topic}/messages`}?${query}`} tabindex="-1">${words}</${Link}> ${sourceState(source.state)}`;
}

const sentBadge = (sent) =>
  sent.length
    ? html`<${Badge} kind=${sent.some((each) => each.outcome === "unsure") ? "warn" : "good"}
        title=${sent.map((each) => `${each.target}, ${time(each.at_ms)}, ${each.person}`).join("\n")}>${
        sent.some((each) => each.outcome === "unsure") ? t("perhaps sent") : t("resent")}</${Badge}>`
    : null;

function Kinds({ rows, chosen, onChoose, onSend, mayOperate }) {
  const columns = useMemo(() => [
    { key: "step", title: t("Step"), width: "20%", sort: (row) => row.step, cell: (row) => html`<bdi>${row.step || "–"}</bdi>` },
    { key: "reason", title: t("Reason"), sort: (row) => row.reason, cell: (row) => html`<span class="line"><bdi>${visible(row.reason)}</bdi></span>` },
    { key: "letters", title: t("Letters"), isNumber: true, width: "90px", sort: (row) => row.letters, cell: (row) => count(row.letters) },
    { key: "oldest", title: t("First"), width: "170px", isOptional: false, sort: (row) => row.oldest_ms, cell: (row) => time(row.oldest_ms) },
    { key: "newest", title: t("Last"), width: "170px", isOptional: false, sort: (row) => row.newest_ms, cell: (row) => time(row.newest_ms) },
    ...(mayOperate ? [{ key: "send", title: "", width: "130px", cell: (row) => html`<${Button} kind="small" aria-label=${`${t("Resend")}: ${row.reason}`} onClick=${() => onSend(row)}>${t("Resend")}</${Button}>` }] : []),
  ], [mayOperate]);
  return html`<h2>${t("By step and reason")}</h2>
    <${Table} id="letter-kinds" label=${t("By step and reason")} columns=${columns} rows=${rows} rowKey=${kindKey} order="-letters" isShort
      onOpen=${(row) => onChoose(chosen && kindKey(chosen) === kindKey(row) ? null : row)} />`;
}

// Pages of letters, newest first; a changed filter restarts.
function useLetters(address) {
  const [found, setFound] = useState({ address: null, letters: [], cursor: "", hasMore: false, error: null });
  const [reloads, setReloads] = useState(0);
  const load = async (cursor, before) => {
    const more = cursor ? `${address.includes("?") ? "&" : "?"}cursor=${encodeURIComponent(cursor)}` : "";
    try {
      const page = await get(address + more);
      return { address, letters: [...before, ...page.letters], cursor: page.cursor, hasMore: page.has_more, error: null };
    } catch (error) {
      return { address, letters: before, cursor: "", hasMore: false, error };
    }
  };
  useEffect(() => {
    let isOver = false;
    load("", []).then((next) => isOver || setFound(next));
    return () => { isOver = true; };
  }, [address, reloads]);
  const isCurrent = found.address === address;
  return {
    letters: isCurrent ? found.letters : [],
    hasMore: isCurrent && found.hasMore,
    error: isCurrent ? found.error : null,
    more: async () => setFound(await load(found.cursor, found.letters)),
    reload: () => setReloads((number) => number + 1),
  };
}

function Letters({ cluster, found, open, setOpen, selected, setSelected, mayOperate }) {
  const columns = useMemo(() => [
    { key: "time", title: t("Time"), width: "170px", cell: (row) => time(row.message.timestamp) },
    { key: "step", title: t("Step"), width: "16%", isOptional: false, cell: (row) => html`<bdi>${row.step}</bdi>` },
    { key: "reason", title: t("Reason"), cell: (row) => html`<span class="line">${sentBadge(row.sent)} <bdi>${visible(row.reason)}</bdi></span>` },
    { key: "source", title: t("Source record"), width: "22%", isOptional: false, cell: (row) => html`<span class="line"><${SourceLink} cluster=${cluster} source=${row.source} /></span>` },
    { key: "value", title: t("Value"), isOptional: false, cell: (row) => html`<span class="line">${preview(row.message.value)}</span>` },
  ], [cluster]);
  return html`<${Table} id="letters" label=${t("Letters")} columns=${columns} rows=${found.letters} rowKey=${placeOf} order="none"
      selected=${mayOperate ? selected : undefined} onSelect=${mayOperate ? setSelected : undefined} onOpen=${(row) => setOpen(placeOf(row) === open ? "" : placeOf(row))} />`;
}

function LetterPanel({ address, cluster, position, mayOperate, onSend, onClose }) {
  const [partition, offset] = position.split(":");
  const [shown, setShown] = useState({});
  useEffect(() => {
    let isOver = false;
    setShown({});
    get(`${address}/dead-letters/letters/${encodeURIComponent(partition)}/${encodeURIComponent(offset)}`).then(
      (letter) => isOver || setShown({ letter }),
      (error) => isOver || setShown({ error }),
    );
    return () => { isOver = true; };
  }, [address, position]);
  const { letter, error } = shown;
  return html`<aside class="card message" aria-label=${t("Dead letter")} id="letter">
    <h2><span>${t("Dead letter")} ${letter ? sentBadge(letter.sent) : null}</span>
      <span class="bar">
        ${letter && mayOperate ? html`<${Button} kind="small" onClick=${() => onSend([[Number(partition), Number(offset)]])}>${t("Resend")}</${Button}>` : null}
        <${Button} kind="small" onClick=${onClose}>${t("Close")}</${Button}>
      </span></h2>
    <${Problem} error=${error} />
    ${letter
      ? html`<dl class="headers">
            <dt>${t("Reason")}</dt><dd><bdi>${visible(letter.reason)}</bdi></dd>
            <dt>${t("Step")}</dt><dd><bdi>${letter.step}</bdi></dd>
            <dt>${t("Source record")}</dt><dd><${SourceLink} cluster=${cluster} source=${letter.source} /></dd>
            <dt>${t("Letter")}</dt><dd>${t("Partition {0}, offset {1}", partition, offset)} · ${time(letter.message.timestamp)}</dd>
          </dl>
          ${letter.message.headers.length
            ? html`<section><h2>${t("Headers")} <span class="muted">${count(letter.message.headers.length)}</span></h2>
                <dl class="headers">${letter.message.headers.map((header) => html`<dt><bdi>${visible(header.name)}</bdi></dt>
                  <dd>${header.value === null ? html`<i class="muted">null</i>` : html`<bdi>${visible(header.value)}</bdi>`}</dd>`)}</dl></section>`
            : null}
          <${Content} title=${t("Key")} part=${letter.message.key} />
          <${Content} title=${t("Value")} part=${letter.message.value} />`
      : null}
  </aside>`;
}

export function DeadLetters({ cluster, address, may }) {
  const { data, error, reload } = useLive(`${address}/dead-letters`);
  usePolling(reload);
  const [step, setStep] = useQuery("step");
  const [reason, setReason] = useQuery("reason");
  const [open, setOpen] = useQuery("open");
  const [selected, setSelected] = useState(new Set());
  const [asked, setAsked] = useState(null);
  const mayOperate = may("operator");
  const query = new URLSearchParams();
  if (step) query.set("step", step);
  if (reason) query.set("reason", reason);
  const letters = useLetters(`${address}/dead-letters/letters?${query}`);
  const known = data?.letters ?? 0;
  useEffect(() => { if (known) letters.reload(); }, [known]);
  const choose = (kind) => {
    setStep(kind?.step ?? "");
    setReason(kind?.reason ?? "");
    setSelected(new Set());
  };
  if (data && !data.topic) return html`<${Empty} title=${t("No topic of dead letters")}>${t("The pipeline sets dead_letters: false, or its last run used an older version that does not report it.")}</${Empty}>`;
  if (data && !data.is_there) return html`<${Empty} title=${t("No dead letters")}>${t("Topic {0} does not exist in this cluster yet.", data.topic)}</${Empty}>`;
  if (!data) return html`<${Problem} error=${error} />`;
  const chosen = step || reason ? { step, reason } : null;
  const ticked = letters.letters.filter((each) => selected.has(placeOf(each))).map((each) => [each.message.partition, each.message.offset]);
  return html`<${Problem} error=${error} />
    <div class="bar" id="letters-bar"><span class="counted" aria-live="polite">${t("{0} letters in topic", count(data.letters))} <${Link} to=${path`/c/${cluster}/topics/${data.topic}`}><bdi>${data.topic}</bdi></${Link}>
      ${data.others ? html` · ${t("{0} other records", count(data.others))}` : null}</span>
      ${data.left ? html`<${Badge} kind="info">${t("counting: {0} offsets left", count(data.left))}</${Badge}>` : null}</div>
    ${data.unread.length
      ? html`<${Note} kind="warn">${t("Not read:")} <ul>${data.unread.slice(0, 5).map((item) => html`<li>${t("Partition {0}", item.partition)}: <bdi>${item.reason}</bdi></li>`)}</ul></${Note}>`
      : null}
    ${!data.letters && !data.left
      ? html`<${Empty} title=${t("No dead letters")}>${t("Records that cannot be parsed or that break a rule appear here.")}</${Empty}>`
      : html`<${Kinds} rows=${data.kinds} chosen=${chosen} onChoose=${choose} onSend=${(row) => setAsked({ step: row.step, reason: row.reason })} mayOperate=${mayOperate} />
          <h2>${t("Browse")}</h2>
          <div class="bar">
            ${chosen ? html`<${Badge} kind="info">${chosen.step} · ${chosen.reason}</${Badge}> <${Button} kind="small" onClick=${() => choose(null)}>${t("Show all")}</${Button}>
              ${mayOperate ? html`<${Button} onClick=${() => setAsked(chosen)}>${t("Resend all with this reason")}</${Button}>` : null}` : null}
            ${mayOperate ? html`<${Button} disabled=${!ticked.length} onClick=${() => setAsked({ letters: ticked })}>${ticked.length ? t("Resend {0}", count(ticked.length)) : t("Resend selected")}</${Button}>` : null}
            <${Button} kind="quiet" onClick=${letters.reload}>${t("Reload")}</${Button}>
          </div>
          <${Problem} error=${letters.error} />
          <div class=${open ? "messages with-panel" : "messages"}><div class="message-rows">
            <${Letters} cluster=${cluster} found=${letters} open=${open} setOpen=${setOpen} selected=${selected} setSelected=${setSelected} mayOperate=${mayOperate} />
            ${open ? html`<${LetterPanel} address=${address} cluster=${cluster} position=${open} mayOperate=${mayOperate} onSend=${(places) => setAsked({ letters: places })} onClose=${() => setOpen("")} />` : null}
          </div></div>
          ${letters.hasMore ? html`<div class="bar"><${Button} onClick=${letters.more}>${t("Older letters")}</${Button}></div>` : null}`}
    ${asked
      ? html`<${ResendDialog} address=${address} selection=${asked} onClose=${() => setAsked(null)}
          onDone=${() => { setAsked(null); setSelected(new Set()); letters.reload(); reload(); }} />`
      : null}`;
}
