// The figures of a pipeline: queries, rows at each step, plots over batches, inputs and outputs.
import { path } from "../core/api.js";
import { bytes, count, rate, span, time } from "../core/format.js";
import { html, useMemo } from "../core/html.js";
import { useLive } from "../core/live.js";
import { Plot } from "../core/plot.js";
import { Link, useQuery } from "../core/router.js";
import { Table } from "../core/table.js";
import { t } from "../core/texts.js";
import { Badge, Note } from "../core/widgets.js";
import { usePolling } from "./pipeline-state.js";

export function Queries({ rows }) {
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
    { key: "doing", title: t("Activity"), isOptional: false, sort: (row) => row.doing, cell: (row) => (row.error ? html`<${Badge} kind="bad" title=${row.error}>${t("failed")}</${Badge}>` : row.doing || "–") },
  ], []);
  return html`<h2>${t("Queries")}</h2>
    <${Table} id="pipeline-queries" label=${t("Queries")} columns=${columns} rows=${rows} rowKey=${(row) => row.query} order="query" isShort />`;
}

// The number of rows by which the counts of a step differ.
const astray = (number) => (number > 0 ? t("{0} missing", count(number)) : t("{0} too many", count(-number)));
const stepKey = (row) => `${row.query} ${row.stream} ${row.number}`;

export function Steps({ queries }) {
  const rows = useMemo(() => queries.flatMap((query) => query.steps.map((step) => ({ ...step, query: query.query }))), [queries]);
  const columns = useMemo(() => [
    { key: "query", title: t("Query"), isOptional: false, sort: (row) => row.query, cell: (row) => html`<bdi>${row.query}</bdi>` },
    { key: "stream", title: t("Stream"), sort: (row) => row.stream, cell: (row) => html`<bdi>${row.stream}</bdi>` },
    { key: "number", title: t("Step"), sort: (row) => row.number, cell: (row) => html`${row.number} <bdi>${row.step}</bdi>` },
    { key: "came", title: t("Rows in"), isNumber: true, sort: (row) => row.came, cell: (row) => html`${row.astray ? html`<${Badge} kind="bad">${astray(row.astray)}</${Badge}> ` : null}${count(row.came)}` },
    { key: "kept", title: t("Kept"), isNumber: true, sort: (row) => row.kept, cell: (row) => count(row.kept) },
    { key: "filtered", title: t("Filtered"), isNumber: true, sort: (row) => row.filtered, cell: (row) => count(row.filtered) },
    { key: "late", title: t("Late"), isNumber: true, sort: (row) => row.late, cell: (row) => count(row.late) },
    { key: "dead", title: t("Dead letters"), isNumber: true, sort: (row) => row.dead, cell: (row) => (row.dead ? html`<${Badge} kind="warn">${count(row.dead)}</${Badge}>` : "0") },
    { key: "made", title: t("Rows out"), isNumber: true, isOptional: false, sort: (row) => row.made, cell: (row) => count(row.made) },
  ], []);
  if (!rows.length) return null;
  return html`<h2>${t("Rows at each step")}</h2>
    <p class="counted">${t("Rows in = kept + filtered + late + dead letters, since the start of this run")}</p>
    ${rows.some((row) => row.astray)
      ? html`<${Note} kind="bad">${t("The row counts do not add up: some rows are unaccounted for. This should not happen; check the pipeline's log.")}</${Note}>`
      : null}
    <${Table} id="pipeline-steps" label=${t("Rows at each step")} columns=${columns} rows=${rows} rowKey=${stepKey} order="flow" isShort />`;
}


const seconds = (values) => values.map((ms) => (ms == null ? null : ms / 1000));

const plots = (course) => [
  { title: t("Rows a second"), columns: [course.rows_in_per_s, course.rows_done_per_s], series: [{ title: t("input rate"), colour: "--plot-1" }, { title: t("processing rate"), colour: "--plot-2" }] },
  { title: t("Lag"), columns: [course.lag], series: [{ title: t("records"), colour: "--plot-3" }] },
  { title: t("Time of a batch (s)"), columns: [seconds(course.batch_ms)], series: [{ title: t("seconds"), colour: "--plot-1" }] },
  { title: t("Rows of a batch"), columns: [course.batch_rows], series: [{ title: t("rows"), colour: "--plot-2" }] },
  { title: t("Watermark behind the clock (s)"), columns: [seconds(course.watermark_age_ms)], series: [{ title: t("seconds"), colour: "--plot-3" }] },
  { title: t("State size"), columns: [course.state_bytes], series: [{ title: t("bytes"), colour: "--plot-1" }] },
].filter((each) => each.columns.some((column) => column.some((value) => value)));

// Plots need two batches; with several queries, one is selected.
export function Course({ cluster, name }) {
  const { data, reload } = useLive(path`/api/clusters/${cluster}/pipelines/${name}/course`);
  usePolling(reload);
  const [chosen, setChosen] = useQuery("query");
  const course = data?.queries.find((each) => each.query === chosen) ?? data?.queries[0];
  const shown = useMemo(() => (course ? plots(course).map((each) => ({ ...each, columns: [course.at_ms, ...each.columns] })) : []), [data, chosen]);
  if (!course) return null;
  return html`<h2>${t("Per batch")}
      ${data.queries.length > 1
        ? html` <label><span class="hidden-text">${t("Query")}</span><select value=${course.query} onChange=${(event) => setChosen(event.target.value)}>
            ${data.queries.map((each) => html`<option key=${each.query} value=${each.query} selected=${each === course}>${each.query}</option>`)}</select></label>`
        : null}</h2>
    ${course.at_ms.length < 2
      ? html`<p class="counted">${t("Plots appear after the second batch.")}</p>`
      : html`<section class="cards" id="course">${shown.map((each) => html`<div class="card" key=${`${course.query} ${each.title}`}>
          <h2>${each.title}</h2><${Plot} label=${each.title} columns=${each.columns} series=${each.series} height=${130} /></div>`)}</section>`}`;
}

function use(word) {
  switch (word) {
    case "reads": return t("Reads");
    case "writes": return t("Writes");
    case "dead letters": return t("Dead letters");
    case "late rows": return t("Late rows");
    default: return t("Group");
  }
}

// Inputs and outputs; topics of other clusters and hidden topics have no link.
export function Places({ cluster, places }) {
  if (!places) return null;
  const address = (place) => (place.use === "group" ? path`/c/${cluster}/groups/${place.name}` : path`/c/${cluster}/topics/${place.name}`);
  return html`<h2>${t("Inputs and outputs")}</h2>
    <div class="card"><ul class="list" id="places">
      ${places.named.map((place) => html`<li key=${`${place.use} ${place.name}`}><span class="muted">${use(place.use)}</span>
        ${place.is_here
          ? html`<${Link} to=${address(place)}><bdi>${place.name}</bdi></${Link}>`
          : html`<span><bdi>${place.name}</bdi> <${Badge}>${t("not in this cluster")}</${Badge}></span>`}</li>`)}
      ${places.patterns.map((pattern) => html`<li key=${`pattern ${pattern}`}><span class="muted">${t("Reads topics matching")}</span><bdi class="mono">${pattern}</bdi></li>`)}
      ${places.elsewhere.map((name) => html`<li key=${name}><span class="muted">${t("In another cluster")}</span><bdi>${name}</bdi></li>`)}
      <li><span class="muted">${t("Its brokers")}</span><bdi>${places.bootstrap}</bdi></li>
    </ul></div>`;
}
