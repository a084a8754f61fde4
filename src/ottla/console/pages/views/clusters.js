// The clusters of this console: add, test, change, remove.
import { path, post, put, remove } from "../core/api.js";
import { count } from "../core/format.js";
import { html, useState } from "../core/html.js";
import { Link } from "../core/router.js";
import { t } from "../core/texts.js";
import { Badge, Button, Dialog, Empty, Field, Note, Page, TypeTheName, toast } from "../core/widgets.js";
import { MetricsDialog } from "./metrics-dialog.js";

function ClusterDialog({ old, onClose, onDone }) {
  const [name, setName] = useState(old?.name ?? "");
  const [bootstrap, setBootstrap] = useState(old?.bootstrap ?? "");
  const [properties, setProperties] = useState(old?.properties ?? "");
  const [tested, setTested] = useState(null);
  const test = async () => {
    setTested({ kind: "info", text: t("Connecting") });
    try {
      const found = await post("/api/cluster-test", { name: name || "test", bootstrap, properties });
      setTested({ kind: "good", text: t("Reached: cluster {0} with {1} brokers", found.cluster_id, found.brokers) });
    } catch (problem) {
      setTested({ kind: "bad", text: problem.message });
    }
  };
  const send = async () => {
    if (old) await put(path`/api/clusters/${old.name}`, { bootstrap, properties });
    else await post("/api/clusters", { name, bootstrap, properties });
    toast(t("Cluster {0} saved", name));
    onDone();
    onClose();
  };
  return html`<${Dialog} title=${old ? t("Cluster {0}", old.name) : t("Add cluster")} submit=${t("Save")} isReady=${name && bootstrap} onSubmit=${send} onClose=${onClose}>
    ${old ? null : html`<${Field} label=${t("Name")}><input name="name" value=${name} onInput=${(event) => setName(event.target.value)} autocomplete="off" spellcheck="false" autofocus /></${Field}>`}
    <${Field} label=${t("Bootstrap servers")} hint=${t("host:port, separated by commas")}>
      <input name="bootstrap" value=${bootstrap} onInput=${(event) => setBootstrap(event.target.value)} autocomplete="off" spellcheck="false" /></${Field}>
    <${Field} label=${t("Properties of the client")} hint=${t("For TLS and logins, as in a file for --command-config. Passwords are not shown again.")}>
      <textarea name="properties" value=${properties} onInput=${(event) => setProperties(event.target.value)} spellcheck="false"
        placeholder="security.protocol=SASL_SSL"></textarea></${Field}>
    <div class="bar"><${Button} onClick=${test} disabled=${!bootstrap}>${t("Test")}</${Button}></div>
    ${tested ? html`<${Note} kind=${tested.kind}>${tested.text}</${Note}>` : null}
  </${Dialog}>`;
}

export default function Clusters({ clusters, session, reloadClusters }) {
  const [asked, setAsked] = useState(null);
  const close = () => setAsked(null);
  const forget = async () => {
    await remove(path`/api/clusters/${asked.cluster.name}`);
    toast(t("Cluster {0} forgotten", asked.cluster.name));
    reloadClusters();
    close();
  };
  const add = session.is_admin ? html`<${Button} kind="primary" onClick=${() => setAsked({ kind: "add" })}>${t("Add cluster")}</${Button}>` : null;
  return html`<${Page} title=${t("Clusters")} id="clusters" actions=${add}>
    ${clusters.length ? null : html`<${Empty} title=${t("No clusters")}>${t("Add a cluster to start.")}</${Empty}>`}
    <div class="cards">
      ${clusters.map((cluster) => html`<div class="card" key=${cluster.name}>
        <h2><${Link} to=${path`/c/${cluster.name}`}><bdi>${cluster.name}</bdi></${Link}>
          ${cluster.problem
            ? html`<${Badge} kind="bad">${t("unreachable")}</${Badge}>`
            : html`<${Badge} kind="good">${t("{0} brokers", count(cluster.brokers))}</${Badge}>`}</h2>
        <p class="mono">${cluster.bootstrap}</p>
        ${cluster.problem ? html`<p class="muted">${cluster.problem}</p>` : html`<p class="muted">${cluster.cluster_id ?? ""}</p>`}
        ${cluster.role === "admin" ? html`<div class="bar"><${Button} onClick=${() => setAsked({ kind: "metrics", cluster })}>${t("Metrics")}</${Button}></div>` : null}
        ${session.is_admin && cluster.is_stored
          ? html`<div class="bar"><${Button} onClick=${() => setAsked({ kind: "change", cluster })}>${t("Change")}</${Button}
              ><${Button} kind="danger" onClick=${() => setAsked({ kind: "forget", cluster })}>${t("Forget")}</${Button}></div>`
          : cluster.is_stored ? null : html`<p class="muted">${t("Configured on the command line.")}</p>`}
      </div>`)}
    </div>
    ${asked?.kind === "add" ? html`<${ClusterDialog} onClose=${close} onDone=${reloadClusters} />` : null}
    ${asked?.kind === "change" ? html`<${ClusterDialog} old=${asked.cluster} onClose=${close} onDone=${reloadClusters} />` : null}
    ${asked?.kind === "metrics" ? html`<${MetricsDialog} cluster=${asked.cluster.name} onClose=${close} />` : null}
    ${asked?.kind === "forget"
      ? html`<${TypeTheName} title=${t("Forget cluster {0}?", asked.cluster.name)} submit=${t("Forget")} name=${asked.cluster.name} onSubmit=${forget} onClose=${close}>
          <p>${t("The console removes its connection settings. The cluster itself does not change.")}</p></${TypeTheName}>`
      : null}
  </${Page}>`;
}
