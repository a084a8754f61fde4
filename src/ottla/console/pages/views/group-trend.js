// How a group did in the last hour or day, as plots.
import { path } from "../core/api.js";
import { html, useMemo } from "../core/html.js";
import { useLive } from "../core/live.js";
import { Plot } from "../core/plot.js";
import { useQuery } from "../core/router.js";
import { t } from "../core/texts.js";
import { Empty, Problem } from "../core/widgets.js";

const HOURS = ["1", "24"];

export function Trend({ cluster, group }) {
  const [hours, setHours] = useQuery("hours", "1");
  const { data, error } = useLive(`${path`/api/clusters/${cluster}/groups/${group}/history`}?hours=${encodeURIComponent(hours)}`, ["history"], cluster);
  const plots = useMemo(() => (data ? [
    { title: t("Lag in records"), columns: [data.at_ms, data.lag], series: t("records"), colour: "--plot-3" },
    { title: t("Lag in seconds"), columns: [data.at_ms, data.lag_ms.map((ms) => (ms == null ? null : ms / 1000))], series: t("seconds"), colour: "--plot-1" },
    { title: t("Consumed records a second"), columns: [data.at_ms, data.rate], series: t("records a second"), colour: "--plot-2" },
  ] : []), [data]);
  return html`<${Problem} error=${error} />
    <div class="bar"><label><span class="hidden-text">${t("Period")}</span><select name="hours" value=${hours} onChange=${(event) => setHours(event.target.value)}>
      ${HOURS.map((each) => html`<option key=${each} value=${each} selected=${each === hours}>${t("{0} h", each)}</option>`)}</select></label></div>
    ${data && data.at_ms.length < 2
      ? html`<${Empty} title=${t("Nothing to draw yet")}>${t("The first points come within a minute; the last day is kept, also when the console is restarted.")}</${Empty}>`
      : html`<section class="cards">${plots.map((each) => html`<div class="card" key=${each.title}><h2>${each.title}</h2>
          <${Plot} label=${each.title} columns=${each.columns} series=${[{ title: each.series, colour: each.colour }]} /></div>`)}</section>`}`;
}
