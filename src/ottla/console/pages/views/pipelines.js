// All pipelines with a run in the state folder.
import { path } from "../core/api.js";
import { bytes, count, rate, span, time } from "../core/format.js";
import { html, useMemo } from "../core/html.js";
import { useLive } from "../core/live.js";
import { Link, go, useQuery } from "../core/router.js";
import { Counted, Table, useFiltered } from "../core/table.js";
import { t } from "../core/texts.js";
import { Badge, Empty, Page, Problem, Search } from "../core/widgets.js";
import { stateBadge, usePolling } from "./pipeline-state.js";

const columns = (cluster) => [
  { key: "name", title: t("Pipeline"), sort: (row) => row.name, cell: (row) => html`<${Link} to=${path`/c/${cluster}/pipelines/${row.name}`} tabindex="-1"><bdi>${row.name}</bdi></${Link}>` },
  { key: "state", title: t("State"), sort: (row) => row.state, cell: (row) => stateBadge(row.state) },
  { key: "rows", title: t("Rows read"), isNumber: true, isOptional: false, sort: (row) => row.rows, cell: (row) => count(row.rows) },
  { key: "in", title: t("Rows in/s"), isNumber: true, sort: (row) => row.rows_in_per_s, cell: (row) => rate(row.rows_in_per_s) },
  { key: "done", title: t("Rows done/s"), isNumber: true, isOptional: false, sort: (row) => row.rows_done_per_s, cell: (row) => rate(row.rows_done_per_s) },
  { key: "lag", title: t("Lag"), isNumber: true, sort: (row) => row.lag, cell: (row) => count(row.lag) },
  { key: "batch", title: t("Batch time"), isNumber: true, sort: (row) => row.batch_ms, cell: (row) => span(row.batch_ms) },
  { key: "watermark", title: t("Watermark"), isOptional: false, sort: (row) => row.watermark_ms, cell: (row) => time(row.watermark_ms) },
  { key: "size", title: t("State size"), isNumber: true, isOptional: false, sort: (row) => row.state_bytes, cell: (row) => bytes(row.state_bytes) },
  { key: "dead", title: t("Dead letters"), isNumber: true, sort: (row) => row.dead, cell: (row) => (row.dead ? html`<${Badge} kind="warn">${count(row.dead)}</${Badge}>` : "0") },
];

export default function Pipelines({ cluster }) {
  const { data, error, reload } = useLive(path`/api/clusters/${cluster}/pipelines`);
  usePolling(reload);
  const [text, setText] = useQuery("q");
  const all = data?.pipelines ?? [];
  const rows = useFiltered(all, text, (row) => row.name);
  const elsewhere = data?.elsewhere ? html`<span class="muted">${t("Not shown, because they use other clusters: {0}", count(data.elsewhere))}</span>` : null;
  const made = useMemo(() => columns(cluster), [cluster]);
  return html`<${Page} title=${t("Pipelines")} id="pipelines">
    <${Problem} error=${error} />
    ${data && !data.is_here
      ? html`<${Empty} title=${t("No pipelines here")}>${t("The pipelines of this machine appear under the cluster that the console was started with.")}</${Empty}>`
      : data && !all.length
        ? html`<${Empty} title=${t("No pipelines yet")}>
            <p>${t("A pipeline appears when it runs on this machine:")}</p>
            <pre>ottla pipeline run orders.yaml</pre>
            ${elsewhere}
          </${Empty}>`
        : data
          ? html`<div class="bar">
                <${Search} label=${t("Find pipelines")} value=${text} onInput=${setText} />
                <${Counted} shown=${rows.length} all=${all.length} />
                ${elsewhere}
              </div>
              <${Table} id="pipelines" label=${t("Pipelines")} columns=${made} rows=${rows} rowKey=${(row) => row.name} order="name"
                onOpen=${(row) => go(path`/c/${cluster}/pipelines/${row.name}`)} />`
          : null}
  </${Page}>`;
}
