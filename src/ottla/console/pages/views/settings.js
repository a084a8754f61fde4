// The settings of a topic or broker; dynamic settings can be changed.
import { patch } from "../core/api.js";
import { html, useMemo, useState } from "../core/html.js";
import { useLive } from "../core/live.js";
import { useQuery } from "../core/router.js";
import { Counted, Table, useFiltered } from "../core/table.js";
import { t } from "../core/texts.js";
import { Badge, Button, Check, Dialog, Field, Problem, Search, toast } from "../core/widgets.js";

const SOURCES = {
  DYNAMIC_TOPIC_CONFIG: ["info", () => t("this topic")],
  DYNAMIC_BROKER_CONFIG: ["info", () => t("this broker, dynamic")],
  DYNAMIC_DEFAULT_BROKER_CONFIG: ["info", () => t("all brokers, dynamic")],
  STATIC_BROKER_CONFIG: ["warn", () => t("server.properties")],
  DEFAULT_CONFIG: ["neutral", () => t("default")],
};

const REMOVABLE = ["DYNAMIC_TOPIC_CONFIG", "DYNAMIC_BROKER_CONFIG"];

// `isSet`: there is a value that can be removed; `suggested`: the initial text of the field without one.
export function ChangeSetting({ address, setting, label, isSet, canRepeat, suggested, onClose, onDone, children }) {
  const [value, setValue] = useState(setting.is_sensitive ? "" : setting.value ?? suggested ?? "");
  const send = async (body) => {
    await patch(address, { ...body, expected: { [setting.name]: setting.value } });
    toast(t("{0} changed", setting.name));
    onDone();
    onClose();
  };
  const back = async () => {
    try {
      await send({ remove: [setting.name] });
    } catch (problem) {
      toast(problem.message, "bad");
    }
  };
  return html`<${Dialog} title=${setting.name} submit=${t("Save")} isReady=${canRepeat || value !== (setting.value ?? "")}
      onSubmit=${() => send({ set: { [setting.name]: value } })} onClose=${onClose}>
    <${Field} label=${label}>
      <input name="value" value=${value} onInput=${(event) => setValue(event.target.value)} autocomplete="off" spellcheck="false" autofocus />
    </${Field}>
    ${children}
    ${isSet ? html`<div><${Button} onClick=${back}>${t("Restore the default")}</${Button}></div>` : null}
  </${Dialog}>`;
}

export function Settings({ address, cluster, isEditable }) {
  const { data, error, reload } = useLive(address, ["metadata"], cluster);
  const [text, setText] = useQuery("q");
  const [own, setOwn] = useQuery("own");
  const [changing, setChanging] = useState(null);
  const all = data?.settings ?? [];
  const visible = useMemo(() => (own ? all.filter((each) => !each.is_default) : all), [data, own]);
  const rows = useFiltered(visible, text, (row) => `${row.name} ${row.value}`);
  const columns = [
    { key: "name", title: t("Setting"), sort: (row) => row.name, cell: (row) => html`<span class="mono">${row.name}</span>` },
    { key: "value", title: t("Value"), sort: (row) => row.value ?? "", cell: (row) => html`<span class="mono">${row.value === "" ? "" : row.value ?? "–"}</span>` },
    {
      key: "source", title: t("From"), sort: (row) => row.source,
      cell: (row) => {
        const [kind, words] = SOURCES[row.source] ?? ["neutral", () => row.source];
        return html`<${Badge} kind=${kind}>${words()}</${Badge}>`;
      },
    },
    ...(isEditable
      ? [{ key: "change", title: "", cell: (row) => row.is_read_only ? null : html`<${Button} kind="small" tabindex="-1" onClick=${() => setChanging(row)}>${t("Change")}</${Button}>` }]
      : []),
  ];
  return html`
    <${Problem} error=${error} />
    ${data
      ? html`<div class="bar">
            <${Search} label=${t("Find settings")} value=${text} onInput=${setText} />
            <${Counted} shown=${rows.length} all=${all.length} />
            <${Check} label=${t("Hide defaults")} checked=${Boolean(own)} onChange=${(on) => setOwn(on ? "1" : "")} />
          </div>
          <${Table} id="settings" label=${t("Settings")} columns=${columns} rows=${rows} rowKey=${(row) => row.name} order="name"
            onOpen=${isEditable ? (row) => !row.is_read_only && setChanging(row) : null} />`
      : null}
    ${changing ? html`<${ChangeSetting} address=${address} setting=${changing} label=${t("Value")} isSet=${REMOVABLE.includes(changing.source)}
      onClose=${() => setChanging(null)} onDone=${reload} />` : null}`;
}
