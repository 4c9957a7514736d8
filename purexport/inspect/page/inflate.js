// Deflated bytes (RFC 1950 and 1951) as they were. The browser's own DecompressionStream answers later, when it has
// painted an empty page; this answers at once, so that the first paint has the graph.

const ORDER = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];  // of lengths of codes
const DAMAGED = "its data are damaged";
const END = 256, MOST_CODE = 15, MOST_COPY = 258;

// [the first length or distance of each symbol, how many bits follow it]; `each` symbols have as many bits.
function bases(first, symbols, each) {
  const starts = [], extra = [];
  for (let symbol = 0, start = first; symbol < symbols; symbol++) {
    const bits = Math.max(0, Math.floor(symbol / each) - 1);
    starts.push(start);
    extra.push(bits);
    start += 1 << bits;
  }
  return [starts, extra];
}

const [LENGTHS, LENGTH_BITS] = bases(3, 28, 4);
LENGTHS.push(MOST_COPY);
LENGTH_BITS.push(0);
const [DISTANCES, DISTANCE_BITS] = bases(1, 30, 2);

// What begins with the bits of a code, by those bits: 16 times the symbol, and the length of its code. 0 for no code.
function codeTable(lengths) {
  const counts = new Uint16Array(MOST_CODE + 1), next = new Uint16Array(MOST_CODE + 2);
  for (const length of lengths) counts[length]++;
  counts[0] = 0;
  for (let length = 1; length <= MOST_CODE; length++) next[length + 1] = (next[length] + counts[length]) << 1;
  let most = MOST_CODE;
  while (most > 1 && !counts[most]) most--;
  const table = new Uint16Array(1 << most);
  lengths.forEach((length, symbol) => {
    if (!length) return;
    let code = next[length]++, reversed = 0;
    for (let bit = 0; bit < length; bit++, code >>= 1) reversed = (reversed << 1) | (code & 1);
    for (let at = reversed; at < table.length; at += 1 << length) table[at] = symbol << 4 | length;
  });
  return { table, most };
}

const filled = (...runs) => runs.flatMap(([count, length]) => new Array(count).fill(length));
const FIXED = [codeTable(filled([144, 8], [112, 9], [24, 7], [8, 8])), codeTable(filled([30, 5]))];

function inflated(source) {
  let out = new Uint8Array(4 * source.length + 1024), size = 0;
  let at = 2, held = 0, count = 0;  // after the header; bits that are read and not yet taken
  const need = (bits) => {
    for (; count < bits; count += 8) held |= source[at++] << count;
  };
  const take = (bits) => {
    need(bits);
    const value = held & ((1 << bits) - 1);
    held >>>= bits;
    count -= bits;
    return value;
  };
  const symbol = ({ table, most }) => {
    need(most);
    const entry = table[held & ((1 << most) - 1)];
    if (!entry || at > source.length + 4) throw new Error(DAMAGED);
    held >>>= entry & 15;
    count -= entry & 15;
    return entry >> 4;
  };
  const room = (more) => {
    if (size + more <= out.length) return;
    const larger = new Uint8Array(2 * (size + more));
    larger.set(out.subarray(0, size));
    out = larger;
  };
  const stored = () => {
    at -= count >> 3;
    const length = source[at] | source[at + 1] << 8;
    if (!(at + 4 + length <= source.length)) throw new Error(DAMAGED);
    room(length);
    out.set(source.subarray(at + 4, at + 4 + length), size);
    size += length;
    at += 4 + length;
    held = count = 0;
  };
  const tables = () => {
    const literals = take(5) + 257, distances = take(5) + 1, lengths = new Array(19).fill(0);
    for (let left = take(4) + 4, next = 0; left > 0; left--) lengths[ORDER[next++]] = take(3);
    const code = codeTable(lengths), found = [];
    while (found.length < literals + distances) {
      const length = symbol(code);
      if (length < 16) found.push(length);
      else if (length === 16) found.push(...filled([take(2) + 3, found[found.length - 1]]));
      else found.push(...filled([length === 17 ? take(3) + 3 : take(7) + 11, 0]));
    }
    return [codeTable(found.slice(0, literals)), codeTable(found.slice(literals))];
  };
  const copied = (length, distance) => {
    if (distance > size) throw new Error(DAMAGED);
    for (let left = length; left > 0; left--, size++) out[size] = out[size - distance];
  };
  for (let isLast = 0; !isLast;) {
    isLast = take(1);
    const kind = take(2);
    if (kind > 2) throw new Error(DAMAGED);
    if (kind === 0) {
      stored();
      continue;
    }
    const [literals, distances] = kind === 1 ? FIXED : tables();
    for (;;) {
      room(MOST_COPY);
      const code = symbol(literals);
      if (code === END) break;
      if (code < END) {
        out[size++] = code;
        continue;
      }
      const length = LENGTHS[code - 257] + take(LENGTH_BITS[code - 257]), far = symbol(distances);
      copied(length, DISTANCES[far] + take(DISTANCE_BITS[far]));
    }
  }
  return out.subarray(0, size);
}
