// The audit trail of this console, newest first.
import { get } from "../core/api.js";
import { time } from "../core/format.js";
import { html, useState } from "../core/html.js";
import { useLive } from "../core/live.js";
import { useQuery } from "../core/router.js";
import { Counted, Table, useFiltered } from "../core/table.js";
import { t } from "../core/texts.js";
import { Badge, Button, Dialog, Empty, Page, Problem, Search } from "../core/widgets.js";

const KINDS = { done: "good", failed: "bad", begun: "warn" };

const shown = (text) => {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
};

function Entry({ entry, onClose }) {
  return html`<${Dialog} isWide title=${entry.target} onClose=${onClose} onSubmit=${onClose}>
    <p>${time(entry.at_ms)} · <bdi>${entry.person}</bdi> (${entry.address}) · ${entry.cluster}</p>
    <p class="mono">${entry.action}</p>
    <p>${entry.outcome}</p>
    <h2>${t("Before")}</h2><pre>${entry.before ? shown(entry.before) : "–"}</pre>
    <h2>${t("After")}</h2><pre>${entry.after ? shown(entry.after) : "–"}</pre>
  </${Dialog}>`;
}

export default function Audit() {
  const { data, error, reload } = useLive("/api/audit");
  const [older, setOlder] = useState([]);
  const [text, setText] = useQuery("q");
  const [open, setOpen] = useState(null);
  const all = [...(data?.entries ?? []), ...older];
  const rows = useFiltered(all, text, (row) => `${row.person} ${row.cluster} ${row.action} ${row.target} ${row.outcome}`);
  const more = async () => {
    const { entries } = await get(`/api/audit?before=${all.at(-1).id}`);
    setOlder([...older, ...entries]);
  };
  const columns = [
    { key: "at", title: t("Time"), isNumber: true, width: "170px", sort: (row) => row.id, cell: (row) => time(row.at_ms) },
    { key: "person", title: t("Person"), sort: (row) => row.person, cell: (row) => html`<bdi>${row.person}</bdi>` },
    { key: "cluster", title: t("Cluster"), sort: (row) => row.cluster, cell: (row) => row.cluster || "–" },
    { key: "action", title: t("Action"), sort: (row) => row.action, cell: (row) => html`<span class="mono">${row.action.replace("/api/clusters/{cluster}", "")}</span>` },
    { key: "target", title: t("Target"), sort: (row) => row.target, cell: (row) => html`<bdi>${row.target}</bdi>` },
    { key: "outcome", title: t("Outcome"), sort: (row) => row.outcome, cell: (row) => html`<${Badge} kind=${KINDS[row.result]}>${row.outcome === "done" ? t("done") : row.outcome === "begun" ? t("begun") : row.outcome}</${Badge}>` },
  ];
  return html`<${Page} title=${t("Audit")} id="audit" actions=${html`<${Button} onClick=${() => { setOlder([]); reload(); }}>${t("Refresh")}</${Button}>`}>
    <${Problem} error=${error} />
    ${data && !all.length
      ? html`<${Empty} title=${t("No changes yet")}>${t("Every change made through this console is listed here, with the values before and after.")}</${Empty}>`
      : data
        ? html`<div class="bar"><${Search} label=${t("Find changes")} value=${text} onInput=${setText} /><${Counted} shown=${rows.length} all=${all.length} />
              ${all.length >= 200 ? html`<${Button} onClick=${more}>${t("Older")}</${Button}>` : null}</div>
            <${Table} id="audit" label=${t("Audit")} columns=${columns} rows=${rows} rowKey=${(row) => String(row.id)} order="-at" onOpen=${setOpen} />`
        : null}
    ${open ? html`<${Entry} entry=${open} onClose=${() => setOpen(null)} />` : null}
  </${Page}>`;
}
