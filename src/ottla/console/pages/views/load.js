// The metrics of brokers: plots over hours, a table of all brokers, and a hint if there are no addresses.
import { path } from "../core/api.js";
import { age, bytes, compact, count, rate, span } from "../core/format.js";
import { html, useMemo, useState } from "../core/html.js";
import { serverNow, useLive } from "../core/live.js";
import { Plot } from "../core/plot.js";
import { Link, useQuery } from "../core/router.js";
import { Table } from "../core/table.js";
import { t } from "../core/texts.js";
import { Badge, Button, Note, Problem } from "../core/widgets.js";
import { MetricsDialog } from "./metrics-dialog.js";

const OLD_MS = 15_000;
const HOURS = ["1", "6", "24"];
const cores = (number) => (number == null ? "–" : `${compact(100 * number)} %`);
const milliseconds = (number) => (number == null ? "–" : number < 10 ? t("{0} ms", compact(number)) : span(Math.round(number)));

const BYTES = { title: "Bytes a second", format: bytes, lines: [{ key: "bytes_in", title: "in", colour: "--plot-1" }, { key: "bytes_out", title: "out", colour: "--plot-2" }] };
const REQUESTS = { title: "Requests a second", format: compact, lines: [{ key: "requests", title: "requests", colour: "--plot-1" }] };
const TIMES = { title: "Request times (p99)", format: milliseconds, lines: [{ key: "produce_ms", title: "Produce", colour: "--plot-1" }, { key: "fetch_ms", title: "Fetch", colour: "--plot-2" }] };
const CPU = { title: "CPU", format: cores, lines: [{ key: "cpu", title: "of a core", colour: "--plot-3" }] };
const NETWORK = { title: "Network", format: bytes, lines: [{ key: "network_in", title: "in", colour: "--plot-1" }, { key: "network_out", title: "out", colour: "--plot-2" }] };
const MEMORY = { title: "Memory", format: bytes, lines: [{ key: "memory_bytes", title: "used", colour: "--plot-3" }] };
const DISK = { title: "Free space on the fullest disk", format: bytes, lines: [{ key: "disk_free_bytes", title: "free", colour: "--plot-2" }] };
const RECORDS = { title: "Records a second", format: compact, lines: [{ key: "records_in", title: "written", colour: "--plot-1" }] };
const OF_CLUSTER = [BYTES, REQUESTS, TIMES, { ...CPU, title: "CPU of the busiest broker" }];
const OF_BROKER = [RECORDS, BYTES, REQUESTS, TIMES, CPU, MEMORY, NETWORK, DISK];

export function Hours() {
  const [hours, setHours] = useQuery("hours", "1");
  return html`<label><span class="hidden-text">${t("Period")}</span><select value=${hours} onChange=${(event) => setHours(event.target.value)}>
    ${HOURS.map((each) => html`<option key=${each} value=${each} selected=${each === hours}>${t("{0} h", each)}</option>`)}
  </select></label>`;
}

function LoadPlot({ history, title, format, lines }) {
  const columns = useMemo(() => [history.at_ms, ...lines.map(({ key }) => history.columns[key])], [history]);
  const isKnown = columns.slice(1).some((column) => column?.some((number) => number != null));
  if (history.at_ms.length > 1 && !isKnown) return null; // this broker does not report it
  return html`<div class="card"><h2>${t(title)}</h2>
    ${history.at_ms.length > 1
      ? html`<${Plot} label=${t(title)} columns=${columns} format=${format} series=${lines.map(({ title, colour }) => ({ title: t(title), colour }))} />`
      : html`<div class="plot-wait" style=${{ height: "160px" }}>${t("Collecting: the first data appears in a few seconds")}</div>`}
  </div>`;
}

const Plots = ({ history, plots }) =>
  html`<section class="cards four">${plots.map((each) => html`<${LoadPlot} key=${each.title} history=${history} ...${each} />`)}</section>`;

// Why numbers are missing or old.
function State({ row }) {
  if (row.problem) return html`<${Badge} kind="warn" title=${row.problem}>${row.at_ms ? t("{0} old", age(serverNow() - row.at_ms)) : t("not read")}</${Badge}>`;
  if (!row.has_address) return html`<span class="muted">${t("no address")}</span>`;
  if (row.at_ms && serverNow() - row.at_ms > OLD_MS) return html`<${Badge} kind="warn">${t("{0} old", age(serverNow() - row.at_ms))}</${Badge}>`;
  return row.at_ms ? html`<${Badge} kind="good">${t("now")}</${Badge}>` : html`<span class="muted">${t("Reading")}</span>`;
}

