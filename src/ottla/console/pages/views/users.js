// Users of the cluster: SCRAM credentials and delegation tokens.
import { path, put, remove } from "../core/api.js";
import { time } from "../core/format.js";
import { html, useMemo, useState } from "../core/html.js";
import { useLive } from "../core/live.js";
import { Link, useQuery } from "../core/router.js";
import { Counted, Table, useFiltered } from "../core/table.js";
import { t } from "../core/texts.js";
import { Badge, Button, Dialog, Empty, Field, Note, Page, Problem, Search, Tabs, TypeTheName, toast } from "../core/widgets.js";
import { Reason, reasonOf } from "./unavailable.js";

const MECHANISMS = ["SCRAM-SHA-512", "SCRAM-SHA-256"];

function PasswordDialog({ cluster, old, limits, onClose, onDone }) {
  const [user, setUser] = useState(old?.user ?? "");
  const [mechanism, setMechanism] = useState(old?.mechanism ?? MECHANISMS[0]);
  const [password, setPassword] = useState("");
  const [least, usual, most] = limits;
  const [iterations, setIterations] = useState(String(old?.iterations ?? usual));
  const isRight = /^\d+$/.test(iterations) && Number(iterations) >= least && Number(iterations) <= most;
  const send = async () => {
    await put(path`/api/clusters/${cluster}/users/${user}/credentials/${mechanism}`, { password, iterations: Number(iterations) });
    toast(t("{0} can log in with {1}", user, mechanism));
    onDone();
    onClose();
  };
  return html`<${Dialog} title=${old ? t("A new password for {0}", old.user) : t("Add a user")} submit=${t("Save")} isReady=${Boolean(user && password && isRight)} onSubmit=${send} onClose=${onClose}>
    ${old ? null : html`<${Field} label=${t("User")}><input name="user" value=${user} onInput=${(event) => setUser(event.target.value)} autocomplete="off" spellcheck=${false} autofocus /></${Field}>`}
    <${Field} label=${t("Password")} hint=${t("The console hashes the password and never sends it. Existing connections stay open.")}>
      <input name="password" type="password" value=${password} autocomplete="new-password" onInput=${(event) => setPassword(event.target.value)} /></${Field}>
    <div class="fields">
      <${Field} label=${t("Mechanism")}><select name="mechanism" value=${mechanism} disabled=${Boolean(old)} onChange=${(event) => setMechanism(event.target.value)}>
        ${MECHANISMS.map((each) => html`<option key=${each} value=${each} selected=${each === mechanism}>${each}</option>`)}</select></${Field}>
      <${Field} label=${t("Iterations")} hint=${t("{0} to {1}", least, most)}><input name="iterations" inputmode="numeric" value=${iterations} onInput=${(event) => setIterations(event.target.value)} /></${Field}>
    </div>
  </${Dialog}>`;
}

function Passwords({ cluster }) {
  const { data, error, reload } = useLive(path`/api/clusters/${cluster}/users`, ["metadata"], cluster);
  const [text, setText] = useQuery("q");
  const [asked, setAsked] = useState(null);
  const all = useMemo(() => (data?.users ?? []).flatMap((user) => user.credentials.map((each) => ({ user: user.user, ...each }))), [data]);
  const rows = useFiltered(all, text, (row) => `${row.user} ${row.mechanism}`);
  const reason = reasonOf(data?.unavailable, { since: "2.7", right: "Describe" });
  const columns = useMemo(() => [
    { key: "user", title: t("User"), sort: (row) => row.user, cell: (row) => html`<bdi>${row.user}</bdi>` },
    { key: "mechanism", title: t("Mechanism"), sort: (row) => row.mechanism, cell: (row) => html`<${Badge} kind="info">${row.mechanism}</${Badge}>` },
    { key: "iterations", title: t("Iterations"), isNumber: true, isOptional: false, sort: (row) => row.iterations, cell: (row) => row.iterations },
    { key: "see", title: t("See also"), isOptional: false, cell: (row) => html`<${Link} tabindex="-1" to=${`${path`/c/${cluster}/acls`}?principal=${encodeURIComponent(`User:${row.user}`)}`}>${t("ACLs")}</${Link}> · <${Link} tabindex="-1" to=${`${path`/c/${cluster}/quotas`}?user=${encodeURIComponent(row.user)}`}>${t("Quotas")}</${Link}>` },
    { key: "action", title: t("Action"), cell: (row) => html`<${Button} kind="small" onClick=${() => setAsked({ kind: "set", row })}>${t("New password")}</${Button}> <${Button} kind="small danger" onClick=${() => setAsked({ kind: "drop", row })}>${t("Delete")}</${Button}>` },
  ], [cluster]);
  const drop = async () => {
    await remove(path`/api/clusters/${cluster}/users/${asked.row.user}/credentials/${asked.row.mechanism}`);
    toast(t("Deleted: {0}", `${asked.row.user}, ${asked.row.mechanism}`));
    setAsked(null);
    reload();
  };
  return html`<${Problem} error=${error} /><${Reason} reason=${reason} />
    ${data && !data.is_all ? html`<${Note} kind="warn">${t("Not all users are shown.")}</${Note}>` : null}
    ${data
      ? html`<div class="bar">
          ${all.length ? html`<${Search} label=${t("Find users")} value=${text} onInput=${setText} /><${Counted} shown=${rows.length} all=${all.length} />` : null}
          <${Button} kind="primary" disabled=${Boolean(reason)} title=${reason} onClick=${() => setAsked({ kind: "set" })}>${t("Add a user")}</${Button}></div>`
      : null}
    ${data && !reason && !all.length ? html`<${Empty} title=${t("No users with a password")}>${t("Users with a SCRAM password appear here. Users of PLAIN, certificates, Kerberos and identity providers are stored elsewhere.")}</${Empty}>` : null}
    ${all.length ? html`<${Table} id="users" label=${t("Users")} columns=${columns} rows=${rows} rowKey=${(row) => `${row.mechanism} ${row.user}`} order="user" />` : null}
    ${asked?.kind === "set" ? html`<${PasswordDialog} cluster=${cluster} old=${asked.row} limits=${data.iterations} onClose=${() => setAsked(null)} onDone=${reload} />` : null}
    ${asked?.kind === "drop" ? html`<${TypeTheName} title=${t("Remove the password of {0}?", asked.row.user)} submit=${t("Delete")} name=${asked.row.user} onSubmit=${drop} onClose=${() => setAsked(null)}>
      <p>${t("{0} can no longer log in with {1}. Rules and quotas remain.", asked.row.user, asked.row.mechanism)}</p></${TypeTheName}>` : null}`;
}

