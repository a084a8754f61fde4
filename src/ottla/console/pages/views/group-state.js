// The state of a group as a coloured word.
import { html } from "../core/html.js";
import { t } from "../core/texts.js";
import { Badge } from "../core/widgets.js";

const KINDS = { Stable: "good", Empty: "neutral", Dead: "bad" };

export const stateBadge = (state) => html`<${Badge} kind=${KINDS[state] ?? "warn"}>${words(state)}</${Badge}>`;

function words(state) {
  switch (state) {
    case "Stable": return t("Stable");
    case "Empty": return t("Empty group");
    case "Dead": return t("Dead");
    case "PreparingRebalance": return t("Preparing rebalance");
    case "CompletingRebalance": return t("Completing rebalance");
    case "Assigning": return t("Assigning");
    case "Reconciling": return t("Reconciling");
    default: return state || t("unknown");
  }
}
