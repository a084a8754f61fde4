// Shared by the pages about pipelines: the badge of the state, and polling.
import { html, useEffect } from "../core/html.js";
import { t } from "../core/texts.js";
import { Badge } from "../core/widgets.js";

const PERIOD_MS = 2000;
const KINDS = { running: "good", stopped: "neutral", failed: "bad", killed: "bad", unreadable: "bad" };

export const stateBadge = (state) => html`<${Badge} kind=${KINDS[state] ?? "warn"}>${stateLabel(state)}</${Badge}>`;

function stateLabel(state) {
  switch (state) {
    case "starting": return t("starting");
    case "running": return t("running");
    case "restarting": return t("restarting");
    case "stopping": return t("stopping");
    case "stopped": return t("stopped");
    case "failed": return t("failed");
    case "killed": return t("killed");
    case "unreadable": return t("unreadable");
    default: return state;
  }
}

// Runs only write files, so there are no events: pages poll.
export function usePolling(reload) {
  useEffect(() => {
    const timer = setInterval(() => document.hidden || reload(), PERIOD_MS);
    return () => clearInterval(timer);
  }, []);
}
