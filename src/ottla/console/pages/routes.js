// The page of each address. The server has the same addresses (app.py, PAGE_PATHS).
const overview = () => import("./views/overview.js");
const topics = () => import("./views/topics.js");
const topic = () => import("./views/topic.js");
const groups = () => import("./views/groups.js");
const group = () => import("./views/group.js");
const transactions = () => import("./views/transactions.js");
const pipelines = () => import("./views/pipelines.js");
const pipeline = () => import("./views/pipeline.js");
const brokers = () => import("./views/brokers.js");
const broker = () => import("./views/broker.js");
const alerts = () => import("./views/alerts.js");
const reassignments = () => import("./views/reassignments.js");

export const ROUTES = [
  { path: "/", load: () => import("./views/clusters.js") },
  { path: "/clusters", load: () => import("./views/clusters.js") },
  { path: "/people", load: () => import("./views/people.js") },
  { path: "/audit", load: () => import("./views/audit.js") },
  { path: "/account", load: () => import("./views/account.js") },
  { path: "/c/{cluster}", load: overview },
  { path: "/c/{cluster}/topics", load: topics },
  { path: "/c/{cluster}/topics/{topic}", load: topic },
  { path: "/c/{cluster}/topics/{topic}/{view}", load: topic },
  { path: "/c/{cluster}/groups", load: groups },
  { path: "/c/{cluster}/groups/{group}", load: group },
  { path: "/c/{cluster}/groups/{group}/{view}", load: group },
  { path: "/c/{cluster}/transactions", load: transactions },
  { path: "/c/{cluster}/acls", load: () => import("./views/acls.js") },
  { path: "/c/{cluster}/users", load: () => import("./views/users.js") },
  { path: "/c/{cluster}/users/{view}", load: () => import("./views/users.js") },
  { path: "/c/{cluster}/quotas", load: () => import("./views/quotas.js") },
  { path: "/c/{cluster}/broker-settings", load: () => import("./views/broker-settings.js") },
  { path: "/c/{cluster}/pipelines", load: pipelines },
  { path: "/c/{cluster}/pipelines/{pipeline}", load: pipeline },
  { path: "/c/{cluster}/pipelines/{pipeline}/{view}", load: pipeline },
  { path: "/c/{cluster}/brokers", load: brokers },
  { path: "/c/{cluster}/brokers/{broker}", load: broker },
  { path: "/c/{cluster}/brokers/{broker}/{view}", load: broker },
  { path: "/c/{cluster}/reassignments", load: reassignments },
  { path: "/c/{cluster}/alerts", load: alerts },
  { path: "/c/{cluster}/alerts/{view}", load: alerts },
];

// The entries of the side bar.
export const NAVIGATION = [
  { path: "", title: "Overview", sign: "◎", needsCluster: true },
  { path: "/topics", title: "Topics", sign: "≡", needsCluster: true },
  { path: "/groups", title: "Groups", sign: "⁂", needsCluster: true },
  { path: "/transactions", title: "Transactions", sign: "⇄", needsCluster: true },
  { path: "/pipelines", title: "Pipelines", sign: "⇶", needsCluster: true },
  { path: "/brokers", title: "Brokers", sign: "▤", needsCluster: true },
  { path: "/reassignments", title: "Assignments", sign: "⇄", needsCluster: true },
  { path: "/alerts", title: "Alerts", sign: "!", needsCluster: true },
  { path: "/acls", title: "ACLs", sign: "✓", needsCluster: true, needsRole: "admin" },
  { path: "/users", title: "Users", sign: "⚇", needsCluster: true, needsRole: "admin" },
  { path: "/quotas", title: "Quotas", sign: "◔", needsCluster: true },
  { path: "/clusters", title: "Clusters", sign: "◫" },
  { path: "/people", title: "People", sign: "☺", isForAdmins: true },
  { path: "/audit", title: "Audit", sign: "✎", isForAdmins: true },
];
