// Cluster-wide dynamic settings, and the brokers with their own values, which take precedence.
import { path } from "../core/api.js";
import { html, useMemo, useState } from "../core/html.js";
import { useLive } from "../core/live.js";
import { Link, useQuery } from "../core/router.js";
import { Counted, Table, useFiltered } from "../core/table.js";
import { t } from "../core/texts.js";
import { Button, Check, Note, Page, Problem, Search } from "../core/widgets.js";
import { ChangeSetting } from "./settings.js";

export default function BrokerSettings({ cluster, may }) {
  const address = path`/api/clusters/${cluster}/broker-settings`;
  const { data, error, reload } = useLive(address, ["metadata"], cluster);
  const [text, setText] = useQuery("q");
  const [own, setOwn] = useQuery("own");
  const [changing, setChanging] = useState(null);
  const all = data?.settings ?? [];
  const visible = useMemo(() => (own ? all.filter((each) => each.is_set || each.own.length) : all), [data, own]);
  const rows = useFiltered(visible, text, (row) => `${row.name} ${row.value ?? ""}`);
  const isEditable = may("admin");
  const columns = useMemo(() => [
    { key: "name", title: t("Setting"), sort: (row) => row.name, cell: (row) => html`<span class="mono">${row.name}</span>` },
    { key: "value", title: t("All brokers"), sort: (row) => row.value, cell: (row) => html`<span class="mono">${row.is_set ? row.value : "–"}</span>` },
    { key: "force", title: t("Effective"), isOptional: false, sort: (row) => row.in_force ?? "", cell: (row) => html`<span class="mono">${row.in_force ?? "–"}</span>` },
    { key: "own", title: t("Brokers with an own value"), isOptional: false, sort: (row) => row.own.length, cell: (row) => (row.own.length ? row.own.map((broker) => html`<${Link} key=${broker} tabindex="-1" to=${`${path`/c/${cluster}/brokers/${broker}/settings`}?q=${encodeURIComponent(row.name)}`}>${broker}</${Link}> `) : "–") },
    ...(isEditable ? [{ key: "change", title: t("Action"), cell: (row) => html`<${Button} kind="small" tabindex="-1" onClick=${() => setChanging(row)}>${t("Change")}</${Button}>` }] : []),
  ], [cluster, isEditable]);
  return html`<${Page} title=${t("Settings of all brokers")} id="broker-settings" crumbs=${html`<${Link} to=${path`/c/${cluster}/brokers`}>${t("Brokers")}</${Link}>`}>
    <${Problem} error=${error} />
    ${data
      ? html`<div class="bar"><${Search} label=${t("Find settings")} value=${text} onInput=${setText} /><${Counted} shown=${rows.length} all=${all.length} />
            <${Check} label=${t("Only explicitly set")} checked=${Boolean(own)} onChange=${(on) => setOwn(on ? "1" : "")} /></div>
          <${Table} id="broker-settings" label=${t("Settings of all brokers")} columns=${columns} rows=${rows} rowKey=${(row) => row.name} order="name" onOpen=${isEditable ? setChanging : null} />`
      : null}
    ${changing ? html`<${ChangeSetting} address=${address} setting=${changing} label=${t("Value for all brokers")} isSet=${changing.is_set}
      canRepeat=${!changing.is_set} suggested=${changing.in_force} onClose=${() => setChanging(null)} onDone=${reload}>
      ${changing.own.length ? html`<${Note} kind="warn">${t("These brokers keep their own value: {0}", changing.own.join(", "))}</${Note}>` : null}
    </${ChangeSetting}>` : null}
  </${Page}>`;
}
