// Labels for access rules.
import { t } from "../core/texts.js";

export const RESOURCES = ["TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER"];
export const CLUSTER_NAME = "kafka-cluster";

export function resourceWord(type) {
  const words = {
    TOPIC: t("Topic"), GROUP: t("Group"), CLUSTER: t("Cluster"), TRANSACTIONAL_ID: t("Transactional id"),
    DELEGATION_TOKEN: t("Delegation token"), USER: t("User"),
  };
  return words[type] ?? type;
}

export const patternWord = (type) => (type === "PREFIXED" ? t("name prefix") : type === "LITERAL" ? t("literal name") : type);
export const permissionWord = (permission) => (permission === "ALLOW" ? t("allowed") : t("denied"));

// DESCRIBE_CONFIGS is DescribeConfigs on command lines and in Kafka's documentation.
export const operationWord = (operation) => operation.split("_").map((part) => part[0] + part.slice(1).toLowerCase()).join("");

function about({ resource_type: type, name, pattern_type: pattern }) {
  if (type === "CLUSTER") return t("the cluster");
  if (pattern === "PREFIXED") return t("{0} that begins with {1}", resourceWord(type), name);
  return name === "*" ? t("{0}: all", resourceWord(type)) : `${resourceWord(type)} ${name}`;
}

const from = (host) => (host && host !== "*" ? ` ${t("from {0}", host)}` : "");

export function ruleText(rule) {
  const words = [rule.principal, operationWord(rule.operation), about(rule)];
  return (rule.permission === "ALLOW" ? t("{0} may {1}: {2}", ...words) : t("{0} may not {1}: {2}", ...words)) + from(rule.host);
}

export function effectText(effect) {
  const words = [effect.principal, operationWord(effect.operation), about({ ...effect, pattern_type: "LITERAL" })];
  return (effect.is_allowed ? t("{0} may then {1}: {2}", ...words) : t("{0} may no longer {1}: {2}", ...words)) + from(effect.host);
}

export const keyOf = (rule) =>
  `${rule.permission} ${rule.operation} ${rule.resource_type} ${rule.pattern_type} ${JSON.stringify([rule.principal, rule.host, rule.name])}`;
