// One broker: log directories with disk space, settings with their source.
import { path } from "../core/api.js";
import { bytes, count, rate } from "../core/format.js";
import { html, useState } from "../core/html.js";
import { useLive } from "../core/live.js";
import { Link } from "../core/router.js";
import { Table } from "../core/table.js";
import { t } from "../core/texts.js";
import { Badge, Button, Empty, Figure, Page, Problem, Tabs } from "../core/widgets.js";
import { Generate } from "./assignments.js";
import { brokerState } from "./brokers.js";
import { BrokerLoad } from "./load.js";
import { Settings } from "./settings.js";

function Folders({ answer }) {
  const columns = [
    { key: "path", title: t("Folder"), sort: (row) => row.path, cell: (row) => html`<span class="mono">${row.path}</span>` },
    { key: "problem", title: t("State"), sort: (row) => row.problem ?? "", cell: (row) => (row.problem ? html`<${Badge} kind="bad">${row.problem}</${Badge}>` : html`<${Badge} kind="good">${t("healthy")}</${Badge}>`) },
    { key: "replicas", title: t("Replicas"), isNumber: true, sort: (row) => row.replicas, cell: (row) => count(row.replicas) },
    { key: "size", title: t("Size"), isNumber: true, sort: (row) => row.size_bytes, cell: (row) => bytes(row.size_bytes) },
    { key: "usable", title: t("Free space"), isNumber: true, sort: (row) => row.usable_bytes, cell: (row) => bytes(row.usable_bytes) },
    { key: "total", title: t("Disk"), isNumber: true, sort: (row) => row.total_bytes, cell: (row) => bytes(row.total_bytes) },
  ];
  return html`<${Table} id="folders" label=${t("Log folders")} columns=${columns} rows=${answer.folders} rowKey=${(row) => row.path} order="path" />`;
}

function BrokerSettings({ cluster, broker, may }) {
  return html`<${Settings} address=${path`/api/clusters/${cluster}/brokers/${broker}/settings`} cluster=${cluster} isEditable=${may("admin")} />`;
}

export const VIEWS = [
  { key: "load", title: "Load", View: BrokerLoad },
  { key: "folders", title: "Log folders", View: Folders },
  { key: "settings", title: "Settings", View: BrokerSettings },
];

export default function Broker({ cluster, broker, view = VIEWS[0].key, may }) {
  const [asked, setAsked] = useState(null);
  const { data, error } = useLive(path`/api/clusters/${cluster}/brokers/${broker}`, ["metadata", "sizes", "ends"], cluster);
  const row = data?.broker;
  const { View } = VIEWS.find((each) => each.key === view) ?? VIEWS[0];
  const tabs = VIEWS.map(({ key, title }) => ({ key, text: t(title), to: path`/c/${cluster}/brokers/${broker}` + (key === VIEWS[0].key ? "" : `/${key}`) }));
  return html`<${Page} title=${t("Broker {0}", broker)} id="broker" crumbs=${html`<${Link} to=${path`/c/${cluster}/brokers`}>${t("Brokers")}</${Link}>`}
      actions=${row && may("admin")
        ? html`<${Button} onClick=${() => setAsked("drain")}>${t("Drain")}</${Button}>
            ${row.is_alive ? html`<${Button} onClick=${() => setAsked("fill")}>${t("Fill")}</${Button}>` : null}`
        : null}>
    ${asked ? html`<${Generate} cluster=${cluster} kind=${asked} broker=${Number(broker)} onClose=${() => setAsked(null)} />` : null}
    ${error?.status === 404 && !data ? html`<${Empty} title=${t("There is no broker {0}", broker)}><${Link} to=${path`/c/${cluster}/brokers`}>${t("All brokers")}</${Link}></${Empty}>` : html`<${Problem} error=${error} />`}
    ${row
      ? html`<div class="figures">
            <${Figure} label=${t("State")} value=${brokerState(row)} />
            <${Figure} label=${t("Address")} value=${html`<span class="mono">${row.host ? `${row.host}:${row.port}` : "–"}</span>`} />
            <${Figure} label=${t("Leaders")} value=${count(row.leaders)} />
            <${Figure} label=${t("Replicas")} value=${count(row.replicas)} />
            <${Figure} label=${t("Not in sync")} value=${count(row.under_replicated)} kind=${row.under_replicated ? "warn" : ""} />
            <${Figure} label=${t("Records/s")} value=${rate(row.rate)} />
            <${Figure} label=${t("Size")} value=${bytes(row.size_bytes)} />
          </div>
          <${Tabs} items=${tabs} current=${view} />
          <${View} answer=${data} cluster=${cluster} broker=${broker} may=${may} />`
      : null}
  </${Page}>`;
}
