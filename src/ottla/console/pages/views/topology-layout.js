// The layout of the topology: positions of brokers, and paths of links that do not cross other brokers.
// Sizes of a broker, the space between brokers, and the padding of a rack: at its edges, and at the top for its name.
const LARGE = { width: 118, height: 66, across: 44, down: 46, edge: 22, top: 44 };
const SMALL = { width: 66, height: 44, across: 12, down: 16, edge: 12, top: 26 };
const MANY = 12;
const GAP = 14; // between racks
const STEP = 5; // pixels of a link

const byRack = (brokers) => {
  const racks = new Map();
  for (const each of brokers) racks.set(each.rack ?? null, [...(racks.get(each.rack ?? null) ?? []), each.broker]);
  return [...racks].sort(([a], [b]) => String(a ?? "\uffff").localeCompare(String(b ?? "\uffff")));
};

// The number of racks per row that needs the least height.
function widest(racks, size, width) {
  let best = null;
  for (let beside = 1; beside <= racks.length; beside += 1) {
    const rackWidth = (width - (beside - 1) * GAP) / beside;
    if (beside > 1 && rackWidth < size.width + 2 * size.edge) break;
    const across = Math.max(1, Math.floor((rackWidth - 2 * size.edge + size.across) / (size.width + size.across)));
    let height = 0;
    for (let start = 0; start < racks.length; start += beside) {
      const lines = Math.max(...racks.slice(start, start + beside).map(([, members]) => Math.ceil(members.length / across)));
      height += lines * (size.height + size.down) + size.top + size.edge;
    }
    if (!best || height < best.height) best = { beside, rackWidth, across, height };
  }
  return best;
}

// brokers, width in pixels → { nodes: Map of broker to its box, racks: boxes with names, height, next(broker, key) }
export function layoutBrokers(brokers, width) {
  const isSmall = brokers.length > MANY;
  const size = isSmall ? SMALL : LARGE;
  const racks = byRack(brokers);
  const isNamed = racks.some(([name]) => name != null);
  const { beside, rackWidth, across } = widest(racks, size, width);
  const head = isNamed ? size.top : size.edge;
  const isZigzag = !isNamed && brokers.length > 2 && brokers.length <= across; // in a single row, links would cross other brokers
  const nodes = new Map();
  const boxes = [];
  let top = 0;
  for (let start = 0; start < racks.length; start += beside) {
    const row = racks.slice(start, start + beside);
    const lines = isZigzag ? 2 : Math.max(...row.map(([, members]) => Math.ceil(members.length / across)));
    const height = head + lines * size.height + (lines - 1) * size.down + size.edge;
    row.forEach(([name, members], column) => {
      const left = column * (rackWidth + GAP);
      boxes.push({ name, x: left, y: top, width: rackWidth, height });
      members.forEach((broker, index) => {
        const line = isZigzag ? index % 2 : Math.floor(index / across);
        const inLine = isZigzag ? members.length : Math.min(across, members.length - line * across);
        const room = (rackWidth - inLine * size.width) / (inLine + 1); // centred, evenly
        nodes.set(broker, {
          x: left + room + (index % across) * (size.width + room),
          y: top + head + line * (size.height + size.down),
          width: size.width,
          height: size.height,
        });
      });
    });
    top += height + GAP;
  }
  return { nodes, racks: isNamed ? boxes : [], height: top - GAP, isSmall, next: (broker, key) => next(nodes, broker, key) };
}

// The broker that an arrow key selects; undefined for other keys.
function next(nodes, broker, key) {
  const order = [...nodes.keys()];
  const at = order.indexOf(broker);
  if (key === "ArrowRight") return order[Math.min(order.length - 1, at + 1)];
  if (key === "ArrowLeft") return order[Math.max(0, at - 1)];
  if (key === "Home") return order[0];
  if (key === "End") return order.at(-1);
  if (key !== "ArrowDown" && key !== "ArrowUp") return undefined;
  const here = nodes.get(broker);
  const away = (node) => (key === "ArrowDown" ? node.y - here.y : here.y - node.y);
  const found = order.filter((each) => away(nodes.get(each)) > 0);
  const distance = (each) => away(nodes.get(each)) * 10 + Math.abs(nodes.get(each).x - here.x);
  return found.reduce((best, each) => (distance(each) < distance(best) ? each : best), found[0] ?? broker);
}

const isInside = (node, x, y) => x > node.x - 1 && x < node.x + node.width + 1 && y > node.y - 1 && y < node.y + node.height + 1;

// A curve to the right of the direct line, which separates both directions; starts and ends at the edges of the boxes.
export function linkPath(from, to) {
  const [x1, y1] = [from.x + from.width / 2, from.y + from.height / 2];
  const [x2, y2] = [to.x + to.width / 2, to.y + to.height / 2];
  const length = Math.hypot(x2 - x1, y2 - y1) || 1;
  const isStraight = Math.abs(y1 - y2) < 1 && length > 2 * from.width; // other brokers are in between
  const bow = isStraight ? from.height * 1.7 : 14 + length * 0.08;
  const [cx, cy] = [(x1 + x2) / 2 - ((y2 - y1) / length) * bow, (y1 + y2) / 2 + ((x2 - x1) / length) * bow];
  const points = [];
  const steps = Math.ceil(length / STEP);
  for (let step = 0; step <= steps; step += 1) {
    const at = step / steps;
    const x = (1 - at) ** 2 * x1 + 2 * at * (1 - at) * cx + at ** 2 * x2;
    const y = (1 - at) ** 2 * y1 + 2 * at * (1 - at) * cy + at ** 2 * y2;
    if (!isInside(from, x, y) && !isInside(to, x, y)) points.push(`${x.toFixed(1)} ${y.toFixed(1)}`);
  }
  return points.length ? `M${points.join("L")}` : "";
}