function Brokers({ rows, cluster }) {
  const number = (key, title, format, isOptional) => ({ key, title, isNumber: true, isOptional, sort: (row) => row.load?.[key], cell: (row) => format(row.load?.[key]) });
  const columns = useMemo(() => [
    { key: "broker", title: t("Broker"), isNumber: true, width: "80px", sort: (row) => row.broker, cell: (row) => html`<${Link} to=${path`/c/${cluster}/brokers/${row.broker}`} tabindex="-1">${row.broker}</${Link}>` },
    { key: "state", title: t("Read"), sort: (row) => row.at_ms, cell: (row) => html`<${State} row=${row} />` },
    number("cpu", t("CPU"), cores),
    number("memory_bytes", t("Memory"), bytes),
    number("network_in", t("Network in/s"), bytes, false),
    number("network_out", t("Network out/s"), bytes, false),
    number("bytes_in", t("Written/s"), bytes, true),
    number("bytes_out", t("Fetched/s"), bytes, true),
    number("requests", t("Requests/s"), rate),
    number("produce_ms", t("Produce"), milliseconds, false),
    number("fetch_ms", t("Fetch"), milliseconds, true),
    number("disk_free_bytes", t("Free space"), bytes),
    number("disk_size_bytes", t("Disk"), bytes, true),
    number("connections", t("Connections"), count, true),
  ], [cluster]);
  return html`<${Table} id="load" label=${t("Load of the brokers")} columns=${columns} rows=${rows} rowKey=${(row) => row.broker} order="broker" isShort />`;
}

// Shown without metrics addresses: explains how to set them.
function NoMetrics({ cluster, may, onGive }) {
  return html`<section class="card">
    <h2>${t("Load of the brokers")} ${may("admin") ? html`<${Button} kind="small" onClick=${onGive}>${t("Set address")}</${Button}>` : null}</h2>
    <p class="muted">${t("Bytes, request times, CPU, memory and network come from the metrics of the brokers, whose address is not set. Until then, rates come from offsets and commits.")}</p>
    <pre>ottla console --metrics-url 'http://{host}:9404'</pre>
  </section>`;
}

function Problems({ rows }) {
  const failed = rows.filter((row) => row.problem);
  if (!failed.length) return null;
  return html`<${Note} kind="warn">${t("Metrics of broker {0} could not be read: {1}", failed[0].broker, failed[0].problem)}${failed.length > 1 ? ` ${t("The same applies to {0} more.", count(failed.length - 1))}` : ""}</${Note}>`;
}

// On the overview.
export function ClusterLoad({ cluster, may }) {
  const [isAsked, setAsked] = useState(false);
  const [hours] = useQuery("hours", "1");
  const { data, error, reload } = useLive(path`/api/clusters/${cluster}/metrics`, ["metrics", "metadata"], cluster);
  const { data: history } = useLive(data?.is_told ? `${path`/api/clusters/${cluster}/metrics/history`}?hours=${encodeURIComponent(hours)}` : null, ["metrics"], cluster);
  const dialog = isAsked ? html`<${MetricsDialog} cluster=${cluster} onClose=${() => setAsked(false)} onDone=${reload} />` : null;
  if (!data) return html`<${Problem} error=${error} />`;
  if (!data.is_told) return html`<${NoMetrics} cluster=${cluster} may=${may} onGive=${() => setAsked(true)} />${dialog}`;
  return html`${history ? html`<${Plots} history=${history} plots=${OF_CLUSTER} />` : null}
    <section class="card">
      <h2>${t("Load of the brokers")} ${may("admin") && data.is_changeable ? html`<${Button} kind="small" onClick=${() => setAsked(true)}>${t("Change address")}</${Button}>` : null}</h2>
      <${Problems} rows=${data.brokers} />
      <${Brokers} rows=${data.brokers} cluster=${cluster} />
    </section>${dialog}`;
}

function Requests({ rows }) {
  const columns = [
    { key: "name", title: t("Request"), sort: (row) => row.name, cell: (row) => row.name },
    { key: "rate", title: t("Requests/s"), isNumber: true, sort: (row) => row.rate, cell: (row) => rate(row.rate) },
    { key: "p50", title: t("p50"), isNumber: true, sort: (row) => row.p50_ms, cell: (row) => milliseconds(row.p50_ms) },
    { key: "p99", title: t("p99"), isNumber: true, sort: (row) => row.p99_ms, cell: (row) => milliseconds(row.p99_ms) },
    { key: "errors", title: t("Errors/s"), isNumber: true, sort: (row) => row.errors, cell: (row) => (row.errors ? html`<${Badge} kind="warn">${rate(row.errors)}</${Badge}>` : rate(row.errors)) },
  ];
  return html`<${Table} id="requests" label=${t("Requests")} columns=${columns} rows=${rows} rowKey=${(row) => row.name} order="-rate" isShort />`;
}

// On the page of a broker.
export function BrokerLoad({ cluster, broker, may }) {
  const [isAsked, setAsked] = useState(false);
  const [hours] = useQuery("hours", "1");
  const { data, error, reload } = useLive(`${path`/api/clusters/${cluster}/brokers/${broker}/metrics`}?hours=${encodeURIComponent(hours)}`, ["metrics"], cluster);
  const dialog = isAsked ? html`<${MetricsDialog} cluster=${cluster} onClose=${() => setAsked(false)} onDone=${reload} />` : null;
  if (!data) return html`<${Problem} error=${error} />`;
  if (!data.is_told || (!data.broker.has_address && !data.broker.at_ms)) return html`<${NoMetrics} cluster=${cluster} may=${may} onGive=${() => setAsked(true)} />${dialog}`;
  return html`<div class="bar"><${State} row=${data.broker} /><${Hours} /></div>
    <${Problems} rows=${[data.broker]} />
    <${Plots} history=${data.history} plots=${OF_BROKER} />
    ${data.requests.length ? html`<${Requests} rows=${data.requests} />` : null}`;
}
