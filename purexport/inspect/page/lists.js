// Small things of the document, and a list that has only the rows in sight.

const $ = (id) => document.getElementById(id);
const count = (number) => number.toLocaleString("en");
const many = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
const MOST_PIXELS = 8e6;  // a browser's elements are not much higher

// Controls, the invisible characters and those that change the direction of what follows, as \u202e.
const plain = (text) => String(text).replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Zl}\p{Zp}]/gu, escaped);

function escaped(character) {
  const code = character.codePointAt(0).toString(16);
  if (code.length < 3) return `\\x${code.padStart(2, "0")}`;
  return code.length < 5 ? `\\u${code.padStart(4, "0")}` : `\\u{${code}}`;
}

// An element with text, never markup: names of a file may say anything.
function make(tag, className = "", text = "") {
  const made = document.createElement(tag);
  if (className) made.className = className;
  return text ? say(made, text) : made;
}

function say(element, text) {
  element.textContent = plain(text);
  return element;
}

// Text on a canvas. It is never squeezed: what has no room is cut, or a shorter text is taken.
function write(context, text, x, y) {
  context.fillText(plain(text), x, y);
}

// The same over what is there, which has the colour `ground`: lines behind it do not run through the letters. Of
// several texts the first that fits, and nothing where none does.
function writeOver(context, texts, x, y, width, ground, color) {
  const text = texts.find((one) => context.measureText(plain(one)).width <= width);
  if (text === undefined) return;
  context.strokeStyle = ground;
  context.lineWidth = 4;
  context.lineJoin = "round";
  context.strokeText(plain(text), x, y);
  context.fillStyle = color;
  write(context, text, x, y);
}

// A text as far as it fits, with an ellipsis where it is cut: at its end, or at its beginning if that says less.
function cutTo(context, text, width, keepsEnd = false) {
  const shown = plain(text), wide = (length) => context.measureText(part(length)).width;
  const part = (length) => (length >= shown.length ? shown
    : keepsEnd ? `\u2026${shown.slice(shown.length - length)}` : `${shown.slice(0, length)}\u2026`);
  if (wide(shown.length) <= width) return shown;
  let low = 0, high = shown.length;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (wide(middle) <= width) low = middle;
    else high = middle;
  }
  return low ? part(low) : "";
}

function sizeText(bytes) {
  let amount = bytes;
  for (const unit of ["B", "kB", "MB", "GB", "TB"]) {
    if (amount < 999.5 || unit === "TB") return unit === "B" ? `${bytes} B` : `${amount.toPrecision(3)} ${unit}`;
    amount /= 1000;
  }
  return "";
}

const offsetText = (offset) => `0x${offset.toString(16)}`;

function clear(element) {
  element.replaceChildren();
  return element;
}

// Rows of one height. `fill(row, index)` gives a row its content; `total()` says how many there are.
class List {
  constructor(box, height, total, fill) {
    this.box = box;
    this.height = height;
    this.total = total;
    this.fill = fill;
    this.space = make("div", "space");
    this.rows = new Map();
    this.first = 0;  // the row at the top, as a fraction where there are more than pixels
    this.waiting = false;
    box.append(this.space);
    box.addEventListener("scroll", () => this.scrolled());
    box.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    new ResizeObserver(() => {
      this.refresh(false);
      if (box.clientHeight) this.goTo(this.first);  // what is not shown has forgotten where it was
    }).observe(box);
  }

  get inSight() {
    return this.box.clientHeight / this.height;
  }

  get compressed() {
    return this.total() * this.height > MOST_PIXELS;
  }

  get range() {
    return Math.max(0, this.total() - this.inSight);
  }

  // Draws anew; `again` also the rows that are there.
  refresh(again = true) {
    const pixels = Math.min(this.total() * this.height, MOST_PIXELS);
    this.space.style.height = `${pixels}px`;
    if (again) this.drop(() => true);
    this.first = Math.min(this.first, this.range);
    this.draw();
  }

  show(index) {
    if (index >= Math.ceil(this.first) && index < Math.floor(this.first + this.inSight)) return;
    this.goTo(index - this.inSight / 3);
  }

  goTo(first) {
    this.first = Math.max(0, Math.min(first, this.range));
    this.box.scrollTop = this.compressed ? this.first / this.range * (MOST_PIXELS - this.box.clientHeight)
      : this.first * this.height;
    this.moved = this.box.scrollTop;
    this.draw();
  }

  scrolled() {
    const top = this.box.scrollTop;
    if (top === this.moved) return;
    this.moved = top;
    this.first = this.compressed ? top / (MOST_PIXELS - this.box.clientHeight) * this.range : top / this.height;
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.draw();
    });
  }

  wheel(event) {
    if (!this.compressed || event.ctrlKey) return;
    event.preventDefault();
    this.goTo(this.first + event.deltaY / this.height);
  }

  draw() {
    const from = Math.max(0, Math.floor(this.first) - 4);
    const to = Math.min(this.total(), Math.ceil(this.first + this.inSight) + 4);
    const top = this.compressed ? this.box.scrollTop - this.first * this.height : 0;
    this.drop((index) => index < from || index >= to);
    for (let index = from; index < to; index++) {
      let row = this.rows.get(index);
      if (row === undefined) {
        row = make("div", "row");
        this.fill(row, index);
        this.rows.set(index, row);
        this.space.append(row);
      }
      row.style.transform = `translateY(${top + index * this.height}px)`;
    }
  }

  drop(unwanted) {
    for (const [index, row] of this.rows) {
      if (unwanted(index)) {
        row.remove();
        this.rows.delete(index);
      }
    }
  }
}
