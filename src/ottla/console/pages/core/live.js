// What is shown stays true: useLive(path, parts) gives what the API says and asks again when the server tells that one of
// these parts of the cluster has become newer. Tabs that nobody sees do not ask.
import { call } from "./api.js";
import { useEffect, useState } from "./html.js";

const PERIOD_MS = 2000; // without a SharedWorker: how often the state is asked for
const GAP_MS = 1000; // between two questions for the same
const listeners = new Set();
let state = { clusters: {}, now_ms: Date.now(), at: Date.now(), isLost: false };
let port = null;

function hear(message) {
  state = message.kind === "news" ? { ...message, isLost: false } : { ...state, isLost: true };
  for (const listener of [...listeners]) listener();
}

// A policy that knows one address: trusted types want to know where scripts come from.
const policy = globalThis.trustedTypes?.createPolicy("ottla", {
  createScriptURL: (address) => {
    if (address !== "/static/core/live-worker.js") throw new TypeError(address);
    return address;
  },
});

export function start() {
  const address = "/static/core/live-worker.js";
  if (globalThis.SharedWorker) {
    const worker = new SharedWorker(policy ? policy.createScriptURL(address) : address, { name: "ottla" });
    port = worker.port;
    port.onmessage = ({ data }) => hear(data);
    port.postMessage("hello");
    addEventListener("pagehide", () => port.postMessage("bye"));
    addEventListener("pageshow", (event) => event.persisted && location.reload());
  } else {
    setInterval(poll, PERIOD_MS);
    poll();
  }
}

// After signing in or out the stream of before belongs to somebody else.
export const again = () => port?.postMessage("again");

async function poll() {
  if (document.hidden) return;
  try {
    hear({ kind: "news", at: Date.now(), ...(await call("GET", "/api/ages")) });
  } catch {
    hear({ kind: "lost" });
  }
}

export const serverNow = () => state.now_ms + (Date.now() - state.at);

function useNews() {
  const [, setTick] = useState(0);
  useEffect(() => {
    const listener = () => setTick((tick) => tick + 1);
    listeners.add(listener);
    return () => listeners.delete(listener);
  }, []);
  return state;
}

// How fresh a cluster is: the age of its oldest part, why a part could not be read, whether the console answers.
export function useFreshness(cluster) {
  const { clusters, isLost } = useNews();
  const [, setTick] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => setTick((tick) => tick + 1), 1000);
    return () => clearInterval(timer);
  }, []);
  const parts = Object.values(clusters[cluster] ?? {});
  const metadata = clusters[cluster]?.metadata;
  const problem = metadata?.[2] ?? parts.find((part) => part[2])?.[2] ?? null;
  const readMs = metadata?.[1] ?? 0;
  return { isLost, problem, isKnown: readMs > 0, ageMs: readMs ? Math.max(0, serverNow() - readMs) : null };
}

const versionOf = (cluster, parts) =>
  parts.map((part) => state.clusters[cluster]?.[part]?.[0] ?? 0).join(".");

export function useLive(path, parts = [], cluster = null) {
  const [shown, setShown] = useState({ path: null, data: null, error: null });
  const [wish, setWish] = useState(0); // how often somebody asked for it by hand
  useEffect(() => {
    if (!path) return undefined;
    let isOver = false;
    let seen = null;
    let askedAt = 0;
    let timer = null;
    const ask = async () => {
      timer = null;
      askedAt = Date.now();
      seen = versionOf(cluster, parts);
      try {
        const data = await call("GET", path);
        if (!isOver) setShown({ path, data, error: null });
      } catch (error) {
        if (!isOver) setShown((before) => ({ path, data: before.path === path ? before.data : null, error }));
      }
    };
    const look = () => {
      if (timer || document.hidden || versionOf(cluster, parts) === seen) return;
      timer = setTimeout(ask, Math.max(0, askedAt + GAP_MS - Date.now()));
    };
    ask();
    listeners.add(look);
    document.addEventListener("visibilitychange", look);
    return () => {
      isOver = true;
      clearTimeout(timer);
      listeners.delete(look);
      document.removeEventListener("visibilitychange", look);
    };
  }, [path, wish]);
  const isCurrent = shown.path === path;
  return {
    data: isCurrent ? shown.data : null,
    error: isCurrent ? shown.error : null,
    reload: () => setWish((number) => number + 1),
  };
}
