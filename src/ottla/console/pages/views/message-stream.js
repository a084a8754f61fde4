// Sources of message rows: pages, a live tail, a search. Each hook returns { rows, ... }.
import { ApiError, get } from "../core/api.js";
import { useEffect, useRef, useState } from "../core/html.js";

const TAIL_MS = 400; // between two polls; hidden tabs do not poll
const TAIL_ROWS = 5000; // older ones are dropped
const HITS = 10_000;

export const rowKey = (row) => `${row.partition}:${row.offset}`;

export function usePages(address, isOn) {
  const [state, setState] = useState({ rows: [], cursor: "", hasMore: false, unread: [], error: null, isBusy: true });
  const [reloads, setReloads] = useState(0);
  const turn = useRef(0);
  const load = async (cursor, before) => {
    const ownTurn = ++turn.current;
    setState((old) => ({ ...old, isBusy: true, error: null }));
    try {
      const page = await get(cursor ? `${address}&cursor=${cursor}` : address);
      if (ownTurn !== turn.current) return;
      setState({ rows: [...before, ...page.messages], cursor: page.cursor, hasMore: page.has_more, unread: page.unread, error: null, isBusy: false });
    } catch (error) {
      if (ownTurn === turn.current) setState((old) => ({ ...old, rows: before, error, isBusy: false }));
    }
  };
  useEffect(() => {
    if (isOn) load("", []);
    return () => { turn.current += 1; };
  }, [address, isOn, reloads]);
  return { ...state, more: () => load(state.cursor, state.rows), reload: () => setReloads((number) => number + 1) };
}

export function useTail(address, isOn, isPaused) {
  const [state, setState] = useState({ rows: [], unread: [], error: null, perSecond: 0, isBusy: true });
  const cursor = useRef("");
  useEffect(() => {
    cursor.current = "";
    setState({ rows: [], unread: [], error: null, perSecond: 0, isBusy: true });
  }, [address, isOn]);
  useEffect(() => {
    if (!isOn || isPaused) return undefined;
    let isOver = false;
    let timer = null;
    let lookedAt = performance.now();
    const look = async () => {
      let isFull = false;
      if (!document.hidden || !cursor.current) {
        try {
          const page = await get(`${address}&limit=1000&bytes=512&cursor=${cursor.current}`);
          if (isOver) return;
          const now = performance.now();
          const perSecond = Math.round(page.messages.length / Math.max(0.05, (now - lookedAt) / 1000));
          lookedAt = now;
          cursor.current = page.cursor;
          isFull = page.has_more;
          setState((old) => ({
            rows: page.messages.length ? [...page.messages.reverse(), ...old.rows].slice(0, TAIL_ROWS) : old.rows,
            unread: page.unread, error: null, perSecond, isBusy: false,
          }));
        } catch (error) {
          if (isOver) return;
          setState((old) => ({ ...old, error }));
        }
      }
      timer = setTimeout(look, isFull ? 100 : TAIL_MS);
    };
    look();
    return () => { isOver = true; clearTimeout(timer); };
  }, [address, isOn, isPaused]);
  return state;
}

// A stream of JSON lines; aborting the request also stops the search on the server.
export function useSearch(address, isOn) {
  const [state, setState] = useState({ rows: [], progress: null, end: null, error: null, isRunning: false, isStopped: false });
  const [reloads, setReloads] = useState(0);
  const running = useRef(null);
  useEffect(() => {
    if (!isOn) return undefined;
    const controller = new AbortController();
    running.current = controller;
    let waiting = { rows: [], progress: null, end: null, error: null, isRunning: true, isStopped: false };
    let frame = null;
    const show = () => {
      frame = null;
      setState({ ...waiting, rows: [...waiting.rows] });
    };
    const scheduleShow = () => { frame ??= requestAnimationFrame(show); };
    const receiveLine = (line) => {
      const event = JSON.parse(line);
      if (event.hit && waiting.rows.length < HITS) waiting.rows.push(event.hit);
      if (event.progress) waiting.progress = event.progress;
      if (event.end) waiting = { ...waiting, end: event.end, progress: event.end, isRunning: false };
      if (event.error) waiting = { ...waiting, error: new ApiError(0, "", event.error), isRunning: false };
    };
    const read = async () => {
      const answer = await fetch(address, { signal: controller.signal, credentials: "same-origin" });
      if (!answer.ok) {
        const problem = await answer.json().catch(() => ({}));
        throw new ApiError(answer.status, problem.error ?? "", problem.message ?? answer.statusText);
      }
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        const lines = (rest + value).split("\n");
        rest = lines.pop();
        lines.forEach(receiveLine);
        scheduleShow();
      }
      if (!waiting.end && !waiting.error) throw new ApiError(0, "CUT", "the connection to the console was lost: not everything was searched");
    };
    scheduleShow();
    read().catch((error) => {
      waiting = { ...waiting, isRunning: false, isStopped: controller.signal.aborted, error: controller.signal.aborted ? null : error };
    }).finally(scheduleShow);
    return () => { controller.abort(); cancelAnimationFrame(frame); };
  }, [address, isOn, reloads]);
  return { ...state, stop: () => running.current?.abort(), again: () => setReloads((number) => number + 1) };
}