function Tokens({ cluster }) {
  const { data, error, reload } = useLive(path`/api/clusters/${cluster}/delegation-tokens`, ["metadata"], cluster);
  const [text, setText] = useQuery("q");
  const [asked, setAsked] = useState(null);
  const all = data?.tokens ?? [];
  const rows = useFiltered(all, text, (row) => `${row.token_id} ${row.owner} ${row.requester}`);
  const reason = reasonOf(data?.unavailable, { since: "1.1", right: "Describe" });
  const columns = useMemo(() => [
    { key: "token", title: t("Token"), sort: (row) => row.token_id, cell: (row) => html`<span class="mono">${row.token_id}</span>` },
    { key: "owner", title: t("Owner"), sort: (row) => row.owner, cell: (row) => html`<bdi>${row.owner}</bdi>` },
    { key: "requester", title: t("Requested by"), isOptional: false, sort: (row) => row.requester, cell: (row) => html`<bdi>${row.requester}</bdi>` },
    { key: "renewers", title: t("Renewers"), isOptional: false, sort: (row) => row.renewers.join(" "), cell: (row) => html`<bdi>${row.renewers.join(", ") || "–"}</bdi>` },
    { key: "expiry", title: t("Expires"), sort: (row) => row.expiry_ms, cell: (row) => time(row.expiry_ms) },
    { key: "max", title: t("Max lifetime"), isOptional: false, sort: (row) => row.max_ms, cell: (row) => time(row.max_ms) },
    { key: "action", title: t("Action"), cell: (row) => html`<${Button} kind="small danger" onClick=${() => setAsked(row)}>${t("Expire")}</${Button}>` },
  ], []);
  const expire = async () => {
    await remove(path`/api/clusters/${cluster}/delegation-tokens/${asked.token_id}`);
    toast(t("Expired: {0}", asked.token_id));
    setAsked(null);
    reload();
  };
  return html`<${Problem} error=${error} /><${Reason} reason=${reason} />
    ${data && !data.is_all ? html`<${Note} kind="warn">${t("Not all tokens are shown.")}</${Note}>` : null}
    ${data && !reason && !all.length ? html`<${Empty} title=${t("No delegation tokens")}>${t("Tokens that the login of this console may describe appear here.")}</${Empty}>` : null}
    ${all.length
      ? html`<div class="bar"><${Search} label=${t("Find tokens")} value=${text} onInput=${setText} /><${Counted} shown=${rows.length} all=${all.length} /></div>
          <${Table} id="delegation-tokens" label=${t("Delegation tokens")} columns=${columns} rows=${rows} rowKey=${(row) => row.token_id} order="owner" />`
      : null}
    ${asked ? html`<${Dialog} title=${t("Expire the token {0}?", asked.token_id)} submit=${t("Expire")} kind="danger" onSubmit=${expire} onClose=${() => setAsked(null)}>
      <p>${t("The token can no longer be used to log in, and cannot be restored.")}</p></${Dialog}>` : null}`;
}

export const VIEWS = [
  { key: "passwords", title: "Passwords", View: Passwords },
  { key: "tokens", title: "Delegation tokens", View: Tokens },
];

export default function Users({ cluster, view = "passwords" }) {
  const { View } = VIEWS.find((each) => each.key === view) ?? VIEWS[0];
  const tabs = VIEWS.map(({ key, title }) => ({ key, text: t(title), to: path`/c/${cluster}/users` + (key === VIEWS[0].key ? "" : `/${key}`) }));
  return html`<${Page} title=${t("Users")} id="users"><${Tabs} items=${tabs} current=${view} /><${View} cluster=${cluster} /></${Page}>`;
}
