// Frames about unfolded modules: rectangles, out of which the boxes of others are cut.

const HEAD = 20, FOOT = 7, MARGIN = 7;  // pixels for the title of a frame, below it, at its sides
const CLEAR = 5;  // pixels from the boxes of others
const MOST_ROWS_EACH = 40;  // of all frames together, for each vertex: what needs more has no frame

// [{ group, from, to, first, last, left, right, rows, up, down }, ...], outer before inner. `from` and `to` are its
// vertices, `first` and `last` its layers, `up` and `down` how many frames begin or end there, it among them.
function framesOf(layout, view) {
  const most = MOST_ROWS_EACH * layout.layer.length;
  let rows = 0;
  const found = new Array(view.frames.length).fill(null), inner = view.frames.map(() => []);
  const open = [];  // indices of the frames about the one at hand
  view.frames.forEach(([, from], at) => {
    while (open.length && view.frames[open[open.length - 1]][2] <= from) open.pop();
    if (open.length) inner[open[open.length - 1]].push(at);
    open.push(at);
  });
  for (let at = view.frames.length - 1; at >= 0; at--) {
    const [group, from, to] = view.frames[at];
    const frame = { group, from, to, first: Infinity, last: -1, left: Infinity, right: -Infinity, up: 0, down: 0 };
    for (let vertex = from; vertex < to; vertex++) {
      frame.first = Math.min(frame.first, layout.layer[vertex]);
      frame.last = Math.max(frame.last, layout.layer[vertex]);
      frame.left = Math.min(frame.left, layout.x[vertex] - layout.widths[vertex] / 2);
      frame.right = Math.max(frame.right, layout.x[vertex] + layout.widths[vertex] / 2);
    }
    for (const one of inner[at]) {
      const kid = found[one];
      if (kid === null) continue;
      if (kid.first === frame.first) frame.up = Math.max(frame.up, kid.up);
      if (kid.last === frame.last) frame.down = Math.max(frame.down, kid.down);
      frame.left = Math.min(frame.left, kid.left);
      frame.right = Math.max(frame.right, kid.right);
    }
    frame.left -= MARGIN;
    frame.right += MARGIN;
    frame.up += 1;
    frame.down += 1;
    rows += frame.last - frame.first + 1;
    if (rows <= most && cutOut(layout, frame)) found[at] = frame;
  }
  return found.filter((frame) => frame !== null);
}

// Leaves the boxes of other nodes out of a frame: `rows` has how far it reaches in each of its layers. False where a
// box of others lies between its own. Lines of others may pass through, and inputs and outputs may lie in it.
function cutOut(layout, frame) {
  const { from, to, first, last, left, right } = frame, isOwn = (vertex) => vertex >= from && vertex < to;
  frame.rows = [];
  for (let at = first; at <= last; at++) {
    const row = layout.rows[at], reach = [left, right];
    let low = 0, high = row.length, after = false;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (layout.x[row[middle]] + layout.widths[row[middle]] / 2 < left) low = middle + 1;
      else high = middle;
    }
    for (; low < row.length && layout.x[row[low]] - layout.widths[row[low]] / 2 < right; low++) {
      const vertex = row[low], half = layout.widths[vertex] / 2 + CLEAR;
      if (isOwn(vertex)) {
        if (reach[1] < right) return false;
        after = true;
      } else if (layout.kind[vertex] === NODE) {
        if (after) reach[1] = Math.min(reach[1], layout.x[vertex] - half);
        else reach[0] = layout.x[vertex] + half;
      }
    }
    if (!after && (reach[0] > left || reach[1] < right)) reach[0] = reach[1] = (left + right) / 2;
    frame.rows.push(reach);
  }
  return true;
}

// The outline of a frame between two layers, with round corners where it steps in or out.
function outlineOf(path, layout, frame, from, to) {
  const first = Math.max(frame.first, from), last = Math.min(frame.last, to), half = (ROW - BOX) / 2;
  const rows = frame.rows.slice(first - frame.first, last - frame.first + 1), corners = [];
  const heights = rows.map((_, at) => layout.tops[first + at] - (first + at > frame.first ? half : frame.up * HEAD));
  heights.push(layout.tops[last] + BOX + (last < frame.last ? half : frame.down * FOOT));
  rows.forEach(([, right], at) => corners.push([right, heights[at]], [right, heights[at + 1]]));
  for (let at = rows.length - 1; at >= 0; at--) {
    const [left] = rows[at];
    corners.push([left, heights[at + 1]], [left, heights[at]]);
  }
  const [start, end] = [corners[0], corners[corners.length - 1]];
  path.moveTo((start[0] + end[0]) / 2, start[1]);
  corners.forEach(([x, y], at) => {
    const [nextX, nextY] = corners[(at + 1) % corners.length];
    const [backX, backY] = corners[(at + corners.length - 1) % corners.length];
    const room = Math.min(Math.hypot(nextX - x, nextY - y), Math.hypot(backX - x, backY - y)) / 2;
    path.arcTo(x, y, nextX, nextY, Math.min(8, room));
  });
  path.closePath();
}
