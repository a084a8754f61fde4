// The access rules of a cluster.
import { path } from "../core/api.js";
import { html, useMemo, useState } from "../core/html.js";
import { useLive } from "../core/live.js";
import { useQuery } from "../core/router.js";
import { Counted, Table, useFiltered } from "../core/table.js";
import { t } from "../core/texts.js";
import { Badge, Button, Empty, Note, Page, Problem, Search } from "../core/widgets.js";
import { AddRules, ExplainDialog, DeleteRules } from "./acl-dialogs.js";
import { keyOf, operationWord, patternWord, permissionWord, resourceWord } from "./acl-labels.js";
import { Reason, reasonOf } from "./unavailable.js";

const CHOICES_MAX = 200; // in a filter; the search finds all

function Filter({ name, label, rows, valueOf, wordOf = (value) => value }) {
  const [value, setValue] = useQuery(name);
  const values = useMemo(() => [...new Set(rows.map(valueOf))].sort().slice(0, CHOICES_MAX), [rows]);
  const shown = value && !values.includes(value) ? [value, ...values] : values;
  return html`<label><span class="hidden-text">${label}</span><select name=${name} value=${value} onChange=${(event) => setValue(event.target.value)}>
    <option value="">${label}</option>
    ${shown.map((each) => html`<option key=${each} value=${each} selected=${each === value}>${wordOf(each)}</option>`)}</select></label>`;
}

// A rule matches a name if it has the same name, the wildcard, or a prefix of it.
const isAbout = (rule, name) => (rule.pattern_type === "PREFIXED" ? name.startsWith(rule.name) : rule.name === name || rule.name === "*");

function useChosen(rows) {
  const [[principal], [type], [pattern], [operation], [permission], [host], [name]] = ["principal", "type", "pattern", "operation", "permission", "host", "name"].map((each) => useQuery(each));
  return useMemo(
    () => rows.filter((row) => (!principal || row.principal === principal) && (!type || row.resource_type === type) && (!pattern || row.pattern_type === pattern) &&
      (!operation || row.operation === operation) && (!permission || row.permission === permission) && (!host || row.host === host) && (!name || isAbout(row, name))),
    [rows, principal, type, pattern, operation, permission, host, name],
  );
}

const COLUMNS = () => [
  { key: "principal", title: t("Principal"), sort: (row) => row.principal, cell: (row) => html`<bdi>${row.principal}</bdi>` },
  { key: "permission", title: t("Is"), sort: (row) => row.permission, cell: (row) => html`<${Badge} kind=${row.permission === "ALLOW" ? "good" : "bad"}>${permissionWord(row.permission)}</${Badge}>` },
  { key: "operation", title: t("Operation"), sort: (row) => row.operation, cell: (row) => operationWord(row.operation) },
  { key: "resource", title: t("Resource"), sort: (row) => row.resource_type, cell: (row) => resourceWord(row.resource_type) },
  { key: "name", title: t("Name"), sort: (row) => row.name, cell: (row) => html`<bdi class="mono">${row.name}</bdi>` },
  { key: "pattern", title: t("The name is"), isOptional: false, sort: (row) => row.pattern_type, cell: (row) => patternWord(row.pattern_type) },
  { key: "host", title: t("Host"), isOptional: false, sort: (row) => row.host, cell: (row) => html`<span class="mono">${row.host}</span>` },
];

export default function Acls({ cluster }) {
  const { data, error, reload } = useLive(path`/api/clusters/${cluster}/acls`, ["metadata"], cluster);
  const [text, setText] = useQuery("q");
  const [name, setName] = useQuery("name");
  const [principal] = useQuery("principal");
  const [asked, setAsked] = useState(null);
  const [selected, setSelected] = useState(new Set());
  const all = data?.rules ?? [];
  const rows = useFiltered(useChosen(all), text, (row) => `${row.principal} ${row.name} ${row.host}`);
  const columns = useMemo(COLUMNS, []);
  const ticked = all.filter((row) => selected.has(keyOf(row)));
  const reason = reasonOf(data?.unavailable, { since: "1.0", right: "Describe" });
  const close = () => setAsked(null);
  const done = () => {
    setSelected(new Set());
    reload();
  };
  const actions = data
    ? html`<${Button} disabled=${Boolean(reason)} title=${reason} onClick=${() => setAsked("why")}>${t("Explain")}</${Button}>
        <${Button} kind="danger" disabled=${Boolean(reason) || !ticked.length} title=${reason ?? (ticked.length ? null : t("Select rules first"))} onClick=${() => setAsked("delete")}>${t("Delete")}${ticked.length ? ` (${ticked.length})` : ""}</${Button}>
        <${Button} kind="primary" disabled=${Boolean(reason)} title=${reason} onClick=${() => setAsked("add")}>${t("Add rules")}</${Button}>`
    : null;
  return html`<${Page} title=${t("ACLs")} id="acls" actions=${actions}>
    <${Problem} error=${error} />
    <${Reason} reason=${reason} />
    ${data && !data.is_all ? html`<${Note} kind="warn">${t("Not all rules are shown.")}</${Note}>` : null}
    ${data && !reason && !all.length
      ? html`<${Empty} title=${t("No rules yet")}>${t("Without rules, only super.users have access, unless allow.everyone.if.no.acl.found is true.")}</${Empty}>`
      : null}
    ${all.length
      ? html`<div class="bar">
            <${Search} label=${t("Find rules")} value=${text} onInput=${setText} />
            <${Filter} name="principal" label=${t("All principals")} rows=${all} valueOf=${(row) => row.principal} />
            <${Filter} name="type" label=${t("All resources")} rows=${all} valueOf=${(row) => row.resource_type} wordOf=${resourceWord} />
            <${Filter} name="pattern" label=${t("All kinds of names")} rows=${all} valueOf=${(row) => row.pattern_type} wordOf=${patternWord} />
            <${Filter} name="operation" label=${t("All operations")} rows=${all} valueOf=${(row) => row.operation} wordOf=${operationWord} />
            <${Filter} name="permission" label=${t("Allowed and denied")} rows=${all} valueOf=${(row) => row.permission} wordOf=${permissionWord} />
            <${Filter} name="host" label=${t("All hosts")} rows=${all} valueOf=${(row) => row.host} />
            <label><span class="hidden-text">${t("Resource name contains")}</span><input name="name" value=${name} placeholder=${t("Resource name contains")} onInput=${(event) => setName(event.target.value)} spellcheck=${false} autocomplete="off" /></label>
            <${Counted} shown=${rows.length} all=${all.length} />
          </div>
          <${Table} id="acls" label=${t("ACLs")} columns=${columns} rows=${rows} rowKey=${keyOf} order="principal" selected=${selected} onSelect=${setSelected} />`
      : null}
    ${asked === "add" ? html`<${AddRules} cluster=${cluster} answer=${data} onClose=${close} onDone=${done} />` : null}
    ${asked === "delete" ? html`<${DeleteRules} cluster=${cluster} rules=${ticked} onClose=${close} onDone=${done} />` : null}
    ${asked === "why" ? html`<${ExplainDialog} cluster=${cluster} answer=${data} principal=${principal} onClose=${close} />` : null}
  </${Page}>`;
}
