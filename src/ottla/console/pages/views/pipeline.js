// One pipeline: each of its queries, the rows at each step; stop it.
import { path, post } from "../core/api.js";
import { age, bytes, count, rate, span, time } from "../core/format.js";
import { html, useMemo, useState } from "../core/html.js";
import { useLive } from "../core/live.js";
import { Link } from "../core/router.js";
import { Table } from "../core/table.js";
import { t } from "../core/texts.js";
import { Badge, Button, Dialog, Empty, Figure, Note, Page, Problem, toast } from "../core/widgets.js";
import { stateBadge, useAgain } from "./pipeline-state.js";

function Queries({ rows }) {
  const columns = useMemo(() => [
    { key: "query", title: t("Query"), sort: (row) => row.query, cell: (row) => html`<bdi>${row.query}</bdi>` },
    { key: "rows", title: t("Rows read"), isNumber: true, sort: (row) => row.rows, cell: (row) => count(row.rows) },
    { key: "in", title: t("Rows in/s"), isNumber: true, sort: (row) => row.rows_in_per_s, cell: (row) => rate(row.rows_in_per_s) },
    { key: "done", title: t("Rows done/s"), isNumber: true, sort: (row) => row.rows_done_per_s, cell: (row) => rate(row.rows_done_per_s) },
    { key: "lag", title: t("Lag"), isNumber: true, sort: (row) => row.lag, cell: (row) => count(row.lag) },
    { key: "batches", title: t("Batches"), isNumber: true, isOptional: false, sort: (row) => row.batches, cell: (row) => count(row.batches) },
    { key: "batch", title: t("Batch time"), isNumber: true, sort: (row) => row.batch_ms, cell: (row) => span(row.batch_ms) },
    { key: "watermark", title: t("Watermark"), isOptional: false, sort: (row) => row.watermark_ms, cell: (row) => time(row.watermark_ms) },
    { key: "state-rows", title: t("State rows"), isNumber: true, isOptional: false, sort: (row) => row.state_rows, cell: (row) => count(row.state_rows) },
    { key: "size", title: t("State size"), isNumber: true, isOptional: false, sort: (row) => row.state_bytes, cell: (row) => bytes(row.state_bytes) },
    { key: "at", title: t("Last batch"), isOptional: false, sort: (row) => row.at_ms, cell: (row) => time(row.at_ms) },
    { key: "doing", title: t("Doing"), isOptional: false, sort: (row) => row.doing, cell: (row) => (row.error ? html`<${Badge} kind="bad" title=${row.error}>${t("failed")}</${Badge}>` : row.doing || "–") },
  ], []);
  return html`<h2>${t("Queries")}</h2>
    <${Table} id="pipeline-queries" label=${t("Queries")} columns=${columns} rows=${rows} rowKey=${(row) => row.query} order="query" isShort />`;
}

const stepKey = (row) => `${row.query} ${row.stream} ${row.number}`;

function Steps({ queries }) {
  const rows = useMemo(() => queries.flatMap((query) => query.steps.map((step) => ({ ...step, query: query.query }))), [queries]);
  const columns = useMemo(() => [
    { key: "query", title: t("Query"), isOptional: false, sort: (row) => row.query, cell: (row) => html`<bdi>${row.query}</bdi>` },
    { key: "stream", title: t("Stream"), sort: (row) => row.stream, cell: (row) => html`<bdi>${row.stream}</bdi>` },
    { key: "number", title: t("Step"), sort: (row) => row.number, cell: (row) => html`${row.number} <bdi>${row.step}</bdi>` },
    { key: "came", title: t("Rows in"), isNumber: true, sort: (row) => row.came, cell: (row) => count(row.came) },
    { key: "kept", title: t("Kept"), isNumber: true, sort: (row) => row.kept, cell: (row) => count(row.kept) },
    { key: "filtered", title: t("Filtered"), isNumber: true, sort: (row) => row.filtered, cell: (row) => count(row.filtered) },
    { key: "late", title: t("Late"), isNumber: true, sort: (row) => row.late, cell: (row) => count(row.late) },
    { key: "dead", title: t("Dead letters"), isNumber: true, sort: (row) => row.dead, cell: (row) => (row.dead ? html`<${Badge} kind="warn">${count(row.dead)}</${Badge}>` : "0") },
    { key: "made", title: t("Rows out"), isNumber: true, isOptional: false, sort: (row) => row.made, cell: (row) => count(row.made) },
  ], []);
  if (!rows.length) return null;
  return html`<h2>${t("Rows at each step")}</h2>
    <p class="counted">${t("Rows in = kept + filtered + late + dead letters, since this run began")}</p>
    <${Table} id="pipeline-steps" label=${t("Rows at each step")} columns=${columns} rows=${rows} rowKey=${stepKey} order="stream" />`;
}

export default function Pipeline({ cluster, pipeline: name, may }) {
  const address = path`/api/clusters/${cluster}/pipelines/${name}`;
  const { data, error, reload } = useLive(address);
  useAgain(reload);
  const [isAsked, setAsked] = useState(false);
  const row = data?.pipeline;
  const stop = async () => {
    await post(`${address}/stops`);
    toast(t("{0} stops when its batch is done", name));
    setAsked(false);
    reload();
  };
  const actions = row && may("operator")
    ? html`<${Button} kind="danger" disabled=${!row.is_live} title=${row.is_live ? null : t("It does not run")} onClick=${() => setAsked(true)}>${t("Stop")}</${Button}>`
    : null;
  const all = html`<${Link} to=${path`/c/${cluster}/pipelines`}>${t("Pipelines")}</${Link}>`;
  return html`<${Page} title=${name} id="pipeline" crumbs=${all} actions=${actions}>
    ${error?.status === 404 && !data
      ? html`<${Empty} title=${t("There is no pipeline {0}", name)}>${all}</${Empty}>`
      : html`<${Problem} error=${error} />`}
    ${row
      ? html`${row.reason ? html`<${Note} kind=${row.state === "failed" || row.state === "killed" ? "bad" : "info"}>${row.reason}</${Note}>` : null}
          ${row.restarts ? html`<${Note} kind="warn">${t("Started again {0} times, last after: {1}", row.restarts, row.last_failure)}</${Note}>` : null}
          <div class="figures">
            <${Figure} label=${t("State")} value=${stateBadge(row.state)} />
            <${Figure} label=${t("Rows read")} value=${count(row.rows)} />
            <${Figure} label=${t("Rows in/s")} value=${rate(row.rows_in_per_s)} />
            <${Figure} label=${t("Lag")} value=${count(row.lag)} unit=${t("records")} />
            <${Figure} label=${t("State size")} value=${bytes(row.state_bytes)} />
            <${Figure} label=${t("Dead letters")} value=${count(row.dead)} kind=${row.dead ? "warn" : ""} />
            <${Figure} label=${t("Started")} value=${row.started_ms ? t("{0} ago", age(data.at_ms - row.started_ms)) : "–"} title=${time(row.started_ms)} />
            <${Figure} label=${t("Host")} value=${row.host || "–"} title=${row.file} />
          </div>
          ${data.queries.length ? html`<${Queries} rows=${data.queries} />` : null}
          <${Steps} queries=${data.queries} />`
      : null}
    ${isAsked
      ? html`<${Dialog} title=${t("Stop pipeline {0}?", name)} submit=${t("Stop")} kind="danger" onSubmit=${stop} onClose=${() => setAsked(false)}>
          <p>${t("It ends its batch first. The next run goes on from there.")}</p></${Dialog}>`
      : null}
  </${Page}>`;
}
