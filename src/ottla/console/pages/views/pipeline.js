// One pipeline: state, figures, dead letters, stop.
import { path, post } from "../core/api.js";
import { age, bytes, count, rate, span, time } from "../core/format.js";
import { html, useState } from "../core/html.js";
import { useLive } from "../core/live.js";
import { Link } from "../core/router.js";
import { t } from "../core/texts.js";
import { Button, Dialog, Empty, Figure, Note, Page, Problem, Tabs, toast } from "../core/widgets.js";
import { DeadLetters } from "./dead-letters.js";
import { Course, Places, Queries, Steps } from "./pipeline-figures.js";
import { stateBadge, usePolling } from "./pipeline-state.js";

const REPORTS = ["png", "svg", "html"];

function Report({ address }) {
  return html`<h2>${t("Report")}</h2>
    <div class="bar"><span class="counted">${t("A report of this run with all plots, as ottla pipeline report creates it:")}</span>
      ${REPORTS.map((form) => html`<a class="button" key=${form} href=${`${address}/report?format=${form}`} download>${form.toUpperCase()}</a>`)}</div>`;
}

function Run({ data, cluster, name, address }) {
  const hasBatch = data.queries.some((query) => query.batches);
  return html`${data.queries.length ? html`<${Queries} rows=${data.queries} />` : null}
    <${Steps} queries=${data.queries} />
    <${Course} cluster=${cluster} name=${name} />
    <${Places} cluster=${cluster} places=${data.places} />
    ${hasBatch ? html`<${Report} address=${address} />` : null}`;
}

// The views of a pipeline: last part of the address, title, component.
export const VIEWS = [
  { key: "run", title: "Run", View: Run },
  { key: "letters", title: "Dead letters", View: DeadLetters },
];

export default function Pipeline({ cluster, pipeline: name, view = "run", may, session }) {
  const address = path`/api/clusters/${cluster}/pipelines/${name}`;
  const { data, error, reload } = useLive(address);
  usePolling(reload);
  const [isAsked, setAsked] = useState(false);
  const row = data?.pipeline;
  const { View } = VIEWS.find((each) => each.key === view) ?? VIEWS[0];
  const tabs = VIEWS.map(({ key, title }) => ({ key, text: t(title), to: path`/c/${cluster}/pipelines/${name}` + (key === VIEWS[0].key ? "" : `/${key}`) }));
  const stop = async () => {
    await post(`${address}/stops`);
    toast(t("{0} stops after the current batch", name));
    setAsked(false);
    reload();
  };
  const actions = row && may("operator")
    ? html`<${Button} kind="danger" disabled=${!row.is_live} title=${row.is_live ? null : t("Not running")} onClick=${() => setAsked(true)}>${t("Stop")}</${Button}>`
    : null;
  const all = html`<${Link} to=${path`/c/${cluster}/pipelines`}>${t("Pipelines")}</${Link}>`;
  return html`<${Page} title=${name} id="pipeline" crumbs=${all} actions=${actions}>
    ${error?.status === 404 && !data
      ? html`<${Empty} title=${t("There is no pipeline {0}", name)}>${all}</${Empty}>`
      : html`<${Problem} error=${error} />`}
    ${row
      ? html`${row.reason ? html`<${Note} kind=${row.state === "failed" || row.state === "killed" ? "bad" : "info"}>${row.reason}</${Note}>` : null}
          ${row.restarts ? html`<${Note} kind="warn">${t("Restarted {0} times, last after: {1}", row.restarts, row.last_failure)}</${Note}>` : null}
          <div class="figures five">
            <${Figure} label=${t("State")} value=${stateBadge(row.state)} />
            <${Figure} label=${t("Rows read")} value=${count(row.rows)} />
            <${Figure} label=${t("Rows in/s")} value=${rate(row.rows_in_per_s)} />
            <${Figure} label=${t("Rows done/s")} value=${rate(row.rows_done_per_s)} />
            <${Figure} label=${t("Lag")} value=${count(row.lag)} unit=${t("records")} />
            <${Figure} label=${t("Batch time")} value=${span(row.batch_ms)} />
            <${Figure} label=${t("State size")} value=${bytes(row.state_bytes)} />
            <${Figure} label=${t("Dead letters")} value=${count(row.dead)} kind=${row.dead ? "warn" : ""} />
            <${Figure} label=${t("Started")} value=${row.started_ms ? t("{0} ago", age(data.at_ms - row.started_ms)) : "–"} title=${time(row.started_ms)} />
            <${Figure} label=${t("Host")} value=${row.host || "–"} title=${row.file} />
          </div>
          <${Tabs} items=${tabs} current=${view} />
          <${View} data=${data} cluster=${cluster} name=${name} address=${address} may=${may} session=${session} />`
      : null}
    ${isAsked
      ? html`<${Dialog} title=${t("Stop pipeline {0}?", name)} submit=${t("Stop")} kind="danger" onSubmit=${stop} onClose=${() => setAsked(false)}>
          <p>${t("It finishes the current batch first. The next run continues from there.")}</p></${Dialog}>`
      : null}
  </${Page}>`;
}
