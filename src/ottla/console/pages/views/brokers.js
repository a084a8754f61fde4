// All brokers of a cluster, including those that are down but have replicas.
import { path } from "../core/api.js";
import { bytes, count, rate } from "../core/format.js";
import { html, useMemo } from "../core/html.js";
import { useLive } from "../core/live.js";
import { Link, go } from "../core/router.js";
import { Table } from "../core/table.js";
import { t } from "../core/texts.js";
import { Badge, Page, Problem } from "../core/widgets.js";

export const brokerState = (row) =>
  row.is_alive
    ? html`<${Badge} kind="good">${t("alive")}</${Badge}>${row.is_controller ? html` <${Badge} kind="info">${t("controller")}</${Badge}>` : null}`
    : html`<${Badge} kind="bad">${t("down")}</${Badge}>`;

const share = (part, all) => (all ? `${Math.round((100 * part) / all)} %` : "–");

export default function Brokers({ cluster }) {
  const { data, error } = useLive(path`/api/clusters/${cluster}/brokers`, ["metadata", "sizes", "ends"], cluster);
  const rows = data?.brokers ?? [];
  const traffic = rows.reduce((sum, row) => sum + row.rate, 0);
  const columns = useMemo(() => [
    { key: "broker", title: t("Broker"), isNumber: true, width: "80px", sort: (row) => row.broker, cell: (row) => html`<${Link} to=${path`/c/${cluster}/brokers/${row.broker}`} tabindex="-1">${row.broker}</${Link}>` },
    { key: "state", title: t("State"), sort: (row) => Number(row.is_alive), cell: brokerState },
    { key: "address", title: t("Address"), sort: (row) => row.host ?? "", cell: (row) => (row.host ? `${row.host}:${row.port}` : "–") },
    { key: "rack", title: t("Rack"), isOptional: false, sort: (row) => row.rack ?? "", cell: (row) => row.rack ?? "–" },
    { key: "leaders", title: t("Leaders"), isNumber: true, sort: (row) => row.leaders, cell: (row) => count(row.leaders) },
    { key: "replicas", title: t("Replicas"), isNumber: true, sort: (row) => row.replicas, cell: (row) => count(row.replicas) },
    { key: "behind", title: t("Not in sync"), isNumber: true, sort: (row) => row.under_replicated, cell: (row) => (row.under_replicated ? html`<${Badge} kind="warn">${count(row.under_replicated)}</${Badge}>` : "0") },
    { key: "rate", title: t("Records/s"), isNumber: true, sort: (row) => row.rate, cell: (row) => rate(row.rate) },
    { key: "share", title: t("Share"), isNumber: true, isOptional: false, sort: (row) => row.rate, cell: (row) => share(row.rate, traffic) },
    { key: "size", title: t("Size"), isNumber: true, sort: (row) => row.size_bytes, cell: (row) => bytes(row.size_bytes) },
  ], [cluster, traffic]);
  return html`<${Page} title=${t("Brokers")} id="brokers" actions=${html`<${Link} class="button" to=${path`/c/${cluster}/broker-settings`}>${t("Settings of all brokers")}</${Link}>`}>
    <${Problem} error=${error} />
    ${data
      ? html`<${Table} id="brokers" label=${t("Brokers")} columns=${columns} rows=${rows} rowKey=${(row) => String(row.broker)} order="broker"
          onOpen=${(row) => go(path`/c/${cluster}/brokers/${row.broker}`)} />`
      : null}
  </${Page}>`;
}
