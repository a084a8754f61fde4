// One event stream for all tabs of a browser: browsers allow six connections to a host.
const ports = new Set();
let last = null;
let stream = null;

function broadcast(message) {
  last = message;
  for (const port of ports) port.postMessage(message);
}

function open() {
  stream = new EventSource("/api/events");
  stream.onmessage = (event) => broadcast({ kind: "versions", at: Date.now(), ...JSON.parse(event.data) });
  stream.onerror = () => {
    broadcast({ kind: "lost" });
    if (stream.readyState === EventSource.CLOSED) {
      stream = null;
      setTimeout(() => ports.size && !stream && open(), 3000);
    }
  };
}

self.onconnect = (event) => {
  const [port] = event.ports;
  ports.add(port);
  if (last) port.postMessage(last);
  port.onmessage = ({ data }) => {
    if (data === "bye") ports.delete(port);
    if (data === "reconnect" && stream) {
      stream.close();
      stream = null;
    }
    if (ports.size === 0 && stream) {
      stream.close();
      stream = null;
    } else if (ports.size && !stream) open();
  };
  if (!stream) open();
  port.start();
};
